// Package jobs holds the pages of runs, rehearsals and operations.
package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// RunsView is a page of the runs.
type RunsView = ui.ListView[replay.RunFilter, replay.Run]

// RunView is a run with one page of its results and one of its log.
type RunView struct {
	Run     replay.Run
	Filter  replay.ResultFilter `redact:"-"`
	Results event.Page[replay.RunResult]
	// First are the first results of each of FirstOutcomes; empty if Results is filtered, and if all of
	// the run's are such.
	First     []replay.RunResult
	Rehearsal *replay.FixRehearsal // nil unless the run is one
	LogCursor string               `redact:"-"`
	Log       event.Page[replay.RunLine]
	Acts      []operator.AuditEntry // the latest actions on it
}

// NewRunView is a run before it is started.
type NewRunView struct {
	Request replay.RunRequest `redact:"-"`
	Reason  string            `redact:"-"` // as it was typed
	Loaded  []campaign.ProjectionInfo
	// Preview is what the run would be about; nil while the order does not say
	// enough.
	Preview *replay.RunPreview
	Wrong   string // why there is no preview, or empty
	Held    []campaign.HeldProjection
	// Versions are those of the loaded projections that are kept and not loaded now.
	Versions []ProjectionVersion
	Key      string `redact:"-"` // the idempotency key of the form: sent twice, it starts once
}

// ProjectionVersion is a version of a projection that a verify can compare with.
type ProjectionVersion struct {
	Projection string
	Version    campaign.LoadedVersion
}

// VersionsOf are the versions of the loaded projections that are kept and not loaded now, by projection and number.
func VersionsOf(loaded []campaign.ProjectionInfo, installed map[string]campaign.Installed) (all []ProjectionVersion) {
	for _, p := range loaded {
		for _, version := range slices.Sorted(maps.Keys(installed[p.Name].Loads)) {
			if v := installed[p.Name].Named(version); v.Kept && version != p.Version {
				all = append(all, ProjectionVersion{p.Name, v})
			}
		}
	}
	return all
}

// RunTitle is a run's title.
func RunTitle(r replay.Run) string { return fmt.Sprintf("Run %d: %s", r.ID, r.Kind) }

// runKindChoices and runStatusChoices are the filters of the list of runs.
// outcomeChoices are the filters of a run's results: those that need attention first.
func outcomeChoices(p ui.Page, v RunView) []ui.Choice {
	all := []ui.Choice{}
	for _, c := range v.Run.Outcomes() {
		name := fmt.Sprintf("%s %s %s", ui.OutcomeLook(c.Outcome).Glyph, c.Name, ui.Num(c.Campaigns))
		all = append(all, ui.Choice{Name: name, To: p.Links.Run(v.Run.ID, replay.ResultFilter{Outcome: c.Outcome}, ""), Chosen: v.Filter.Outcome == c.Outcome})
	}
	return append(all, ui.Choice{Name: "all " + ui.Num(v.Run.Campaigns.Done), To: p.Links.RunOf(v.Run.ID), Chosen: v.Filter.Outcome == ""})
}

// outcomeWords are the outcomes of a rehearsal's campaigns in a line; empty for other runs, which have a
// verdict.
func outcomeWords(r *replay.Run) string {
	var parts []string
	for _, c := range r.Outcomes() {
		if r.Kind == replay.RunRehearse && c.Campaigns > 0 {
			parts = append(parts, ui.Num(c.Campaigns)+" "+c.Name)
		}
	}
	return strings.Join(parts, ", ")
}

// barValue and barMax are the attributes of a progress bar; a run that ended without any work is
// full.
func barValue(r replay.Run, p replay.Progress) string {
	if p.Total <= 0 && r.Status == replay.RunCompleted {
		return "1"
	}
	return ui.Itoa(min(p.Done, max(p.Total, 0)))
}

func barMax(p replay.Progress) string { return ui.Itoa(max(p.Total, 1)) }

// progressWords describe a bar: "1,200 of 4,000 events, 30 %".
func progressWords(r replay.Run, p replay.Progress, one, many string) string {
	if r.StartedAt == nil {
		return many + " are counted when it begins"
	}
	return fmt.Sprintf("%s of %s, %d%%", ui.Num(p.Done), ui.Count(p.Total, one, many), int64(runShare(r, p)*100))
}

func runShare(r replay.Run, p replay.Progress) float64 {
	if p.Total <= 0 && r.Status == replay.RunCompleted {
		return 1
	}
	return p.Share()
}

// runPace describes a run's rate and remaining time, or how old its last report is; empty while it is
// not running.
func runPace(p *ui.Page, r *replay.Run) string {
	if r.Unattended(p.Now) != "" {
		return "last report " + event.Age(p.Now.Sub(r.UpdatedAt)) + " ago"
	}
	if r.EventsPerSecond <= 0 {
		return ""
	}
	text := ui.Rate(r.EventsPerSecond) + " events/s"
	if r.SecondsLeft != nil {
		text += ", about " + ui.Seconds(max(1, *r.SecondsLeft)) + " left"
	}
	return text
}

// RunVerdict is the outcome whose badge shows a verdict.
func RunVerdict(v campaign.Verdict) string {
	switch v {
	case campaign.VerdictDrift:
		return replay.OutcomeDrift
	case campaign.VerdictFailed:
		return replay.OutcomeFailed
	}
	return replay.OutcomeMatch
}

// runDigest is one projection's digest in a run over one campaign.
type runDigest struct{ Name, Before, After string }

// runDigests are the digests of a run in load order, the full one last.
func runDigests(r replay.Run) []runDigest {
	var all []runDigest
	for _, name := range append(slices.Clone(r.Projections), replay.FullDigest) {
		if r.Digests[name] != "" || r.Before[name] != "" {
			all = append(all, runDigest{name, r.Before[name], r.Digests[name]})
		}
	}
	return all
}

// runVersions are the versions of a run's projections, by name.
func runVersions(r replay.Run) []ui.NamedText {
	var all []ui.NamedText
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		all = append(all, ui.NamedText{Name: name, Value: r.Versions[name]})
	}
	return all
}

// versionsTitle says which versions runVersions are.
func versionsTitle(r replay.Run) string {
	if !r.OfLoaded() {
		return "Loaded at the start"
	}
	return "Projections"
}

// addressed is the maximum number of campaigns in an address.
const addressed = 50

func requestOf(r replay.Run) replay.RunRequest {
	o := replay.RunRequest{Kind: r.Kind, All: r.All, Projections: r.Projections, UntilSeq: r.UntilSeq, Rate: r.Rate}
	if len(r.CampaignIDs) <= addressed {
		o.Campaigns = r.CampaignIDs
	}
	for _, version := range r.With { // of one projection, if it is kept
		o.WithVersion = version
	}
	return o
}

// newRunTwins are the shell equivalents of starting the run.
func newRunTwins(p ui.Page, v NewRunView) ui.Twins {
	asked := replay.RunStartRequest{RunRequest: v.Request, Reason: ui.AnyReason.Reason, Confirm: v.confirm()}
	t := ui.Twins{Curl: p.CurlPost(p.Links.API().Action(operator.ActionRunStart), asked)}
	if p.CommandLoads(asked.Projections...) {
		t.CLI = p.Command(operator.ActionRunStart.Command()+" "+string(asked.Kind), asked)
	}
	return t
}

// confirm is the phrase that the previewed run requires, with a reason; empty if none is required.
func (v NewRunView) confirm() string {
	if v.Preview == nil {
		return ""
	}
	return v.Preview.Confirm
}

// runTwins are the shell equivalents of cancelling or resuming the run, whichever is possible, or
// of showing it.
func runTwins(p ui.Page, r replay.Run) ui.Twins {
	id, act := ui.Itoa(r.ID), r.Action(p.Now)
	if act == "" || !p.Offers(act) {
		return ui.Twins{Curl: p.CurlGet(p.Links.API().RunOf(r.ID)), CLI: p.Program() + "runs show " + id}
	}
	t := p.AsksOn(act, nil, id)
	if act != operator.ActionRunCancel && !p.CommandLoads(r.Projections...) {
		t.CLI = ""
	}
	return t
}

// Limits, in bytes, on a log line that is expanded at first, and on how much of a line a page
// shows. The API has all of it.
const (
	logLine   = 2000
	logOpened = 16 << 10
)

// FirstOutcomes are those that need attention, which are listed first.
var FirstOutcomes = []string{replay.OutcomeFailed, replay.OutcomeDrift, replay.OutcomeNotCompared}

// others are the results of the page that need no attention, where those that do are listed first.
func (v RunView) others() (all []replay.RunResult) {
	if len(v.First) == 0 {
		return v.Results.Items
	}
	for _, r := range v.Results.Items {
		if !slices.Contains(FirstOutcomes, r.Outcome) {
			all = append(all, r)
		}
	}
	return all
}

// moreFirst are the outcomes of which not all results are listed first.
func (v RunView) moreFirst() (more []replay.OutcomeCount) {
	if len(v.First) == 0 {
		return nil
	}
	for _, c := range v.Run.Outcomes() {
		var shown int64
		for _, r := range v.First {
			if r.Outcome == c.Outcome {
				shown++
			}
		}
		if slices.Contains(FirstOutcomes, c.Outcome) && shown < c.Campaigns {
			more = append(more, c)
		}
	}
	return more
}

// failedEvent is an event that a projection could not replay.
type failedEvent struct {
	projection, campaign string
	seq                  int64
}

// failedEvents are the first such event of each projection in the results that the page shows; none of a
// rehearsal, of which that is an answer.
func (v RunView) failedEvents() (all []failedEvent) {
	if v.Rehearsal != nil {
		return nil
	}
	for _, r := range slices.Concat(v.First, v.Results.Items) {
		for _, one := range r.Projections {
			if one.ErrorSeq > 0 && !slices.ContainsFunc(all, func(f failedEvent) bool { return f.projection == one.Projection }) {
				all = append(all, failedEvent{one.Projection, r.CampaignID, one.ErrorSeq})
			}
		}
	}
	return all
}

// quarantined are the projections of the run that fail again where they are quarantined.
func (v NewRunView) quarantined() []campaign.HeldProjection {
	if !v.Request.Kind.CatchesUp() {
		return nil
	}
	return slices.DeleteFunc(campaign.QuarantinedAmong(v.Held), func(h campaign.HeldProjection) bool {
		return len(v.Request.Projections) > 0 && !slices.Contains(v.Request.Projections, h.Projection)
	})
}

// firstWords is the heading of the results that are listed apart.
func firstWords(kind replay.RunKind) string {
	if kind == replay.RunRebuild {
		return "Differed, or is not complete"
	}
	return "Needs attention first"
}

// rebuildName names the rebuild of what a verify found to differ.
func rebuildName(r replay.Run) string {
	n := r.Counts.Drifted
	if n > event.MaxRunCampaigns && !r.AllDrifted() {
		return "Rebuild the first " + ui.Num(event.MaxRunCampaigns) + " of " + ui.Num(n) + " drifted campaigns"
	}
	return "Rebuild " + ui.Count(n, "drifted campaign", "drifted campaigns")
}

// versionsOf says which versions the rows and the replay of a projection were of that differ in the results
// that the page shows; empty if none does.
func (v RunView) versionsOf(projection string) string {
	return replay.VersionsOf(slices.Concat(v.First, v.Results.Items), projection)
}

// sides are the words of a comparison: its two sides, and a row that only one of them has.
type sides struct{ live, expected, added, removed string }

var (
	VerifySides  = sides{"Live", "Expected", "missing in live data", "unexpected in live data"}
	rebuildSides = sides{"Before", "After", "added", "removed"}
	triedSides   = sides{"Now", "Then", "added", "removed"}
)

func sidesOf(kind replay.RunKind) sides {
	switch kind {
	case replay.RunRebuild:
		return rebuildSides
	case replay.RunRehearse:
		return triedSides
	}
	return VerifySides
}

// change is the word for the difference of a row.
func (s sides) change(kind string) string {
	switch kind {
	case projection.RowAdded:
		return s.added
	case projection.RowRemoved:
		return s.removed
	}
	return kind
}

// differences say for each projection how many rows differ, and from where on.
func differences(r replay.RunResult, s sides) []string {
	var all []string
	for _, p := range r.Projections {
		if p.Error != "" && p.ErrorSeq > 0 {
			all = append(all, fmt.Sprintf("%s: event %d cannot be replayed", p.Projection, p.ErrorSeq))
		} else if p.Error != "" {
			all = append(all, p.Projection+": not compared")
		} else if c := p.Comparison; c != nil && c.Differs() {
			all = append(all, p.Projection+": "+ChangeCounts(*c, s)+FirstDivergence(*c))
		} else if c == nil && p.Generation > 0 && p.Verdict != campaign.VerdictMatch {
			all = append(all, p.Projection+": "+replacedWords(p))
		}
	}
	for _, n := range r.NotCompared() {
		all = append(all, fmt.Sprintf("%s: %s not compared, %s", n.Projection, n.Events(), n.Why()))
	}
	return all
}

// ResultWords are the error of a result and its differences in a line; empty without any.
func ResultWords(kind replay.RunKind, r replay.RunResult) string {
	parts := differences(r, sidesOf(kind))
	if r.Error != "" {
		parts = slices.Insert(parts, 0, ui.FirstLine(r.Error))
	}
	return strings.Join(parts, "; ")
}

// replacedWords say what a rebuild or a catch-up did to rows that were not right before: "caught up to
// event 6; 3 rows before, 5 after".
func replacedWords(p replay.ProjectionResult) string {
	text := "its rows differed before"
	if p.Verdict == "" {
		text = "caught up to event " + ui.Itoa(p.Seq)
	}
	if p.Rows != nil {
		text += fmt.Sprintf("; %s before, %s after", ui.Count(p.Rows.Before, "row", "rows"), ui.Num(p.Rows.After))
	}
	return text
}

// whatWords head the column of what a run found or did in a campaign, and stand for nothing in it.
func whatWords(kind replay.RunKind) (what, none string) {
	switch kind {
	case replay.RunReplay:
		return "What changed", "nothing to catch up"
	case replay.RunRebuild:
		return "What differed", "nothing"
	}
	return "What differs", "nothing"
}

// FirstDivergence goes on ChangeCounts; empty when no event is known.
func FirstDivergence(c projection.Comparison) string {
	if from := c.From(); from != "" {
		return "; " + from
	}
	return ""
}

// ChangeCounts says "1 row added, 2 changed".
func ChangeCounts(c projection.Comparison, s sides) string {
	var parts []string
	for _, n := range []struct {
		n    int64
		kind string
	}{{c.Added, projection.RowAdded}, {c.Changed, projection.RowChanged}, {c.Removed, projection.RowRemoved}} {
		switch {
		case n.n == 0:
		case len(parts) == 0:
			parts = append(parts, ui.Count(n.n, "row ", "rows ")+s.change(n.kind))
		default:
			parts = append(parts, ui.Num(n.n)+" "+s.change(n.kind))
		}
	}
	return strings.Join(parts, ", ")
}
