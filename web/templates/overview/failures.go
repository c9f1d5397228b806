package overview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func groupCount(g campaign.ErrorGroup) string {
	more := ""
	if g.Capped {
		more = "+"
	}
	var parts []string
	for _, part := range []struct {
		n    int64
		what string
	}{{g.Dead, "dead"}, {g.Failed, "failed"}, {g.Retrying, "being retried"}, {g.Rehearsed, "would fail"}} {
		if part.n > 0 {
			parts = append(parts, ui.Num(part.n)+more+" "+part.what)
		}
	}
	return strings.Join(parts, ", ")
}

// groupStatus is the status by which to list a group's rows.
func groupStatus(g campaign.ErrorGroup) event.Status {
	switch {
	case g.Dead > 0:
		return event.Dead
	case g.OnlyRehearsed():
		return event.Pending
	}
	return event.Failed
}

func talliesText(all []campaign.Tally) string {
	const shown = 6
	var words []string
	for i, t := range all {
		if i == shown {
			words = append(words, "and "+ui.Itoa(len(all)-shown)+" more")
			break
		}
		words = append(words, cmp.Or(t.Name, "unknown")+" ("+ui.Num(t.Count)+")")
	}
	return strings.Join(words, ", ")
}

// groupID is a group's element id on its page.
func groupID(g campaign.ErrorGroup) string {
	sum := sha256.Sum256([]byte(g.Fingerprint))
	return "e-" + hex.EncodeToString(sum[:6])
}

func retryGroupForm(g campaign.ErrorGroup) string { return "retry-form-" + groupID(g) }
func noteForm(g campaign.ErrorGroup) string       { return "note-form-" + groupID(g) }

// groupForms are the ids of the page's forms.
func groupForms(v FailuresView) (forms []string) {
	for _, g := range v.groups() {
		forms = append(forms, retryGroupForm(g.ErrorGroup), noteForm(g.ErrorGroup))
	}
	return forms
}

// groupActions are the actions on the rows of error groups.
func groupActions(p ui.Page, groups []campaign.AssessedGroup) []operator.Action {
	var all []operator.Action
	for _, g := range groups {
		all = append(all, ui.Rehearsing(p, g.Fingerprint, g.Actions()...)...)
	}
	return all
}
