package runs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestVerify_findsTheFirstWrongEventByKeysOfAnyType(t *testing.T) {
	types := []struct{ sqlite, postgres, value string }{
		{"date", "date", "2026-01-02"},
		{"timestamp", "timestamptz", "2026-01-02 03:04:05"},
		{"boolean", "boolean", "1"},
		{"numeric(10,2)", "numeric(10,2)", "1.50"},
		{"double precision", "double precision", "0.1"},
		{"real", "real", "0.1"},
		{"text", "uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
		{"blob", "bytea", "xyz"},
		{"text", "jsonb", `{"a":1}`},
		{"text", "char(9)", "ab"},
		{"text", "varchar", "ab"},
	}
	var definitions []string
	keys := map[string]string{}
	for i, tt := range types {
		keys[fmt.Sprint("k", i)] = tt.value
		definitions = append(definitions, fmt.Sprintf(`-- projection: keyed%[1]d
-- tables: keyed%[1]d

-- schema @sqlite
create table keyed%[1]d (campaign_id text not null, k %[2]s not null, n bigint not null, primary key (campaign_id, k));

-- schema @postgres
create table keyed%[1]d (campaign_id text not null, k %[3]s not null, n bigint not null, primary key (campaign_id, k));

-- on: opened
insert into keyed%[1]d (campaign_id, k, n) values (:campaign_id, :payload.k%[1]d, 0);

-- on: noted
update keyed%[1]d set n = :seq where campaign_id = :campaign_id;
`, i, tt.sqlite, tt.postgres))
	}
	payload := must.Get(json.Marshal(keys)).Or(t)
	b := enginetest.Own(t, definitions)
	b.Feed(enginetest.Noted("a"), enginetest.EventOf("a", "opened", string(payload)), enginetest.Noted("a"), enginetest.Noted("a"))
	for i := range types {
		b.ExecProjections(fmt.Sprintf(`update keyed%d set n = 3`, i))
	}
	run := b.RunToEnd(enginetest.Everything)
	must.Need(t, run.Status == replay.RunCompleted && run.Counts.Drifted == 1, "run %+v", run)
	for i, p := range b.RunResult(run, "a").Projections {
		c := p.Comparison
		must.Hold(t, c != nil && c.Changed == 1 && c.FirstSeq == 4, "%s: %+v, want a change from event 4 on", types[i], c)
	}
}

func TestVerify_showsLongValuesCutAndStillFindsTheirEvent(t *testing.T) {
	b := enginetest.Own(t, []string{`-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, body text not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq, :payload.body!);
`})
	long := strings.Repeat("é", 100_000)
	const texts = 22 // more than are shown
	for range texts {
		b.MustAppend(enginetest.EventOf("a", "noted", `{"body":"`+long+`"}`))
	}
	b.Drain().ExecProjections(`update texts set body = body || 'x' where seq > 1`)
	run := b.RunToEnd(enginetest.Everything)
	p := b.RunResult(run, "a").Projections[0]
	c := p.Comparison
	must.Hold(t, c.Changed == int64(texts-1) && c.FirstSeq == 2 && len(c.Samples) == 20, "%d changed from event %d on, %d shown", c.Changed, c.FirstSeq, len(c.Samples))
	text, err := json.Marshal(p)
	must.Hold(t, err == nil && len(text) <= 200_000, "the result is %d bytes (%v)", len(text), err)
	for _, s := range p.Comparison.Samples {
		f := s.Fields[0]
		must.Hold(t, string(f.Live) != string(f.Expected) && strings.Contains(string(f.Expected), "(200000 bytes, sha256 "), "live %s, fold %s", f.Live, f.Expected)
	}
}

// A verification of all campaigns that finds no difference shows that the rows are those of the loaded
// version, whichever version built them. One that finds a difference does not.
func TestVerify_ofEverythingShowsWhatTheRowsWereBuiltBy(t *testing.T) {
	b := enginetest.Own(t, []string{`-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq);
`})
	b.Feed(enginetest.EventOf("a", "noted", `{}`), enginetest.EventOf("b", "noted", `{}`))
	b.ExecProjections(`update projection_versions set built_version = ''`)
	b.ExecProjections(`update texts set seq = 7 where campaign_id = 'b'`)
	for _, verified := range []bool{false, true} {
		if verified {
			b.ExecProjections(`update texts set seq = 1 where campaign_id = 'b'`)
		}
		b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}})
		b.RunToEnd(enginetest.Everything)
		described, err := b.Runs.DescribeProjections(t.Context(), b.Infos)
		must.Hold(t, err == nil && described[0].BuiltByOtherVersion != verified, "verified: %t; described as %+v, %v", verified, described, err)
	}
}

// mustBeUnverifiable checks that a failed verification is shown wherever state is, with the run that tried it.
func mustBeUnverifiable(t *testing.T, b *enginetest.Engine, campaignID string, seq, run int64, reason string) {
	all, err := b.Verifications(t.Context(), campaignID)
	must.Hold(t, err == nil && len(all) == 1 && all[0].Verdict == "failed" && all[0].Seq == seq && all[0].RunID == run && strings.Contains(all[0].Error, reason), "verifications of %q are %+v (%v), want a failed one at event %d of run %d: %s", campaignID, all, err, seq, run, reason)
	c := b.MustCampaign(campaignID)
	why := c.Why(c.UpdatedAt, campaign.Surroundings{})
	must.Hold(t, c.State() == campaign.StateUnverifiable && strings.Contains(why, reason) && (run <= 0 || strings.Contains(why, fmt.Sprintf("(run %d)", run))), "campaign %q is %s: %s", campaignID, c.State(), why)
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
		b.Feed(append(enginetest.Notes("a", 3), enginetest.Notes("b", 2)...)...)
		kept := storetest.Column[string](t, b.JournalDB, `select payload from events where campaign_id = 'a' and seq = 2`)[0]
		b.Tamper(tt.change)
		b = b.Beside() // a process that knows nothing of what is gone, which would be a journal that went back
		run := b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, All: true})
		must.Equal(t, run.Status, replay.RunFailed, "run", run.ID, "is")
		mustBeUnverifiable(t, b, "a", tt.seq, run.ID, tt.reason)
		must.Equal(t, b.MustCampaign("b").State(), campaign.StateCurrent, "campaign b")
		must.Equal(t, must.Get(b.Summary(t.Context())).Or(t).Campaigns.Unverifiable, 1, "the summary counts", ")")
		step := b.RunWorker.VerifyNext()
		for range 2 {
			must.Get(step(t.Context())).Or(t)
		}
		mustBeUnverifiable(t, b, "a", tt.seq, 0, tt.reason)
		if !strings.Contains(tt.change, "update") {
			continue
		}
		b.Tamper(`update events set payload = '` + kept + `' where campaign_id = 'a' and seq = 2`)
		b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}})
		must.Equal(t, b.MustCampaign("a").State(), campaign.StateCurrent, "after a verify that could be made campaign a")
	}
}

func TestVerify_namesTheFirstEventThatFails(t *testing.T) {
	good := enginetest.Own(t, []string{enginetest.Accounts, openedGate})
	good.Feed(enginetest.Opened("a", 10), enginetest.Noted("a"), enginetest.Spent("a", 3))
	b := enginetest.OpenPair(t, good.Pair, enginetest.Define(t, strings.ReplaceAll(enginetest.Accounts, ":payload.amount!", ":payload.price!"), gate))
	run := b.RunToEnd(enginetest.Everything)
	result := b.RunResult(run, "a")
	must.Hold(t, strings.HasPrefix(result.Error, "event 2 cannot be replayed: projection gate"), "the result says %q", result.Error)
	c := b.MustCampaign("a")
	must.Hold(t, c.Unverifiable == 2 && c.Unverified.Projection == "gate", "of %d projections the campaign names %+v", c.Unverifiable, c.Unverified)
	b.Tamper(`update verifications set verdict = 'drift' where projection = 'gate'`)
	sum, err := b.Summary(t.Context())
	must.Hold(t, err == nil && sum.Campaigns.Drifted == 1 && sum.Campaigns.Unverifiable == 1 && sum.Campaigns.Mismatched == 1, "one campaign that drifted and is unverifiable is counted as %+v (%v)", sum.Campaigns, err)
}

// An event refused by one projection during a replay does not affect the others' verification. A campaign that kept changing can still be verified.
func TestVerify_thatFailsForOneProjectionLeavesAVerificationOfThatOne(t *testing.T) {
	t.Parallel()
	run := replay.Run{Kind: replay.RunVerify, Projections: []string{"trail", "ledger"}}
	result := replay.RunResult{CampaignID: "a", Outcome: replay.OutcomeFailed, Seq: 2, Error: "event 2 cannot be replayed: no seat", Projections: []replay.ProjectionResult{
		{Projection: "trail", Error: "no seat", ErrorSeq: 2, Seq: 1}, {Projection: "ledger", Verdict: campaign.VerdictMatch, Seq: 2}}}
	want := []campaign.Verification{{CampaignID: "a", Projection: "trail", Seq: 2, Verdict: campaign.VerdictFailed, Error: result.Error}, {CampaignID: "a", Projection: "ledger", Seq: 2, Verdict: campaign.VerdictMatch}}
	must.Same(t, result.Verifications(run), want, "verifications")
	gaveUp := replay.RunResult{CampaignID: "a", Outcome: replay.OutcomeFailed, Seq: 3, Error: "the campaign keeps changing; gave up after 5 tries"}
	must.Equal(t, len(gaveUp.Verifications(run)), 0, "after it gave up")
}

// A paused projection does not advance, and does not hide that another's rows were wrong.
func TestRebuild_saysThatAPausedProjectionLacksEvents(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Ledger})
	b.Feed(enginetest.Opened("a", 10), enginetest.Noted("a")).PauseProjection("ledger", "a").Feed(enginetest.Noted("a"))
	rebuild := replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}}
	run := b.RunToEnd(rebuild)
	must.Hold(t, run.Verdict == "" && run.Counts.NotCompared == 1 && run.Status == replay.RunCompleted, "the run says %q, %+v", run.Verdict, run.Counts)
	result := b.RunResult(run, "a")
	left := result.NotCompared()
	must.Hold(t, len(left) == 1 && left[0].Projection == "ledger" && left[0].FromSeq == 3 && left[0].UntilSeq == 3, "not compared are %+v", left)
	b.ExecProjections(`delete from trail where seq = 1`)
	run = b.RunToEnd(rebuild)
	must.Hold(t, run.Verdict == campaign.VerdictDrift && run.Counts.Drifted == 1, "the run says %q, %+v", run.Verdict, run.Counts)
}

func TestVerify_comparesNoProjectionThatIsBehind(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")})
	b.Feed(enginetest.Notes("a b", 3)...).PauseProjection("track", "a").Feed(enginetest.Notes("a", 5)...)
	verify := b.StartRun(replay.RunRequest{Kind: replay.RunVerify, All: true})
	b.ResumeProjection("track", "a")
	b.StepRuns()

	run := b.MustRun(verify.ID)
	must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == "" && run.Counts == (replay.RunCounts{Matched: 1, NotCompared: 1}) && run.Campaigns.Done == 2, "run %+v", run)
	result := b.RunResult(run, "a")
	left := result.NotCompared()
	must.Hold(t, result.Error == "" && slices.Equal(left, []campaign.NotCompared{{CampaignID: "a", Projection: "track", State: campaign.CursorBehind, FromSeq: 1, UntilSeq: 8}}), "result %+v, not compared are %v", result, left)
	for _, p := range result.Projections {
		behind := p.Projection == "track"
		must.Hold(t, (p.Verdict == campaign.VerdictMatch) != behind && p.Error == "" && (!behind || p.Seq == 3), "%+v", p)
	}
	known, err := b.Verifications(t.Context(), "a")
	must.Hold(t, err == nil && !slices.ContainsFunc(known, func(v campaign.Verification) bool { return v.Projection == "track" }), "verifications %+v, %v", known, err)
	b.RunToEnd(enginetest.Everything)
	run = runsOf(t, b, replay.RunVerify)[1]
	must.Hold(t, run.Verdict == campaign.VerdictMatch && run.Counts.Matched == 2, "run %+v once the replay is done, want two matches", run)
}

func TestVerify_tellsWhatAPausedProjectionLacks(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")})
	b.Feed(enginetest.Notes("a b", 3)...).PauseProjection("track", "")
	if run := b.RunToEnd(enginetest.Everything); run.Verdict != campaign.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v while nothing is lacking, want two matches", run)
	}
	b.Feed(enginetest.Notes("a", 2)...)
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == "" && run.Counts == (replay.RunCounts{Matched: 1, NotCompared: 1}), "run %+v", run)
	left := b.RunResult(run, "a").NotCompared()
	must.Hold(t, slices.Equal(left, []campaign.NotCompared{{CampaignID: "a", Projection: "track", State: campaign.CursorPaused, FromSeq: 4, UntilSeq: 5}}), "not compared are %v", left)
	b.ExecProjections(`update track set seq = 77 where campaign_id = 'a' and place = 2`)
	run = b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Verdict == campaign.VerdictDrift && run.Counts == (replay.RunCounts{Matched: 1, Drifted: 1}), "run %+v, want a drift among what it has", run)
	must.Equal(t, len(b.RunResult(run, "a").NotCompared()), 1, "beside a drift not compared")
}
