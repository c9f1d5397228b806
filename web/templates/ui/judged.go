package ui

import (
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Judged is whether a retry of a cause can help.
type Judged struct {
	Fingerprint string `redact:"-"`
	Verdict     string // a sentence without its period
	Outlook     campaign.RetryOutlook
}

// Hopeless reports whether a retry of what the page is about cannot help.
func (p Page) Hopeless() bool { return p.Judged != nil && p.Judged.Outlook == campaign.OutlookNone }

// Judging adds the rehearsal of a fix to actions where judged offers it.
func Judging(p Page, actions ...operator.Action) []operator.Action {
	if p.Hopeless() {
		return Rehearsing(p, p.Judged.Fingerprint, actions...)
	}
	return actions
}

// failingAmong lists those of the projections, none meaning all, whose loaded version fails now.
func (p Page) failingAmong(projections ...string) []string {
	var failing []string
	for _, name := range slices.Sorted(maps.Keys(p.Failing)) {
		if len(projections) == 0 || slices.Contains(projections, name) {
			failing = append(failing, name)
		}
	}
	return failing
}

// Rehearses reports whether changed projection files can be rehearsed as a fix of an error; an empty
// fingerprint means any error.
func (p Page) Rehearses(fingerprint string) bool {
	return p.Rehearse && p.Running.InFile(fingerprint)
}

// Rehearsing adds the rehearsal of a fix to actions on a page, where it is offered for the error; an
// empty fingerprint means any error.
func Rehearsing(p Page, fingerprint string, actions ...operator.Action) []operator.Action {
	if p.Rehearses(fingerprint) {
		return append(slices.Clone(actions), operator.ActionRehearse)
	}
	return actions
}

// OtherBuilt are those of the loaded projections, none meaning all, whose rows were not all built by the
// loaded version.
func (p Page) OtherBuilt(projections ...string) (others []campaign.ProjectionInfo) {
	for _, one := range p.Loaded {
		if one.BuiltByOtherVersion && (len(projections) == 0 || slices.Contains(projections, one.Name)) {
			others = append(others, one)
		}
	}
	return others
}
