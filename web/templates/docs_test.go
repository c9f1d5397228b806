package templates

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestGuides_areHeadingsOfTheRunbook(t *testing.T) {
	t.Parallel()
	headings := map[Guide]bool{}
	for _, s := range docs.Named(docs.Operating).Sections {
		headings[Guide(s.Anchor)] = true
	}
	for _, g := range []Guide{GuideLag, GuideFailed, GuideDead, GuideCanary, GuideWorker, GuideDiverged, GuideWrong, GuideAside, GuideFile, GuideDisk, GuideUpgrade} {
		if !headings[g] {
			t.Errorf("the runbook has no heading for #%s", g)
		}
	}
	for _, kind := range outbox.FaultKinds {
		if !headings[Guide(kind.Guide())] {
			t.Errorf("the runbook has no heading for a fault of the kind %s", kind)
		}
	}
}

// For a problem the overview links to the guide for the worst one, and to none if all is well.
func TestOverviewGuide_isForTheWorst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	works := outbox.WorkerSummary{Running: true, LastSeen: &now}
	for _, c := range []struct {
		name string
		sum  outbox.Summary
		want Guide
	}{
		{"well", outbox.Summary{Worker: works}, ""},
		{"an operation ended", outbox.Summary{Worker: works, Operations: outbox.OperationCounts{Unacknowledged: 1}}, ""},
		{"full disk", outbox.Summary{Worker: works, Faults: []outbox.DatabaseFault{outbox.FullDisk("journal", now)}, Campaigns: outbox.CampaignCounts{Diverged: 1}}, GuideDisk},
		{"another journal", outbox.Summary{Worker: works, OtherJournal: true}, GuideDiverged},
		{"diverged and blocked", outbox.Summary{Worker: works, Campaigns: outbox.CampaignCounts{Diverged: 1, Blocked: 2}}, GuideDiverged},
		{"blocked and failed", outbox.Summary{Worker: works, Campaigns: outbox.CampaignCounts{Blocked: 2}, Counts: outbox.Counts{Failed: 3}}, GuideDead},
		{"nobody works", outbox.Summary{Campaigns: outbox.CampaignCounts{Lagging: 1}, Counts: outbox.Counts{Pending: 3}}, GuideWorker},
		{"nobody works, as the mode wants", outbox.Summary{Mode: outbox.ModeInline}, ""},
		{"inline, and nobody tries again", outbox.Summary{Mode: outbox.ModeInline, Counts: outbox.Counts{Failed: 3}}, GuideWorker},
		{"failed", outbox.Summary{Worker: works, Counts: outbox.Counts{Failed: 3}}, GuideLag},
		{"behind", outbox.Summary{Worker: works, Counts: outbox.Counts{Pending: 3}, Lag: outbox.Lag{Events: 3}}, GuideLag},
	} {
		if c.sum.Mode == "" {
			c.sum.Mode = outbox.ModeOutbox
		}
		if got := overviewGuide(c.sum, now); got != c.want {
			t.Errorf("%s: leads to %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCampaignGuide_followsTheState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	behind := outbox.Campaign{HighWaterSeq: 3, HeadSeq: 1, HeadStatus: outbox.Pending, HeadNextAttempt: now}
	for _, c := range []struct {
		name     string
		campaign outbox.Campaign
		worker   outbox.WorkerSummary
		want     Guide
	}{
		{"current", outbox.Campaign{}, outbox.WorkerSummary{}, ""},
		{"paused", outbox.Campaign{Paused: &outbox.Pause{}}, outbox.WorkerSummary{}, ""},
		{"diverged", outbox.Campaign{Diverged: "so"}, outbox.WorkerSummary{}, GuideDiverged},
		{"dead", outbox.Campaign{HeadStatus: outbox.Dead}, outbox.WorkerSummary{}, GuideDead},
		{"failed", outbox.Campaign{HeadStatus: outbox.Failed}, outbox.WorkerSummary{}, GuideFailed},
		{"behind", behind, outbox.WorkerSummary{Running: true}, GuideLag},
		{"nobody works", behind, outbox.WorkerSummary{}, GuideWorker},
	} {
		e := c.campaign.Explain(now, outbox.Surroundings{Mode: outbox.ModeOutbox, Worker: &c.worker})
		if got := campaignGuide(c.campaign, e); got != c.want {
			t.Errorf("%s (%s): leads to %q, want %q", c.name, e.Why, got, c.want)
		}
	}
}
