package runs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// mustBeUnverifiable checks that a failed verification is shown wherever state is, with the run
// that tried it.
func mustBeUnverifiable(t *testing.T, b *enginetest.Engine, campaign string, seq, run int64, reason string) {
	t.Helper()
	all, err := b.Verifications(t.Context(), campaign)
	if err != nil || len(all) != 1 || all[0].Verdict != "failed" || all[0].Seq != seq || all[0].RunID != run || !strings.Contains(all[0].Error, reason) {
		t.Errorf("verifications of %q are %+v (%v), want a failed one at event %d of run %d: %s", campaign, all, err, seq, run, reason)
	}
	c := b.MustCampaign(t, campaign)
	why := c.Why(c.UpdatedAt, outbox.Surroundings{})
	if c.State() != outbox.StateUnverifiable || !strings.Contains(why, reason) || run > 0 && !strings.Contains(why, fmt.Sprintf("(run %d)", run)) {
		t.Errorf("campaign %q is %s: %s", campaign, c.State(), why)
	}
}

func TestVerify_thatFailsLeavesAVerification(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		change string
		seq    int64
		reason string
	}{
		{`update events set payload = '{"amount":1000}' where campaign_id = 'a' and seq = 2`, 2, "event 2 has changed since it was appended"},
		{`delete from events where campaign_id = 'a' and seq = 2`, 2, "event 2 is missing from the journal"},
		{`delete from events where campaign_id = 'a' and seq = 3`, 3, "event 3 is missing from the journal"},
	} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail))
		b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...)...)
		b.Drain(t)
		kept := enginetest.Column[string](t, b.JournalDB, `select payload from events where campaign_id = 'a' and seq = 2`)[0]
		b.Tamper(t, tt.change)
		b = b.Beside(t) // a process that knows nothing of what is gone, which would be a journal that went back
		run := b.MustRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
		if run.Status != outbox.RunFailed {
			t.Errorf("run %d is %s", run.ID, run.Status)
		}
		mustBeUnverifiable(t, b, "a", tt.seq, run.ID, tt.reason)
		if c := b.MustCampaign(t, "b"); c.State() != outbox.StateCurrent {
			t.Errorf("campaign b is %s", c.State())
		}
		if sum, err := b.Summary(t.Context()); err != nil || sum.Campaigns.Unverifiable != 1 {
			t.Errorf("the summary counts %d (%v)", sum.Campaigns.Unverifiable, err)
		}
		step := b.RunWorker.VerifyNext()
		for range 2 {
			if _, err := step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mustBeUnverifiable(t, b, "a", tt.seq, 0, tt.reason)
		if !strings.Contains(tt.change, "update") {
			continue
		}
		b.Tamper(t, `update events set payload = '`+kept+`' where campaign_id = 'a' and seq = 2`)
		b.MustRun(t, outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a"}})
		if c := b.MustCampaign(t, "a"); c.State() != outbox.StateCurrent {
			t.Errorf("after a verify that could be made campaign a is %s", c.State())
		}
	}
}

// Where several projections fail, the first event at which one does is named, in whatever order they
// are loaded.
func TestVerify_namesTheFirstEventThatFails(t *testing.T) {
	t.Parallel()
	good := enginetest.Open(t, enginetest.Define(t, enginetest.Accounts, openedGate))
	good.MustAppend(t, enginetest.Opened("a", 10), enginetest.Noted("a"), enginetest.Spent("a", 3))
	good.Drain(t)
	b := enginetest.OpenPair(t, good.Pair, enginetest.Define(t, strings.ReplaceAll(enginetest.Accounts, ":payload.amount!", ":payload.price!"), gate))
	run := b.MustRun(t, enginetest.Everything)
	if result := b.RunResult(t, run, "a"); !strings.HasPrefix(result.Error, "event 2 cannot be replayed: projection gate") {
		t.Errorf("the result says %q", result.Error)
	}
	if c := b.MustCampaign(t, "a"); c.Unverifiable != 2 || c.Unverified.Projection != "gate" {
		t.Errorf("of %d projections the campaign names %+v", c.Unverifiable, c.Unverified)
	}
	b.Tamper(t, `update verifications set verdict = 'drift' where projection = 'gate'`)
	if sum, err := b.Summary(t.Context()); err != nil || sum.Campaigns.Drifted != 1 || sum.Campaigns.Unverifiable != 1 || sum.Campaigns.Mismatched != 1 {
		t.Errorf("one campaign that drifted and is unverifiable is counted as %+v (%v)", sum.Campaigns, err)
	}
}

// An event refused by one projection during a replay does not affect the others' verification.
func TestVerify_thatFailsForOneProjectionLeavesAVerificationOfThatOne(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Ledger))
	b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Noted("a"))
	b.Drain(t)
	run := b.MustRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
	result := b.RunResult(t, run, "a")
	i := slices.IndexFunc(result.Projections, func(p outbox.ProjectionResult) bool { return p.Projection == "trail" })
	result.Outcome, result.Error = outbox.OutcomeFailed, "event 2 cannot be replayed: no seat"
	result.Projections[i].Error, result.Projections[i].ErrorSeq, result.Projections[i].Seq = "no seat", 2, 1
	all := result.Verifications(run)
	for _, v := range all {
		want := outbox.VerdictMatch
		if v.Projection == "trail" {
			want = "failed"
		}
		if v.Verdict != want || v.Verdict == "failed" && (v.Seq != 2 || v.Error != "event 2 cannot be replayed: no seat") {
			t.Errorf("%+v", v)
		}
	}
	if len(all) != 2 {
		t.Errorf("%d verifications", len(all))
	}
}

// A campaign that got many events meanwhile can still be verified.
func TestVerify_thatGaveUpOnACampaignThatKeepsChangingLeavesNothing(t *testing.T) {
	t.Parallel()
	result := outbox.RunResult{CampaignID: "a", Outcome: outbox.OutcomeFailed, Seq: 3, Error: "the campaign keeps changing; gave up after 5 tries"}
	if all := result.Verifications(outbox.Run{Kind: outbox.RunVerify, Projections: []string{"trail"}}); len(all) != 0 {
		t.Errorf("verifications are %+v", all)
	}
}

// A paused projection does not advance, and does not hide that another's rows were wrong.
func TestRebuild_saysThatAPausedProjectionLacksEvents(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Ledger))
	b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Noted("a"))
	b.Drain(t)
	b.MustPause(t, "ledger", "a")
	b.MustAppend(t, enginetest.Noted("a"))
	b.Drain(t)
	rebuild := outbox.RunRequest{Kind: outbox.RunRebuild, Campaigns: []string{"a"}}
	run := b.MustRun(t, rebuild)
	if run.Verdict != "" || run.Counts.NotCompared != 1 || run.Status != outbox.RunCompleted {
		t.Errorf("the run says %q, %+v", run.Verdict, run.Counts)
	}
	result := b.RunResult(t, run, "a")
	if left := result.NotCompared(); len(left) != 1 || left[0].Projection != "ledger" || left[0].FromSeq != 3 || left[0].UntilSeq != 3 {
		t.Errorf("not compared are %+v", left)
	}
	b.Meddle(t, `delete from trail where seq = 1`)
	if run := b.MustRun(t, rebuild); run.Verdict != outbox.VerdictDrift || run.Counts.Drifted != 1 {
		t.Errorf("the run says %q, %+v", run.Verdict, run.Counts)
	}
}
