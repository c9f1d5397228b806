package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
)

// tally is a projection with a foreign key, a generated column, and a trigger
// that counts what it sees.
func tally() readmodel.Projection {
	trigger := []string{`
create trigger tally_seen after insert on tally_events
begin
  update tally set seen = seen + 1 where campaign_id = new.campaign_id;
end`}
	if dbtest.Postgres() {
		trigger = []string{`
create or replace function tally_see() returns trigger language plpgsql as $$
begin
  update tally set seen = seen + 1 where campaign_id = new.campaign_id;
  return null;
end $$`, `create trigger tally_seen after insert on tally_events for each row execute function tally_see()`}
	}
	return readmodel.Projection{Name: "tally", Version: "v1", Tables: []string{"tally", "tally_events"}, Schema: append([]string{`
create table tally (
  campaign_id text primary key,
  seen bigint not null default 0,
  twice bigint generated always as (seen * 2) stored
)`, `
create table tally_events (
  campaign_id text not null references tally (campaign_id),
  seq bigint not null,
  at timestamp,
  body text not null,
  primary key (campaign_id, seq)
)`, `create index tally_events_by_seq on tally_events (seq)`}, trigger...)}
}

// withTally is a store with the tables of tally.
func withTally(tb testing.TB, change ...func(*store.Options)) *fixture {
	tb.Helper()
	f := open(tb, change...)
	if err := f.Install(f.ctx, []readmodel.Projection{tally()}); err != nil {
		tb.Fatal(err)
	}
	return f
}

// scratch is a scratch database with the tables of tally.
func (f *fixture) scratch() *readmodel.Scratch {
	f.tb.Helper()
	p := tally()
	c, err := f.OpenScratch(f.ctx, []readmodel.ScratchTables{{Projection: p.Name, Tables: p.Tables, Schema: p.Schema}})
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(func() { c.Close() })
	return c
}

const (
	startTally = `insert into tally (campaign_id) values ($1) on conflict do nothing`
	tallyEvent = `insert into tally_events (campaign_id, seq, at, body) values ($1, $2, '2026-11-21 07:00:00', $3)`
)

// tallied folds one event of tally.
func tallied(ctx context.Context, c *readmodel.Scratch, campaign string, seq int64, body string) error {
	if err := c.Exec(ctx, startTally, []any{campaign}); err != nil {
		return err
	}
	return c.Exec(ctx, tallyEvent, []any{campaign, seq, body})
}

// fold tallies the events from first to last of a campaign.
func (f *fixture) fold(c *readmodel.Scratch, campaign string, first, last int64, body string) {
	f.tb.Helper()
	n := int(last - first + 1)
	done, err := c.Fold(f.ctx, n, func(i int) error { return tallied(f.ctx, c, campaign, first+int64(i), body) })
	if err != nil || done != n {
		f.tb.Fatalf("folded %d of %d: %v", done, n, err)
	}
}

// scratched lists what the scratch has of a campaign.
func (f *fixture) scratched(c *readmodel.Scratch, campaign string) string {
	f.tb.Helper()
	rows, err := c.QueryContext(f.ctx, `
select t.seen, t.twice, (select count(*) from tally_events e where e.campaign_id = t.campaign_id)
from tally t
where t.campaign_id = $1`, campaign)
	if err != nil {
		f.tb.Fatal(err)
	}
	defer rows.Close()
	text := ""
	for rows.Next() {
		var seen, twice, events int64
		if err := rows.Scan(&seen, &twice, &events); err != nil {
			f.tb.Fatal(err)
		}
		text += fmt.Sprintf("seen %d, twice %d, events %d", seen, twice, events)
	}
	if err := rows.Err(); err != nil {
		f.tb.Fatal(err)
	}
	return text
}

func (f *fixture) mustHold(c *readmodel.Scratch, campaign, want string) {
	f.tb.Helper()
	if got := f.scratched(c, campaign); got != want {
		f.tb.Errorf("of %s the scratch has %q, want %q", campaign, got, want)
	}
}

func TestScratch_foldsFarFromTheLiveTables(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	f.unchanged(func() {
		c := f.scratch()
		f.fold(c, "a", 1, 1000, "x")
		f.fold(c, "b", 1, 3, "x")
		f.mustHold(c, "a", "seen 1000, twice 2000, events 1000")
		f.mustHold(c, "b", "seen 3, twice 6, events 3")
		if err := c.Clear(f.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		f.mustHold(c, "a", "")
		f.mustHold(c, "b", "seen 3, twice 6, events 3")
		f.fold(c, "a", 1, 2, "x")
		f.mustHold(c, "a", "seen 2, twice 4, events 2")
		for i := range 50 {
			which := map[bool]string{true: "", false: "b"}[i < 25]
			if err := c.Clear(f.ctx, which); err != nil {
				t.Fatal(err)
			}
			f.mustHold(c, "b", "")
			f.fold(c, "b", 1, 1000, "x")
		}
		f.mustHold(c, "a", "")
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestScratch_anEventThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	for _, at := range []int{0, 1, 700, 999} {
		c := f.scratch()
		done, err := c.Fold(f.ctx, 1000, func(i int) error {
			if err := tallied(f.ctx, c, "a", int64(i+1), "x"); err != nil {
				return err
			}
			if i == at {
				return c.Exec(f.ctx, tallyEvent, []any{"a", int64(i + 1), "again"})
			}
			return nil
		})
		if done != at || err == nil || !strings.Contains(strings.ToLower(err.Error()), "unique") {
			t.Errorf("folded %d, %v; want a broken key at %d", done, err, at)
		}
		want := fmt.Sprintf("seen %d, twice %d, events %d", at, 2*at, at)
		if at == 0 {
			want = ""
		}
		f.mustHold(c, "a", want)
		f.fold(c, "a", int64(at+1), int64(at+5), "x")
	}
}

func TestScratch_theErrorIsWhatTheEventReturnedAlone(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	c := f.scratch()
	broken := errors.New("broken")
	calls := 0
	done, err := c.Fold(f.ctx, 10, func(i int) error {
		calls++
		if i == 4 {
			return broken
		}
		return tallied(f.ctx, c, "a", int64(i+1), "x")
	})
	least := map[bool]int{false: 5 + 4, true: 5 + 4 + 1}[dbtest.Postgres()] // all up to it, those before it, on PostgreSQL it alone
	if done != 4 || !errors.Is(err, broken) || calls != least {
		t.Errorf("folded %d with %d calls, %v; want 4 and the event's own error", done, calls, err)
	}
	f.mustHold(c, "a", "seen 4, twice 8, events 4")
}

func TestScratch_anEventThatIsCutOffLeavesWhatCameBefore(t *testing.T) {
	t.Parallel()
	f := withTally(t, func(o *store.Options) { o.EventTimeout = 3 * time.Second })
	c := f.scratch()
	endless := `
insert into tally_events (campaign_id, seq, body)
with recursive n(i) as (select cast(1 as bigint) union all select i + 1 from n where i < 100000000000)
select $1, max(i), '' from n`
	done, err := c.Fold(f.ctx, 10, func(i int) error {
		ctx, cancel := context.WithTimeout(f.ctx, f.EventTimeout())
		defer cancel()
		if i == 6 {
			return c.Exec(ctx, endless, []any{"a"})
		}
		return tallied(f.ctx, c, "a", int64(i+1), "x")
	})
	if done != 6 || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, outbox.ErrBusy) {
		t.Errorf("folded %d, %v; want the deadline of event 6", done, err)
	}
	f.mustHold(c, "a", "seen 6, twice 12, events 6")
}

func TestScratch_aFoldCanBeCancelled(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	c := f.scratch()
	f.fold(c, "a", 1, 5, "x")
	ctx, cancel := context.WithCancel(f.ctx)
	done, err := c.Fold(ctx, 1000, func(i int) error {
		if i == 500 {
			cancel()
		}
		return tallied(ctx, c, "a", int64(i+6), "x")
	})
	if !errors.Is(err, context.Canceled) || done > 500 {
		t.Errorf("folded %d, %v", done, err)
	}
	f.mustHold(c, "a", fmt.Sprintf("seen %d, twice %d, events %[1]d", done+5, 2*(done+5)))
}

func TestOpenScratch_namesAWrongStatement(t *testing.T) {
	t.Parallel()
	f := open(t)
	_, err := f.OpenScratch(f.ctx, []readmodel.ScratchTables{{Projection: "p", Tables: []string{"p"},
		Schema: []string{`create table p (campaign_id text)`, `create tabel p (x text)`}}})
	var wrong *readmodel.SchemaError
	if !errors.As(err, &wrong) || wrong.Projection != "p" || wrong.Statement != 1 {
		t.Errorf("got error %v", err)
	}
}

// The rows of a large fold go to a file that only this process knows.
func TestSQLiteScratch_spillsToItsOwnFile(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc here")
	}
	f := withTally(t)
	c := f.scratch()
	before := deletedFiles(t)
	f.fold(c, "a", 1, 40_000, strings.Repeat("x", 1000))
	if spilled := deletedFiles(t) - before; spilled < 20<<20 {
		t.Errorf("%d bytes went to disk, want most of 40 MB", spilled)
	}
	before = resident(t)
	if err := c.Clear(f.ctx, ""); err != nil {
		t.Fatal(err)
	}
	f.fold(c, "a", 1, 40_000, strings.Repeat("x", 1000))
	if grown := resident(t) - before; grown > 32<<20 {
		t.Errorf("emptying and folding 40 MB took %d bytes more memory", grown)
	}
}

// deletedFiles is the size of files without a name that this process has open.
func deletedFiles(t *testing.T) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := "/proc/self/fd/" + e.Name()
		if target, err := os.Readlink(name); err == nil && strings.HasSuffix(target, "(deleted)") {
			if info, err := os.Stat(name); err == nil {
				bytes += info.Size()
			}
		}
	}
	return bytes
}

// resident is the memory of this process in bytes, without garbage.
func resident(t *testing.T) int64 {
	t.Helper()
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip("no /proc here")
	}
	debug.FreeOSMemory()
	return residentNow()
}

func residentNow() int64 {
	var size, pages int64
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}

func TestPostgresScratch_saysWhenItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	f, c, claims := rebuilt(t, "old", "a")
	rows, err := c.QueryContext(f.ctx, `select pg_backend_pid()`)
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	var backend int
	if err := errors.Join(rows.Scan(&backend), rows.Close()); err != nil {
		t.Fatal(err)
	}
	done, err := c.Fold(f.ctx, 10, func(i int) error {
		if i == 5 {
			f.rawProjections(`select pg_terminate_backend($1, 10000)`, backend)
		}
		return tallied(f.ctx, c, "a", int64(i+1), "x")
	})
	if done != 0 || !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("folded %d, %v", done, err)
	}
	if _, err := c.Swap(f.ctx, []readmodel.Swap{planFor(claims[0])}); !errors.Is(err, outbox.ErrBusy) {
		t.Errorf("swapped: %v", err)
	}
	f.mustShow("a", showing(5, "old"))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
