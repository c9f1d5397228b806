package runs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestVerify_findsTheFirstWrongEventByKeysOfAnyType(t *testing.T) {
	t.Parallel()
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
	b := enginetest.Open(t, enginetest.Define(t, definitions...))
	b.MustAppend(t, enginetest.Noted("a"), enginetest.EventOf("a", "opened", string(payload)), enginetest.Noted("a"), enginetest.Noted("a"))
	b.Drain(t)
	for i := range types {
		b.Meddle(t, fmt.Sprintf(`update keyed%d set n = 3`, i))
	}
	run := b.MustRun(t, enginetest.Everything)
	if run.Status != outbox.RunCompleted || run.Counts.Drifted != 1 {
		t.Fatalf("run %+v", run)
	}
	for i, p := range b.RunResult(t, run, "a").Projections {
		if c := p.Comparison; c == nil || c.Changed != 1 || c.FirstSeq != 4 {
			t.Errorf("%s: %+v, want a change from event 4 on", types[i], c)
		}
	}
}

func TestVerify_showsLongValuesCutAndStillFindsTheirEvent(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, `-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, body text not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq, :payload.body!);
`))
	long := strings.Repeat("é", 100_000)
	texts := 40
	if testing.Short() {
		texts = 22 // still more than are shown
	}
	for range texts {
		b.MustAppend(t, enginetest.EventOf("a", "noted", `{"body":"`+long+`"}`))
	}
	b.Drain(t)
	b.Meddle(t, `update texts set body = body || 'x' where seq > 1`)
	run := b.MustRun(t, enginetest.Everything)
	p := b.RunResult(t, run, "a").Projections[0]
	if c := p.Comparison; c.Changed != int64(texts-1) || c.FirstSeq != 2 || len(c.Samples) != 20 {
		t.Errorf("%d changed from event %d on, %d shown", c.Changed, c.FirstSeq, len(c.Samples))
	}
	text, err := json.Marshal(p)
	if err != nil || len(text) > 200_000 {
		t.Errorf("the result is %d bytes (%v)", len(text), err)
	}
	for _, s := range p.Comparison.Samples {
		if f := s.Fields[0]; string(f.Live) == string(f.Expected) || !strings.Contains(string(f.Expected), "(200000 bytes, sha256 ") {
			t.Errorf("live %s, fold %s", f.Live, f.Expected)
		}
	}
}

// A verification of all campaigns that finds no difference shows that the rows are those of the loaded
// version, whichever version built them. One that finds a difference does not.
func TestVerify_ofEverythingShowsWhatTheRowsWereBuiltBy(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, `-- projection: texts
-- tables: texts
-- schema
create table texts (campaign_id text not null, seq bigint not null, primary key (campaign_id, seq));
-- on: noted
insert into texts values (:campaign_id, :seq);
`))
	b.MustAppend(t, enginetest.EventOf("a", "noted", `{}`), enginetest.EventOf("b", "noted", `{}`))
	b.Drain(t)
	b.Meddle(t, `update projection_versions set built_version = ''`)
	b.Meddle(t, `update texts set seq = 7 where campaign_id = 'b'`)
	for _, verified := range []bool{false, true} {
		if verified {
			b.Meddle(t, `update texts set seq = 1 where campaign_id = 'b'`)
		}
		b.MustRun(t, outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a"}})
		b.MustRun(t, enginetest.Everything)
		described, err := b.Runs.DescribeProjections(t.Context(), b.Infos())
		if err != nil || described[0].BuiltByOtherVersion == verified {
			t.Errorf("verified: %t; described as %+v, %v", verified, described, err)
		}
	}
}

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
			must.Get(step(t.Context())).Or(t)
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

// An event refused by one projection during a replay does not affect the others' verification. A campaign that
// kept changing can still be verified.
func TestVerify_thatFailsForOneProjectionLeavesAVerificationOfThatOne(t *testing.T) {
	t.Parallel()
	run := outbox.Run{Kind: outbox.RunVerify, Projections: []string{"trail", "ledger"}}
	result := outbox.RunResult{CampaignID: "a", Outcome: outbox.OutcomeFailed, Seq: 2, Error: "event 2 cannot be replayed: no seat", Projections: []outbox.ProjectionResult{
		{Projection: "trail", Error: "no seat", ErrorSeq: 2, Seq: 1}, {Projection: "ledger", Verdict: outbox.VerdictMatch, Seq: 2}}}
	want := []outbox.Verification{{CampaignID: "a", Projection: "trail", Seq: 2, Verdict: outbox.VerdictFailed, Error: result.Error}, {CampaignID: "a", Projection: "ledger", Seq: 2, Verdict: outbox.VerdictMatch}}
	if got := result.Verifications(run); !slices.Equal(got, want) {
		t.Errorf("verifications %+v, want %+v", got, want)
	}
	gaveUp := outbox.RunResult{CampaignID: "a", Outcome: outbox.OutcomeFailed, Seq: 3, Error: "the campaign keeps changing; gave up after 5 tries"}
	if got := gaveUp.Verifications(run); len(got) != 0 {
		t.Errorf("after it gave up: %+v", got)
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

func TestVerify_comparesNoProjectionThatIsBehind(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	b.MustPause(t, "track", "a")
	b.MustAppend(t, enginetest.Notes("a", 5)...)
	b.Drain(t)
	verify := b.MustStartRun(t, outbox.RunRequest{Kind: outbox.RunVerify, All: true})
	b.MustResume(t, "track", "a")
	b.StepRuns(t)

	run := b.MustReadRun(t, verify.ID)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) || run.Campaigns.Done != 2 {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	result := b.RunResult(t, run, "a")
	if left := result.NotCompared(); result.Error != "" || !slices.Equal(left, []outbox.NotCompared{{CampaignID: "a", Projection: "track", State: outbox.CursorBehind, FromSeq: 1, UntilSeq: 8}}) {
		t.Errorf("result %+v, not compared are %v", result, left)
	}
	for _, p := range result.Projections {
		behind := p.Projection == "track"
		if (p.Verdict == outbox.VerdictMatch) == behind || p.Error != "" || behind && p.Seq != 3 {
			t.Errorf("%+v", p)
		}
	}
	if known, err := b.Verifications(t.Context(), "a"); err != nil || slices.ContainsFunc(known, func(v outbox.Verification) bool { return v.Projection == "track" }) {
		t.Errorf("verifications %+v, %v", known, err)
	}
	b.MustRun(t, enginetest.Everything)
	if run := runsOf(t, b, outbox.RunVerify)[1]; run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v once the replay is done, want two matches", run)
	}
}

// The applied events of a paused projection are compared, and the missing ones reported.
func TestVerify_tellsWhatAPausedProjectionLacks(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.Trail, "trail", "track")))
	b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
	b.Drain(t)
	b.MustPause(t, "track", "")
	if run := b.MustRun(t, enginetest.Everything); run.Verdict != outbox.VerdictMatch || run.Counts.Matched != 2 {
		t.Errorf("run %+v while nothing is lacking, want two matches", run)
	}
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	b.Drain(t)
	run := b.MustRun(t, enginetest.Everything)
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Counts != (outbox.RunCounts{Matched: 1, NotCompared: 1}) {
		t.Errorf("run %+v, want one match and one that is no agreement", run)
	}
	if left := b.RunResult(t, run, "a").NotCompared(); !slices.Equal(left, []outbox.NotCompared{{CampaignID: "a", Projection: "track", State: outbox.CursorPaused, FromSeq: 4, UntilSeq: 5}}) {
		t.Errorf("not compared are %v", left)
	}
	b.Meddle(t, `update track set seq = 77 where campaign_id = 'a' and place = 2`)
	run = b.MustRun(t, enginetest.Everything)
	if run.Verdict != outbox.VerdictDrift || run.Counts != (outbox.RunCounts{Matched: 1, Drifted: 1}) {
		t.Errorf("run %+v, want a drift among what it has", run)
	}
	if left := b.RunResult(t, run, "a").NotCompared(); len(left) != 1 {
		t.Errorf("beside a drift not compared are %v", left)
	}
}
