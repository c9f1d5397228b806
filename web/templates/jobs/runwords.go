package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// RunSentence says what a run is doing, or how it ended. The reason of a failure or interruption is
// shown separately.
func RunSentence(p ui.Page, r outbox.Run) string {
	n := r.Counts
	switch r.Status {
	case outbox.RunQueued:
		return "Queued: waiting for a worker."
	case outbox.RunRunning:
		if !r.Leased(p.Now) {
			return r.Unattended(p.Now)
		}
		return strings.TrimSpace(fmt.Sprintf("%s; %s done. %s", runWords[r.Kind].doing, ofCampaigns(r), r.Unattended(p.Now)))
	case outbox.RunCancelling:
		if !r.Leased(p.Now) {
			return fmt.Sprintf("Cancelled by %s. %s", r.CancelledBy, r.Unattended(p.Now))
		}
		return strings.TrimSpace(fmt.Sprintf("Cancelled by %s; its worker is stopping. %s", r.CancelledBy, r.Unattended(p.Now)))
	case outbox.RunCompleted:
		if old := outdatedOf(p, r); n.Drifted > 0 && len(old) > 0 {
			return fmt.Sprintf("%s differed from %s.", ofRun(n.Drifted, r), outbox.OutdatedWords(p.Loaded, old...))
		}
		return runOutcome(p, r)
	case outbox.RunCancelled:
		return fmt.Sprintf("Cancelled by %s with %s done. %s", r.CancelledBy, ofCampaigns(r), runWords[r.Kind].left)
	case outbox.RunInterrupted:
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
func outdatedOf(p ui.Page, r outbox.Run) (outdated []outbox.Verification) {
	if r.Kind != outbox.RunVerify || len(p.Loaded) == 0 || !r.OfLoaded() {
		return nil
	}
	for _, name := range r.Projections {
		same := func(one outbox.ProjectionInfo) bool { return one.Name == name && one.Version == r.Versions[name] }
		if r.Versions[name] != "" && !slices.ContainsFunc(p.Loaded, same) {
			outdated = append(outdated, outbox.Verification{Projection: name, Version: r.Versions[name]})
		}
	}
	return outdated
}

func ofCampaigns(r outbox.Run) string {
	return ui.Num(r.Campaigns.Done) + " of " + ui.Count(r.Campaigns.Total, "campaign", "campaigns")
}

func ofRun(n int64, r outbox.Run) string {
	return ui.Num(n) + " of " + ui.Count(max(r.Campaigns.Total, r.Campaigns.Done), "campaign", "campaigns")
}

// runWords are the words for kinds of runs: what one is doing, what became of the campaigns that were not done, and
// what it is for.
var runWords = map[outbox.RunKind]struct{ doing, left, means string }{
	outbox.RunVerify: {"Replaying the journal and comparing it with the live rows", "A verify changes no rows.",
		"replays the journal into scratch tables and compares them with the live rows. Nothing changes."},
	outbox.RunRebuild: {"Replaying the journal and replacing the live rows", "Unfinished campaigns and failed projections keep their rows; other projections of a failed campaign may have been rebuilt.",
		"replays the journal and replaces the live rows, campaign by campaign. Readers see the old rows or the new ones, never a mix."},
	outbox.RunRehearse: {"Applying events with the changed files to copies of the live rows", "A rehearsal changes no rows.", ""},
	outbox.RunReplay: {"Enqueuing unapplied events again and catching up quarantined projections", "Unfinished campaigns are unchanged.",
		"enqueues unapplied events again, due now, and catches up quarantined projections from where they stopped."},
}

func runOutcome(p ui.Page, r outbox.Run) string {
	n, total, journal := r.Counts, ui.Count(r.Campaigns.Done, "campaign", "campaigns"), journalOf(r)
	switch {
	case r.Campaigns.Done == 0:
		return "No campaigns in its scope."
	case r.Kind == outbox.RunRehearse:
		return "Rehearsed: " + total + ". No live row changed."
	case r.Kind == outbox.RunReplay:
		text := "Replayed " + ui.Count(n.Replayed, "campaign", "campaigns") + ", as far as events could be applied."
		if n.Matched > 0 {
			text += " " + ui.Num(n.Matched) + " had nothing to replay."
		}
		return text
	case r.Kind == outbox.RunRebuild && n.Drifted > 0 && r.CampaignID != "":
		return "Rebuilt. Some rows differed before; all match the journal now, as far as events are applied."
	case r.Kind == outbox.RunRebuild && n.Drifted == 0 && n.NotCompared > 0:
		return "Rebuilt. No rows differed before. In " + ofRun(n.NotCompared, r) + ", a paused projection lacks events."
	case r.Kind == outbox.RunRebuild && n.Drifted == 0:
		return "Rebuilt. The rows of " + total + " match the journal, as far as events are applied; none differed before."
	case r.Kind == outbox.RunRebuild:
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
func journalOf(r outbox.Run) string {
	if with := outbox.WithText(r.With); with != "" {
		return "the journal, replayed with " + with
	}
	return "the journal"
}

// rowsOf names the projections of a run over some of the loaded ones; empty for all. It continues "the
// live rows".
func rowsOf(p ui.Page, r outbox.Run) string {
	switch n := len(r.Projections); {
	case n >= len(p.Loaded):
		return ""
	case n == 1:
		return " of projection " + r.Projections[0]
	}
	return " of projections " + strings.Join(r.Projections, ", ")
}

// VerifiedWords say what a verify of everything found, and whether that is of the loaded versions.
func VerifiedWords(r outbox.Run, loaded []outbox.ProjectionInfo) string {
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

func previewSentence(n outbox.RunPreview) string {
	which := ui.Count(int64(len(n.Projections)), "projection", "projections")
	if with := outbox.WithText(n.With); with != "" {
		which += ", with " + with + ","
	}
	what := fmt.Sprintf("%s of %s", ui.Count(n.Events, "event", "events"), ui.Count(n.Campaigns, "campaign", "campaigns"))
	switch n.Kind {
	case outbox.RunVerify:
		return fmt.Sprintf("This verify replays %s into %s and compares the result with the live rows.", what, which)
	case outbox.RunRebuild:
		return fmt.Sprintf("This rebuild replays %s into %s and replaces the live rows.", what, which)
	default:
		return fmt.Sprintf("This replay scans %s for %s.", what, which)
	}
}

// previewNotes say what does not change meanwhile.
func previewNotes(n outbox.RunPreview) []string {
	notes := []string{"Events continue to be applied to these campaigns."}
	switch n.Kind {
	case outbox.RunVerify:
		return append(notes, "Live rows do not change.")
	case outbox.RunRebuild:
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
