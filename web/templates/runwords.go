package templates

import (
	"fmt"

	"outboxweb/internal/outbox"
)

// runSentence says what a run is doing, or how it ended. Why it failed or was
// interrupted stands by itself.
func runSentence(p Page, r outbox.Run) string {
	n := r.Counts
	switch r.Status {
	case outbox.RunQueued:
		return "Waits for a process to take it up."
	case outbox.RunRunning:
		if r.Lease == nil || !r.Lease.ExpiresAt.After(p.Now) {
			return "Nobody works on it just now: the process that did is gone, and another goes on with it within moments."
		}
		return fmt.Sprintf("%s; %s done.", runDoing(r.Kind), ofCampaigns(r))
	case outbox.RunCancelling:
		return fmt.Sprintf("%s has cancelled it; it ends as soon as the process that works on it has noticed.", r.CancelledBy)
	case outbox.RunCompleted:
		return runOutcome(r)
	case outbox.RunCancelled:
		return fmt.Sprintf("%s cancelled it with %s done. %s", r.CancelledBy, ofCampaigns(r), runLeft(r))
	case outbox.RunInterrupted:
		return fmt.Sprintf("It stopped before its end, with %s done. %s", ofCampaigns(r), runLeft(r))
	default:
		if n.Failed > 0 {
			return fmt.Sprintf("%s could not be done. %s", ofRun(n.Failed, r), runLeft(r))
		}
		return fmt.Sprintf("It failed with %s done. %s", ofCampaigns(r), runLeft(r))
	}
}

func ofCampaigns(r outbox.Run) string {
	return num(r.Campaigns.Done) + " of " + count(r.Campaigns.Total, "campaign", "campaigns")
}

func ofRun(n int64, r outbox.Run) string {
	return num(n) + " of " + count(max(r.Campaigns.Total, r.Campaigns.Done), "campaign", "campaigns")
}

func runDoing(kind outbox.RunKind) string {
	switch kind {
	case outbox.RunVerify:
		return "Folds the journal and compares it with the live rows"
	case outbox.RunRebuild:
		return "Folds the journal and puts the rows it makes in the place of the live ones"
	default:
		return "Gives unapplied events their rows back and brings up what was set aside"
	}
}

// runLeft says what became of campaigns that were not done.
func runLeft(r outbox.Run) string {
	switch r.Kind {
	case outbox.RunVerify:
		return "A verify changes no rows."
	case outbox.RunRebuild:
		return "Campaigns that were not done keep the rows they had, and so do projections that failed; the others of a failed campaign may have been rebuilt."
	default:
		return "Campaigns that were not done are as they were."
	}
}

func runOutcome(r outbox.Run) string {
	n, total := r.Counts, count(r.Campaigns.Done, "campaign", "campaigns")
	switch {
	case r.Campaigns.Done == 0:
		return "There was no campaign in its scope."
	case r.Kind == outbox.RunReplay:
		return "Brought level: " + total + "."
	case r.Kind == outbox.RunRebuild && n.Drifted > 0 && r.CampaignID != "":
		return "The rows are those of the journal now; they were others before."
	case r.Kind == outbox.RunRebuild && n.Drifted == 0 && n.NotCompared > 0:
		return "Rebuilt. No rows changed. In " + ofRun(n.NotCompared, r) + " a paused projection lacks events."
	case r.Kind == outbox.RunRebuild && n.Drifted == 0:
		return "The rows of " + total + " are those of the journal, and were before."
	case r.Kind == outbox.RunRebuild:
		return fmt.Sprintf("The rows of %s are those of the journal now; in %s they were others before.", total, num(n.Drifted))
	case n.Drifted > 0:
		return fmt.Sprintf("In %s the live rows are not those of the journal.", ofRun(n.Drifted, r))
	case r.UntilSeq > 0:
		return fmt.Sprintf("Folded up to event %d.", r.UntilSeq)
	case n.NotCompared > 0 && r.CampaignID != "":
		return "Nothing differs, but not all events were compared: a projection lacks some."
	case n.NotCompared > 0:
		return fmt.Sprintf("The live rows of %s are those of the journal. %s not compared in full: projections lack events there.", count(n.Matched, "campaign", "campaigns"), count(n.NotCompared, "campaign was", "campaigns were"))
	case r.CampaignID != "":
		return "The live rows are those of the journal."
	default:
		return "The live rows of " + total + " are those of the journal."
	}
}

// runMeaning says what a kind of run does, before it does.
func runMeaning(kind outbox.RunKind) string {
	switch kind {
	case outbox.RunVerify:
		return "folds the journal into scratch tables and compares them with the live rows. Nothing changes."
	case outbox.RunRebuild:
		return "folds the journal and puts the rows it makes in the place of the live ones, campaign by campaign. Readers see the old rows or the new, never a half."
	default:
		return "gives unapplied events their rows back, due now, and brings projections that were set aside up from where they stand."
	}
}

// previewSentence says what a run would be about.
func previewSentence(n outbox.RunPreview) string {
	which := count(int64(len(n.Projections)), "projection", "projections")
	what := fmt.Sprintf("%s and %s", count(n.Campaigns, "campaign", "campaigns"), count(n.Events, "event", "events"))
	switch n.Kind {
	case outbox.RunVerify:
		return fmt.Sprintf("It folds %s of the journal, for %s, and compares the outcome with the live rows.", what, which)
	case outbox.RunRebuild:
		return fmt.Sprintf("It folds %s of the journal, for %s, and replaces the live rows.", what, which)
	default:
		return fmt.Sprintf("It looks through %s of the journal, for %s.", what, which)
	}
}

// previewNotes say what stays as it is meanwhile.
func previewNotes(n outbox.RunPreview) []string {
	notes := []string{"Events go on being applied to these campaigns meanwhile."}
	switch n.Kind {
	case outbox.RunVerify:
		return append(notes, "Live rows are not touched.")
	case outbox.RunRebuild:
		if n.Diverged > 0 {
			notes = append([]string{fmt.Sprintf("%s diverged: first make sure that the journal is the right one. It may be an older copy, or --journal-db may name the wrong one; then put the right one back and do not rebuild. Only if it is lost, rebuild: that removes what the projections have of the lost events, for good.",
				count(n.Diverged, "campaign has", "campaigns have"))}, notes...)
		}
		return append(notes, "Each campaign's rows change in one step: readers see the old ones or the new, never a half.",
			"It can be cancelled at any time: campaigns that are not done keep the rows they have.")
	default:
		return append(notes, "Projections that are level stay as they are.", "It can be cancelled at any time.")
	}
}
