package maintenance_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// How a damage is detected.
const (
	byCheck  = "check"    // check finds it and nothing repairs it
	byStart  = "start"    // check finds it, and a start or a repair of gaps fixes it
	byWorker = "worker"   // the next wave fixes it; nothing goes wrong before
	refusedX = "database" // the database refuses it
	byNobody = "nobody"   // there is nothing to compare it with
)

// damage is a change that a person with access to the databases can make.
type damage struct {
	what      string
	harm      string // a statement on the journal, or on the projections with a leading colon
	by        string
	invariant campaign.Invariant // the one that check reports
	seq       int64
}

// damages are all the kinds we could think of. Campaign a has events 1 to 3 applied and 4 to 6
// waiting, d has a dead head and one event behind it, and r a failed head.
var damages = []damage{
	// Events. They can be changed only after the triggers were dropped.
	{"an event's content", `update events set payload = '{}' where campaign_id = 'a' and seq = 2`, byCheck, "journal_hash", 2},
	{"an event's type", `update events set event_type = 'x' where campaign_id = 'a' and seq = 2`, byCheck, "journal_hash", 2},
	{"an event's id", `update events set event_id = 'x' where campaign_id = 'a' and seq = 2`, byCheck, "journal_hash", 2},
	{"when an event occurred", `update events set occurred_at = 1 where campaign_id = 'a' and seq = 2`, byCheck, "journal_hash", 2},
	{"an event's hash", `update events set event_hash = 'x' where campaign_id = 'a' and seq = 2`, byCheck, "journal_chain", 2},
	{"an event's chain hash", `update events set chain_hash = 'x' where campaign_id = 'a' and seq = 2`, byCheck, "journal_chain", 2},
	{"an event is gone", `delete from events where campaign_id = 'a' and seq = 2`, byCheck, "journal_dense", 3},
	{"the last event is gone", `delete from events where campaign_id = 'a' and seq = 6`, byCheck, "campaign_row", 6},
	{"an event's position", `update events set position = 9999 where campaign_id = 'a' and seq = 2`, byCheck, "journal_position", 3},
	{"when a waiting event was recorded", `update events set recorded_at = recorded_at + 1 where campaign_id = 'a' and seq = 5`, byCheck, "row_event", 5},
	{"when an applied event was recorded, by more than an hour", `update events set recorded_at = 1 where campaign_id = 'a' and seq = 2`, byCheck, "recorded_at", 2},
	{"when the first event was recorded", `update events set recorded_at = 1 where campaign_id = 'a' and seq = 1`, byCheck, "recorded_at", 1},
	{"when the last event was recorded, in the future", `update events set recorded_at = 9000000000000000 where campaign_id = 'r' and seq = 1`, byCheck, "recorded_at", 1},
	{"when an applied event was recorded, by less than an hour", `update events set recorded_at = recorded_at - 1 where campaign_id = 'a' and seq = 2`, byNobody, "", 0},
	{"an event is changed with the triggers in place", `update events set recorded_at = 1`, refusedX, "", 0},
	{"an event is deleted with the triggers in place", `delete from events`, refusedX, "", 0},
	{"an event is there twice", `insert into events select * from events where campaign_id = 'a' and seq = 2`, refusedX, "", 0},

	// Rows.
	{"a row is gone", `delete from projection_apply_outbox where campaign_id = 'a' and seq = 5`, byCheck, "event_owed", 5},
	{"the last row is gone", `delete from projection_apply_outbox where campaign_id = 'a' and seq = 6`, byCheck, "event_owed", 6},
	{"a row of an applied event", `insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at) select campaign_id, seq, event_type, recorded_at, recorded_at, recorded_at from events where campaign_id = 'a' and seq = 3`, byCheck, "applied_and_owed", 3},
	{"a row of no event", `insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at) values ('a', 7, 'counted', 1, 1, 1)`, byCheck, "row_event", 7},
	{"rows of a campaign that is unknown", `insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at) values ('b', 1, 'counted', 1, 1, 1)`, byCheck, "row_event", 0},
	{"a row's event type", `update projection_apply_outbox set event_type = 'x' where campaign_id = 'a' and seq = 5`, byCheck, "row_event", 5},
	{"when a row was enqueued", `update projection_apply_outbox set enqueued_at = 1 where campaign_id = 'a' and seq = 5`, byCheck, "row_event", 5},
	{"a status that there is not", `update projection_apply_outbox set status = 'odd' where campaign_id = 'a' and seq = 5`, byCheck, "row_state", 5},
	{"a dead row behind a pending head", `update projection_apply_outbox set status = 'dead' where campaign_id = 'a' and seq = 5`, byCheck, "behind_head", 5},
	{"a dead row with attempts behind a pending head", `update projection_apply_outbox set status = 'dead', attempt_count = 8 where campaign_id = 'a' and seq = 5`, byCheck, "behind_head", 5},
	{"a dead row that was never tried", `update projection_apply_outbox set attempt_count = 0 where campaign_id = 'd' and seq = 1`, byCheck, "row_state", 1},
	{"attempts below nothing", `update projection_apply_outbox set attempt_count = -1 where campaign_id = 'a' and seq = 5`, byCheck, "row_state", 5},
	{"a row that is processing and nobody works on it", `update projection_apply_outbox set status = 'processing' where campaign_id = 'a' and seq = 4`, byCheck, "behind_head", 4},
	{"when the head is due", `update projection_apply_outbox set next_attempt_at = next_attempt_at + 1 where campaign_id = 'r' and seq = 1`, byCheck, "campaign_row", 1},
	{"a claim's epoch", `update projection_apply_outbox set claim_epoch = 99 where campaign_id = 'a' and seq = 5`, byCheck, "epoch", 5},
	{"a row that is processing behind another", `update projection_apply_outbox set status = 'processing' where campaign_id = 'a' and seq = 5; update campaigns set lease_owner = 'w', lease_expires_at = 1 where campaign_id = 'a'`, byCheck, "behind_head", 5},

	// Campaigns' rows.
	{"a campaign's row is gone", `delete from campaigns where campaign_id = 'a'`, byStart, "campaign_row", 0},
	{"the row of a campaign of which nothing is applied is gone", `delete from campaigns where campaign_id = 'r'`, byStart, "campaign_row", 0},
	{"counts", `update campaigns set pending = pending + 1, dead = dead - 1 where campaign_id = 'a'`, byCheck, "campaign_row", 0},
	{"the head", `update campaigns set head_seq = 5 where campaign_id = 'a'`, byCheck, "campaign_row", 4},
	{"the head's status", `update campaigns set head_status = 'dead' where campaign_id = 'a'`, byCheck, "campaign_row", 4},
	{"the head's time", `update campaigns set head_next_attempt_at = 1 where campaign_id = 'r'`, byCheck, "campaign_row", 1},
	{"the oldest's time", `update campaigns set oldest_enqueued_at = 1 where campaign_id = 'a'`, byCheck, "campaign_row", 4},
	{"never due", `update campaigns set due_at = null where campaign_id = 'a'`, byCheck, "campaign_row", 4},
	{"due too late", `update campaigns set due_at = due_at + 1 where campaign_id = 'a'`, byCheck, "campaign_row", 4},
	{"due too early", `update campaigns set due_at = 1 where campaign_id = 'r'`, byCheck, "campaign_row", 1},
	{"due although its head is dead", `update campaigns set due_at = 1 where campaign_id = 'd'`, byCheck, "campaign_row", 1},
	{"the journal's end, too high", `update campaigns set high_water_seq = 7 where campaign_id = 'a'`, byCheck, "campaign_row", 7},
	{"the journal's end, too low", `update campaigns set high_water_seq = 5 where campaign_id = 'a'`, byCheck, "campaign_row", 5},
	{"the end's chain hash", `update campaigns set chain_hash = 'x' where campaign_id = 'a'`, byCheck, "campaign_row", 6},
	{"what is applied, too high", `update campaigns set applied_seq = 5 where campaign_id = 'a'`, byStart, "campaign_row", 3},
	{"what is applied, too low", `update campaigns set applied_seq = 1 where campaign_id = 'a'`, byStart, "campaign_row", 3},
	{"the number of skips", `update campaigns set skips = 1 where campaign_id = 'a'`, byStart, "campaign_row", 0},
	{"a lease's epoch, below the fence", `update campaigns set lease_epoch = 0 where campaign_id = 'a'`, byStart, "epoch", 0},
	{"a lease's epoch, below nothing", `update campaigns set lease_epoch = -5 where campaign_id = 'a'`, byStart, "epoch", 0},
	{"a lease's epoch, raised", `update campaigns set lease_epoch = 99 where campaign_id = 'a'`, byWorker, "", 0},
	{"a lease of nobody that ran out", `update campaigns set lease_owner = 'nobody', lease_expires_at = 1, due_at = 1 where campaign_id = 'a'`, byWorker, "", 0},

	// Watermarks and fences.
	{"the watermark, lowered", `:update projection_watermarks set applied_seq = 2 where campaign_id = 'a'`, byCheck, "watermark_hash", 2},
	{"the watermark, raised", `:update projection_watermarks set applied_seq = 4 where campaign_id = 'a'`, byCheck, "watermark_hash", 4},
	{"the watermark, above the journal", `:update projection_watermarks set applied_seq = 7 where campaign_id = 'a'`, byCheck, "watermark_bound", 7},
	{"the watermark's hash", `:update projection_watermarks set applied_hash = 'x' where campaign_id = 'a'`, byCheck, "watermark_hash", 3},
	{"the watermark of another campaign", `:update projection_watermarks set campaign_id = 'b' where campaign_id = 'a'`, byCheck, "watermark_bound", 0},
	{"a watermark is gone", `:delete from projection_watermarks where campaign_id = 'a'`, byStart, "event_owed", 1},
	{"the fence, raised", `:update projection_watermarks set fence_epoch = 99 where campaign_id = 'a'`, byStart, "epoch", 0},
	{"the fence, lowered to nothing", `:update projection_watermarks set fence_epoch = 0 where campaign_id = 'a'`, byWorker, "epoch", 0},
	{"how many are set aside", `:update projection_watermarks set set_aside = 1 where campaign_id = 'a'`, byCheck, "set_aside", 3},
	{"how many failures are open", `:update projection_watermarks set open_failures = 1 where campaign_id = 'a'`, byCheck, "open_failures", 3},
	{"what was passed over", `:insert into watermark_skips (campaign_id, seq, skip_id, at) values ('a', 2, 7, 1)`, byCheck, "skips", 2},

	// Cursors, failures, tags, audit.
	{"a cursor that is set aside", `:insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('a', 'p', 1, 'quarantined', 1)`, byCheck, "set_aside", 3},
	{"a cursor above the watermark", `:insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('a', 'p', 4, 'live', 1)`, byCheck, "cursor", 4},
	{"a state that there is not", `:insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('a', 'p', 1, 'odd', 1)`, byCheck, "cursor", 1},
	{"a cursor of a campaign that is unknown", `:insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('b', 'p', 0, 'live', 1)`, byCheck, "unknown_campaign", 0},
	{"a failure of a campaign that is unknown", `:insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at) values ('b', 'p', 1, 'x', 'x', 'x', 1, 1, 1)`, byCheck, "unknown_campaign", 0},
	{"a tag is gone", `delete from event_tags where name = 'seat'`, byCheck, "tag_index", 3},
	{"a tag's event type", `update event_tags set event_type = 'x' where name = 'seat'`, byCheck, "tag_index", 3},
	{"a tag's value", `update event_tags set value = 'x' where name = 'seat'`, byCheck, "tag_index", 3},
	{"a tag that its event does not have", `insert into event_tags (name, value, position, event_type) select 'row', '7', position, event_type from events where campaign_id = 'a' and seq = 2`, byCheck, "tag_index", 2},
	{"a tag of another event", `update event_tags set position = position - 1 where name = 'show'`, byCheck, "tag_index", 2},
	{"a tag of no event", `insert into event_tags (name, value, position, event_type) values ('row', '7', 99, 'x')`, byCheck, "tag_index", 0},
	{"an audit record is changed", `update audit_log set actor = 'x'`, refusedX, "", 0},
	{"an audit record is deleted", `delete from audit_log`, refusedX, "", 0},
}

func unharmed(tb testing.TB) *fixture {
	f := enginetest.OpenRooms(tb, storetest.MaxAttempts(2))
	f.AppendN("d", 2)
	for range 2 {
		f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 1), Failure: storetest.Failure("boom")})
		f.Clock.Advance(time.Hour)
	}
	f.AppendN("a", 2)
	f.MustAppend(storetest.Tagged("a", "counted", "seat", "1", "show", "x"))
	f.Drain()
	f.AppendN("r", 1)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 1), Failure: storetest.Failure("boom")})
	f.AppendN("a", 3)
	f.MustPause("r")
	f.Sound()
	return f
}

func harm(t *testing.T, f *fixture, d damage) {
	query, projections := strings.CutPrefix(d.harm, ":")
	if d.by == refusedX {
		_, err := f.JournalDB.Exec(query)
		must.Hold(t, err != nil, "the database let it happen")
		return
	}
	switch {
	case projections:
		f.ExecProjections(query)
	case strings.Contains(query, "events ") && !strings.HasPrefix(query, "insert"):
		f.Tamper(query)
	default:
		f.Exec(query)
	}
}

func violations(f *fixture) []campaign.Violation {
	return must.Get(f.Check(f.Ctx, storetest.Quiet)).Or(f.TB).Violations
}

func TestCheck_namesEveryDamageThatCanBeNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() && dbtest.Postgres() {
		t.Skip("one SQL text serves both")
	}
	made := unharmed(t)
	made.CloseNow()
	for _, d := range damages {
		t.Run(d.what, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			if !dbtest.Postgres() {
				pair := dbtest.Files(t.TempDir())
				must.OK(t, os.CopyFS(pair.Dir, os.DirFS(made.Pair.Dir)))
				f = enginetest.RoomsOf(storetest.OpenBoth(t, pair, made.Clock, storetest.MaxAttempts(2)))
			} else if f = unharmed(t); d.invariant == "journal_position" {
				d = damage{d.what, d.harm, refusedX, "", 0}
			}
			harm(t, f, d)
			var found []campaign.Violation
			f.Unchanged(func() { found = violations(f) })
			named := slices.ContainsFunc(found, func(v campaign.Violation) bool {
				return v.Invariant == d.invariant && v.Seq == d.seq && v.Detail != ""
			})
			must.Hold(t, (d.invariant == "" || named) && (d.invariant != "" || len(found) <= 0), "check found %+v, want %q at %d", found, d.invariant, d.seq)
			if d.by != byStart && d.by != byWorker {
				return
			}
			if d.by == byStart {
				must.Get(f.RepairGaps(context.Background(), ana(""))).Or(t)
			} else {
				f.Drain()
			}
			f.Sound()
			f.DrainsSoundly()
		})
	}
}

// The projections are restored from an earlier state: event 3 is dead or failed behind two that are applied again.
func TestCheck_allowsWhatOlderProjectionsBringAbout(t *testing.T) {
	storetest.Each(t, own, map[string]int{"dead": 1, "failed": 2}, func(t *testing.T, f *fixture, attempts int) {
		f = f.Beside(storetest.MaxAttempts(attempts))
		f.AppendN("a", 4)
		c := f.ClaimOne(one, 3)
		f.MustApply(c, 2)
		f.MustSettle(one, outbox.Result{Claim: c, Applied: 2, Failure: storetest.Failure("boom")})
		f.Clock.Advance(time.Hour)
		f.ExecProjections(`update projection_watermarks set applied_seq = 0, applied_hash = ''`)
		f.MustReconcile(campaign.Repaired{Campaigns: 1, Inserted: 2})
		f.Exact("a")
		f.Sound()
		c = f.ClaimOne(one, 10)
		must.Equal(t, c.Last, 2, "what is claimed before the row that failed ends at")
		f.Works(one, c, c.Last)
		f.DrainsSoundly()
		f.Is("a", map[int]string{1: "applied 2 of 4, head 3 dead, 1 pending, 1 dead", 2: "applied 4 of 4"}[attempts])
	})
}

// A copy of the tables leaves sequences behind. To look at them changes nothing; a server raises them.
func TestPostgresCheck_namesSequencesThatAreBehind(t *testing.T) {
	t.Parallel()
	f := unharmed(t)
	harm(t, f, damage{harm: `select setval(cast(c.oid as regclass), 1) from pg_class as c where c.relname = 'events_position_seq'`})
	var found []campaign.Violation
	f.Unchanged(func() { found = violations(f) })
	must.Hold(t, len(found) == 1 && found[0].Invariant == campaign.InvariantSequence && strings.Contains(found[0].Detail, "run: select setval('journal.events_position_seq', "), "check found %+v, want the sequence of positions", found)
	must.OK(t, f.Beside().Examine(f.Ctx))
	found = violations(f)
	must.Hold(t, len(found) == 0, "once a server has started check found %+v", found)
}

func TestCheck_countsWhatItLookedAtAndShowsProgress(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.AppendN("b", 1)
	f.MustAppend(storetest.Tagged("b", "counted", "seat", "1", "show", "x"))
	var steps []int64
	report, err := f.Check(f.Ctx, func(done, total int64) { steps = append(steps, done, total) })
	must.Need(t, err == nil && report.OK && report.Violations != nil, "report is %+v, %v", report, err)
	for name, want := range map[string]int64{"campaigns": 2, "events": 5, "rows": 5, "tags": 2, "skipped": 0} {
		must.Equal(t, report.Checked[name], want, "checked")
	}
	must.Hold(t, len(steps) == 4 && steps[0] == 1 && steps[2] == 2 && steps[3] == 2, "progress was %v", steps)
	f.Tamper(`delete from events where campaign_id = 'a' and seq = 2`)
	report, err = f.Check(f.Ctx, storetest.Quiet)
	must.Hold(t, err == nil && !report.OK && report.Checked["events"] == 4, "%d events checked of 4 there are (%v): %+v", report.Checked["events"], err, report.Violations)
}

func TestCheck_allowsAWaveBetweenItsDatabases(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 3)
	f.Sound()
	f.MustApply(c, 2)
	f.Sound()
	f.Clock.Advance(lease)
	f.Sound()
}

func TestCheck_findsSkipsThatAreCountedWrongOrAppliedTooEarly(t *testing.T) {
	f := own(t)
	f.DieAt(4, 2)
	f.MustSkip("a", 2)
	f.Exec(`update campaigns set skips = 2`)
	f.Exec(`update skips set applied_at = 1`)
	report, err := f.Check(f.Ctx, storetest.Quiet)
	must.Hold(t, err == nil && len(report.Violations) == 2 && report.Violations[0].Invariant == "skips" && report.Violations[1].Invariant == "campaign_row", "check found %+v (%v)", report.Violations, err)
	found := f.SelfCheckAll()
	must.Hold(t, len(found) == 1 && found[0].Drifted, "the self-check found %+v, want one that drifted", found)
	f.Exact("a")
	f.Sound()
	f.Exec(`update campaigns set skips = 0`)
	f.MustReconcile(campaign.Repaired{Campaigns: 1})
	f.Exact("a")
}
