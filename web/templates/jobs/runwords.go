package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// RunSentence says what a run is doing, or how it ended. The reason of a failure or interruption is
// shown separately.
func RunSentence(p ui.Page, r replay.Run) string {
	n := r.Counts
	switch r.Status {
	case replay.RunQueued:
		return "Queued: waiting for a worker."
	case replay.RunRunning:
		if !r.Leased(p.Now) {
			return r.Unattended(p.Now)
		}
		return strings.TrimSpace(fmt.Sprintf("%s; %s done. %s", runWords[r.Kind].doing, ofCampaigns(r), r.Unattended(p.Now)))
	case replay.RunCancelling:
		if !r.Leased(p.Now) {
			return fmt.Sprintf("Cancelled by %s. %s", r.CancelledBy, r.Unattended(p.Now))
		}
		return strings.TrimSpace(fmt.Sprintf("Cancelled by %s; its worker is stopping. %s", r.CancelledBy, r.Unattended(p.Now)))
	case replay.RunCompleted:
		if old := outdatedOf(p, r); n.Drifted > 0 && len(old) > 0 {
			return fmt.Sprintf("%s differed from %s.", ofRun(n.Drifted, r), campaign.OutdatedWords(p.Loaded, old...))
		}
		return runOutcome(p, r)
	case replay.RunCancelled:
		return fmt.Sprintf("Cancelled by %s with %s done. %s", r.CancelledBy, ofCampaigns(r), runWords[r.Kind].left)
	case replay.RunInterrupted:
		return fmt.Sprintf("Interrupted with %s done. %s", ofCampaigns(r), runWords[r.Kind].left)
	default:
		if failed := r.FailedCampaigns(); failed > 0 {
			return fmt.Sprintf("%s failed. %s", ofRun(failed, r), runWords[r.Kind].left)
		}
		return fmt.Sprintf("Failed with %s done. %s", ofCampaigns(r), runWords[r.Kind].left)
	}
}

// outdatedOf are the projections of a verify that other versions are loaded of now, in any campaign: what
// it found says nothing of the loaded ones.
func outdatedOf(p ui.Page, r replay.Run) (outdated []campaign.Verification) {
	if r.Kind != replay.RunVerify || len(p.Loaded) == 0 || !r.OfLoaded() {
		return nil
	}
	for _, name := range r.Projections {
		same := func(one campaign.ProjectionInfo) bool { return one.Name == name && one.Version == r.Versions[name] }
		if r.Versions[name] != "" && !slices.ContainsFunc(p.Loaded, same) {
			outdated = append(outdated, campaign.Verification{Projection: name, Version: r.Versions[name]})
		}
	}
	return outdated
}

// comparedLoaded reports whether the versions that a verify replayed with are the loaded ones now, so that a
// rebuild makes what it compared with.
func comparedLoaded(p ui.Page, r replay.Run) bool {
	for name, version := range r.With {
		if !slices.ContainsFunc(p.Loaded, func(one campaign.ProjectionInfo) bool { return one.Name == name && one.Version == version }) {
			return false
		}
	}
	return len(outdatedOf(p, r)) == 0
}

func ofCampaigns(r replay.Run) string {
	return ui.Num(r.Campaigns.Done) + " of " + ui.Count(r.Campaigns.Total, "campaign", "campaigns")
}

func ofRun(n int64, r replay.Run) string {
	return ui.Num(n) + " of " + ui.Count(max(r.Campaigns.Total, r.Campaigns.Done), "campaign", "campaigns")
}

// runWords are the words for kinds of runs: what one is doing, what became of the campaigns that were not done, and
// what it is for.
var runWords = map[replay.RunKind]struct{ doing, left, means string }{
	replay.RunVerify: {"Replaying the journal and comparing it with the live rows", "A verify changes no rows.",
		"replays the journal into scratch tables and compares them with the live rows. Nothing changes."},
	replay.RunRebuild: {"Replaying the journal and replacing the live rows", "Unfinished campaigns and failed projections keep their rows; other projections of a failed campaign may have been rebuilt.",
		"replays the journal and replaces the live rows, campaign by campaign. Readers see the old rows or the new ones, never a mix."},
	replay.RunRehearse: {"Applying events with the changed files to copies of the live rows", "A rehearsal changes no rows.", ""},
	replay.RunReplay: {"Enqueuing unapplied events again and catching up quarantined projections", "Unfinished campaigns are unchanged.",
		"enqueues unapplied events again, due now, and catches up quarantined projections from where they stopped."},
}

func runOutcome(p ui.Page, r replay.Run) string {
	n, total, journal := r.Counts, ui.Count(r.Campaigns.Done, "campaign", "campaigns"), journalOf(r)
	switch {
	case r.Campaigns.Done == 0:
		return "No campaigns in its scope."
	case r.Kind == replay.RunRehearse:
		return "Rehearsed: " + total + ". No live row changed."
	case r.Kind == replay.RunReplay:
		text := "Replayed " + ui.Count(n.Replayed, "campaign", "campaigns") + ", as far as events could be applied."
		if n.Matched > 0 {
			text += " " + ui.Num(n.Matched) + " had nothing to replay."
		}
		return text
	case r.Kind == replay.RunRebuild && n.Drifted > 0 && r.CampaignID != "":
		return "Rebuilt. Some rows differed before; all match the journal now, as far as events are applied."
	case r.Kind == replay.RunRebuild && n.Drifted == 0 && n.NotCompared > 0:
		return "Rebuilt. No rows differed before. In " + ofRun(n.NotCompared, r) + ", a paused projection lacks events."
	case r.Kind == replay.RunRebuild && n.Drifted == 0:
		return "Rebuilt. The rows of " + total + " match the journal, as far as events are applied; none differed before."
	case r.Kind == replay.RunRebuild:
		return fmt.Sprintf("Rebuilt. The rows of %s match the journal now, as far as events are applied; in %s some differed before.", total, ui.Num(n.Drifted))
	case n.Drifted > 0:
		return fmt.Sprintf("Drift in %s: the live rows%s differ from %s.", ofRun(n.Drifted, r), rowsOf(p, r), journal)
	case r.UntilSeq > 0:
		return fmt.Sprintf("Replayed up to event %d.", r.UntilSeq)
	case n.NotCompared > 0 && r.CampaignID != "":
		return "No differences, but not all events were compared: a projection is paused, quarantined or behind."
	case n.NotCompared > 0:
		return fmt.Sprintf("The live rows%s of %s match %s, as far as events are applied. %s not fully compared: a projection is paused, quarantined or behind.", rowsOf(p, r), ui.Count(n.Matched, "campaign", "campaigns"), journal, ui.Count(n.NotCompared, "campaign was", "campaigns were"))
	case r.CampaignID != "":
		return fmt.Sprintf("The live rows%s match %s, as far as events are applied.", rowsOf(p, r), journal)
	default:
		return fmt.Sprintf("The live rows%s of %s match %s, as far as events are applied.", rowsOf(p, r), total, journal)
	}
}

// journalOf is what a verify compares live rows with.
func journalOf(r replay.Run) string {
	if with := replay.WithText(r.With); with != "" {
		return "the journal, replayed with " + with
	}
	return "the journal"
}

// rowsOf names the projections of a run over some of the loaded ones; empty for all. It continues "the
// live rows".
func rowsOf(p ui.Page, r replay.Run) string {
	switch n := len(r.Projections); {
	case n >= len(p.Loaded):
		return ""
	case n == 1:
		return " of projection " + r.Projections[0]
	}
	return " of projections " + strings.Join(r.Projections, ", ")
}

// VerifiedWords say what a verify of everything found, and whether that is of the loaded versions.
func VerifiedWords(r replay.Run, loaded []campaign.ProjectionInfo) string {
	found := "no differences, as far as events were applied then"
	switch n := r.Counts; {
	case n.Drifted > 0:
		found = "drift in " + ofRun(n.Drifted, r)
	case n.NotCompared > 0:
		found = "no differences, but " + ofRun(n.NotCompared, r) + " not fully compared"
	}
	for _, p := range loaded {
		if r.Versions[p.Name] != p.Version {
			return found + ". Other versions of projections are loaded now"
		}
	}
	return found
}

func previewSentence(n replay.RunPreview) string {
	which := ui.Count(int64(len(n.Projections)), "projection", "projections")
	if with := replay.WithText(n.With); with != "" {
		which += ", with " + with + ","
	}
	what := fmt.Sprintf("%s of %s", ui.Count(n.Events, "event", "events"), ui.Count(n.Campaigns, "campaign", "campaigns"))
	switch n.Kind {
	case replay.RunVerify:
		return fmt.Sprintf("This verify replays %s into %s and compares the result with the live rows.", what, which)
	case replay.RunRebuild:
		return fmt.Sprintf("This rebuild replays %s into %s and replaces the live rows.", what, which)
	default:
		return fmt.Sprintf("This replay scans %s for %s.", what, which)
	}
}

// previewNotes say what does not change meanwhile.
func previewNotes(n replay.RunPreview) []string {
	notes := []string{"Events continue to be applied to these campaigns."}
	switch n.Kind {
	case replay.RunVerify:
		return append(notes, "Live rows do not change.")
	case replay.RunRebuild:
		if n.Diverged > 0 {
			notes = append([]string{fmt.Sprintf("%s diverged: first make sure that the journal is the right one. It may be an older copy, or the URL of the journal database may name the wrong one; then restore the right one and do not rebuild. Rebuild only if it is lost: that permanently removes the lost events from the projections.",
				ui.Count(n.Diverged, "campaign has", "campaigns have"))}, notes...)
		}
		return append(notes, "Each campaign's rows change in one step: readers see the old rows or the new ones, never a mix.",
			"The run can be cancelled at any time: unfinished campaigns keep their rows.")
	default:
		return append(notes, "Projections that are caught up do not change.", "The run can be cancelled at any time.")
	}
}
