package readmodel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// scratched lists the scratch rows of a campaign.
func scratched(f *fixture, c *readmodel.Scratch, campaign string) string {
	rows := must.Get(c.QueryContext(f.Ctx, `
select t.seen, t.twice, (select count(*) from tally_events e where e.campaign_id = t.campaign_id)
from tally t
where t.campaign_id = $1`, campaign)).Or(f.TB)
	defer rows.Close()
	text := ""
	for rows.Next() {
		var seen, twice, events int64
		must.OK(f.TB, rows.Scan(&seen, &twice, &events))
		text += fmt.Sprintf("seen %d, twice %d, events %d", seen, twice, events)
	}
	must.OK(f.TB, rows.Err())
	return text
}

func mustHold(f *fixture, c *readmodel.Scratch, campaign, want string) {
	must.Equal(f.TB, scratched(f, c, campaign), want, "of", campaign, "the scratch")
}

// withTally is a store with the tables of tally, for a test that runs beside others.
func withTally(t *testing.T, change ...func(*store.Options)) *fixture {
	f := own(t, change...)
	f.InstallTally()
	return f
}

func TestScratch_replaysFarFromTheLiveTables(t *testing.T) {
	f := withTally(t)
	f.Unchanged(func() {
		c := f.OpenTally()
		f.ReplayTally(c, "a", 1, 1000, "x")
		f.ReplayTally(c, "b", 1, 3, "x")
		mustHold(f, c, "a", "seen 1000, twice 2000, events 1000")
		mustHold(f, c, "b", "seen 3, twice 6, events 3")
		must.OK(t, c.Clear(f.Ctx, "a"))
		mustHold(f, c, "a", "")
		mustHold(f, c, "b", "seen 3, twice 6, events 3")
		f.ReplayTally(c, "a", 1, 2, "x")
		mustHold(f, c, "a", "seen 2, twice 4, events 2")
		times := size.Of(6, 12, 50)
		for i := range times {
			which := map[bool]string{true: "", false: "b"}[i < times/2]
			must.OK(t, c.Clear(f.Ctx, which))
			mustHold(f, c, "b", "")
			f.ReplayTally(c, "b", 1, 1000, "x")
		}
		mustHold(f, c, "a", "")
		must.OK(t, c.Close())
	})
}

func TestScratch_anEventThatFailsLeavesNothing(t *testing.T) {
	f := withTally(t)
	for _, at := range []int{0, 1, 700, 999} {
		c := f.OpenTally()
		done, err := c.Replay(f.Ctx, 1000, func(i int) error {
			if err := storetest.TallyOne(f.Ctx, c, "a", int64(i+1), "x"); err != nil {
				return err
			}
			if i == at {
				return c.Exec(f.Ctx, storetest.TallyEvent, []any{"a", int64(i + 1), "again"})
			}
			return nil
		})
		must.Hold(t, done == at && err != nil && strings.Contains(strings.ToLower(err.Error()), "unique"), "folded %d, %v; want a broken key at %d", done, err, at)
		want := fmt.Sprintf("seen %d, twice %d, events %d", at, 2*at, at)
		if at == 0 {
			want = ""
		}
		mustHold(f, c, "a", want)
		f.ReplayTally(c, "a", int64(at+1), int64(at+5), "x")
	}
}

func TestScratch_theErrorIsWhatTheEventReturnedAlone(t *testing.T) {
	f := withTally(t)
	c := f.OpenTally()
	broken := errors.New("broken")
	calls := 0
	done, err := c.Replay(f.Ctx, 10, func(i int) error {
		calls++
		if i == 4 {
			return broken
		}
		return storetest.TallyOne(f.Ctx, c, "a", int64(i+1), "x")
	})
	least := map[bool]int{false: 5 + 4, true: 5 + 4 + 1}[dbtest.Postgres()] // all up to it, those before it, and on PostgreSQL it alone
	must.Hold(t, done == 4 && errors.Is(err, broken) && calls == least, "folded %d with %d calls, %v; want 4 and the event's own error", done, calls, err)
	mustHold(f, c, "a", "seen 4, twice 8, events 4")
}

func TestScratch_anEventThatIsCutOffLeavesWhatCameBefore(t *testing.T) {
	f := withTally(t, func(o *store.Options) { o.EventTimeout = 3 * time.Second })
	c := f.OpenTally()
	endless := `
insert into tally_events (campaign_id, seq, body)
with recursive n(i) as (select cast(1 as bigint) union all select i + 1 from n where i < 100000000000)
select $1, max(i), '' from n`
	done, err := c.Replay(f.Ctx, 10, func(i int) error {
		if i == 6 {
			ctx, cancel := context.WithTimeout(f.Ctx, 50*time.Millisecond) // on PostgreSQL the server's limit cuts it off
			defer cancel()
			return c.Exec(ctx, endless, []any{"a"})
		}
		return storetest.TallyOne(f.Ctx, c, "a", int64(i+1), "x")
	})
	must.Hold(t, done == 6 && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, event.ErrBusy), "folded %d, %v; want the deadline of event 6", done, err)
	mustHold(f, c, "a", "seen 6, twice 12, events 6")
}

func TestScratch_aReplayCanBeCancelled(t *testing.T) {
	f := withTally(t)
	c := f.OpenTally()
	f.ReplayTally(c, "a", 1, 5, "x")
	ctx, cancel := context.WithCancel(f.Ctx)
	done, err := c.Replay(ctx, 1000, func(i int) error {
		if i == 500 {
			cancel()
		}
		return storetest.TallyOne(ctx, c, "a", int64(i+6), "x")
	})
	must.Hold(t, errors.Is(err, context.Canceled) && done <= 500, "folded %d, %v", done, err)
	mustHold(f, c, "a", fmt.Sprintf("seen %d, twice %d, events %[1]d", done+5, 2*(done+5)))
}

func TestOpenScratch_namesAWrongStatement(t *testing.T) {
	f := own(t)
	_, err := f.OpenScratch(f.Ctx, []readmodel.Projection{{Name: "p", Tables: []string{"p"},
		Schema: []string{`create table p (campaign_id text)`, `create tabel p (x text)`}}})
	var wrong *readmodel.SchemaError
	must.Hold(t, errors.As(err, &wrong) && wrong.Projection == "p" && wrong.Statement == 1, "got error %v", err)
}

// The rows of a large replay are spilled to a file without a name.
func TestSQLiteScratch_spillsToItsOwnFile(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no /proc here")
	}
	f := withTally(t)
	c := f.OpenTally()
	before := deletedFiles(t)
	f.ReplayTally(c, "a", 1, 10_000, strings.Repeat("x", 4000))
	spilled := deletedFiles(t) - before
	must.Hold(t, spilled >= 20<<20, "%d bytes went to disk, want most of 40 MB", spilled)
	before = resident(t)
	must.OK(t, c.Clear(f.Ctx, ""))
	f.ReplayTally(c, "a", 1, 10_000, strings.Repeat("x", 4000))
	grown := resident(t) - before
	must.Hold(t, grown <= 32<<20, "emptying and folding 40 MB took %d bytes more memory", grown)
}

// deletedFiles is the total size of unlinked files that this process has open.
func deletedFiles(t *testing.T) (bytes int64) {
	for _, e := range must.Get(os.ReadDir("/proc/self/fd")).Or(t) {
		name := "/proc/self/fd/" + e.Name()
		if target, err := os.Readlink(name); err == nil && strings.HasSuffix(target, "(deleted)") {
			if info, err := os.Stat(name); err == nil {
				bytes += info.Size()
			}
		}
	}
	return bytes
}

// resident is the memory of this process in bytes, after a garbage collection.
func resident(t *testing.T) int64 {
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
	f, c, claims := rebuilt(t, "old", "a")
	rows, err := c.QueryContext(f.Ctx, `select pg_backend_pid()`)
	must.Need(t, err == nil && rows.Next(), "%v", err)
	var backend int
	must.OK(t, errors.Join(rows.Scan(&backend), rows.Close()))
	done, err := c.Replay(f.Ctx, 10, func(i int) error {
		if i == 5 {
			f.ExecProjections(`select pg_terminate_backend($1, 10000)`, backend)
		}
		return storetest.TallyOne(f.Ctx, c, "a", int64(i+1), "x")
	})
	must.Hold(t, done == 0 && errors.Is(err, event.ErrBusy), "folded %d, %v", done, err)
	_, err = c.Swap(f.Ctx, []readmodel.Swap{storetest.PlanFor(claims[0])})
	must.Hold(t, errors.Is(err, event.ErrBusy), "swapped: %v", err)
	mustShow(f, "a", showing(5, "old"))
	must.OK(t, c.Close())
}

// The server keeps plans, and one made for empty tables reads a whole campaign at each event.
func TestPostgresScratch_plansForTheRowsThatItHas(t *testing.T) {
	f := own(t)
	c := must.Get(f.OpenScratch(f.Ctx, []readmodel.Projection{{Name: "p", Tables: []string{"lines"}, Schema: []string{
		`create table lines (campaign_id text not null, line bigint not null, part bigint not null, primary key (campaign_id, line))`,
		`create index lines_by_part on lines (campaign_id, part)`}}})).Or(t)
	defer c.Close()
	replay := func(events int) {
		must.Get(c.Replay(f.Ctx, events, func(i int) error {
			return c.Exec(f.Ctx, `insert into lines (campaign_id, line, part) values ('c', $1, $1)`, []any{int64(i)})
		})).Or(t)
	}
	replay(2)
	if _, err := c.Replay(f.Ctx, 20_000, func(int) error { return nil }); err != nil { // so that Clear vacuums
		t.Fatal(err)
	}
	for _, campaign := range []string{"c", ""} {
		for _, events := range []int{600, 5000} {
			must.OK(t, c.Clear(f.Ctx, campaign))
			replay(events)
			known, plan := int64(0), ""
			err := c.Each(func(row sqldb.Row) error { return row.Scan(&known) }, `select cast(reltuples as bigint) from pg_class where oid = cast('pg_temp.lines' as regclass)`)
			if err == nil {
				err = c.Each(func(row sqldb.Row) error {
					var line string
					err := row.Scan(&line)
					plan += line + "\n"
					return err
				}, `explain select l.line from lines l join lines o on o.campaign_id = l.campaign_id and o.part = l.part where l.campaign_id = 'c' and l.part = 7`)
			}
			must.OK(t, err)
			must.Hold(t, known >= int64(events)/2 && !strings.Contains(plan, "lines_pkey") && !strings.Contains(plan, "Seq Scan"), "cleared of %q, after %d rows the server knows of %d, and plans\n%s", campaign, events, known, plan)
		}
	}
}

func TestInstallProjections_createsTablesOnceAndNotesVersions(t *testing.T) {
	f := own(t)
	roster := readmodel.Projection{Name: "roster", Version: "v1", Tables: []string{"roster"}, Schema: []string{`create table roster (campaign_id text primary key)`}}
	install(f, roster)
	f.ExecProjections(`insert into roster values ('a')`)
	f.Unchanged(func() { install(f, roster) })
	must.Hold(t, !otherBuilt(f, "roster", "v1"), "a fresh projection was built by another version")
	roster.Version = "v2"
	install(f, roster)
	must.Hold(t, otherBuilt(f, "roster", "v2"), "a changed definition goes unnoticed")
	must.OK(t, f.CheckStatement(f.Ctx, `insert into roster values ($1)`))
	err := f.CheckStatement(f.Ctx, `insert into nowhere values ($1)`)
	must.Hold(t, err != nil, "a statement on a missing table was accepted")
	f.ExecProjections(`create table foreign_table (x text)`)
	install(f, readmodel.Projection{Name: "foreign", Version: "v1", Tables: []string{"foreign_table"}, Schema: []string{`create table foreign_table (y text)`}})
	must.Hold(t, otherBuilt(f, "foreign", "v1"), "tables that were there before count as built by the file")
	f.AppendN("a", 1)
	f.Drain()
	late := readmodel.Projection{Name: "late", Version: "v1", Tables: []string{"late"}, Schema: []string{`create table late (campaign_id text primary key)`}}
	for range 2 {
		if install(f, late); !otherBuilt(f, "late", "v1") {
			t.Error("a projection that lacks an event counts as built")
		}
	}
}

func TestInstallProjections_wrongStatementUndoesTheProjection(t *testing.T) {
	f := own(t)
	p := readmodel.Projection{Name: "roster", Version: "v1", Tables: []string{"roster", "other"}, Schema: []string{`create table roster (x text)`, `create tabel other (x text)`}}
	f.Unchanged(func() {
		err := f.Install(f.Ctx, []readmodel.Projection{p})
		var wrong *readmodel.SchemaError
		must.Hold(t, errors.As(err, &wrong) && wrong.Projection == "roster" && wrong.Statement == 1 && strings.Contains(err.Error(), "tabel"), "got error %v", err)
		n := dbtest.Tables(t, f.ProjectionsDB)
		must.Hold(t, !slices.Contains(n, "roster"), "the first table was left behind")
	})
}

func TestInstallProjections_byManyAtOnceMakesEachTableOnce(t *testing.T) {
	f := own(t)
	roster := readmodel.Projection{Name: "roster", Version: "v1", Tables: []string{"roster", "roster_names"},
		Schema: []string{`create table roster (campaign_id text primary key)`, `create table roster_names (campaign_id text primary key)`}}
	install := func(s *fixture) func() {
		return func() {
			err := s.Install(s.Ctx, []readmodel.Projection{roster})
			must.Hold(t, err == nil, "install: %v", err)
		}
	}
	f.AtOnce(f.ProjectionsDB, `lock table projection_versions in exclusive mode`, install(f), install(f.Beside()), install(f.Beside()))
	must.Hold(t, !otherBuilt(f, "roster", "v1"), "it counts as built by another version")
}

// A version that has applied events leaves its mark, also once another follows it: going back to the
// first does not make the rows of the second right.
func TestInstallProjections_rowsOfSeveralVersionsAreThoseOfNone(t *testing.T) {
	f := withTally(t)
	p := storetest.Tally()
	first := p.Version
	other := func(version string) bool {
		p.Version = version
		install(f, p)
		return otherBuilt(f, p.Name, version)
	}
	must.Hold(t, other("second") && !other(first), "a version that applied nothing leaves a mark, or none while it is loaded")
	other("second")
	f.AppendN("a", 1)
	f.Drain()
	must.Hold(t, other(first) && other("third"), "rows of the second version are taken for rows of the first")
	must.OK(t, f.MarkBuilt(f.Ctx, p.Name, "third"))
	must.Hold(t, !other("third"), "after a rebuild the rows are still those of several versions")
}

// What is applied without a projection leaves its mark once the projection is back: its rows lack events.
func TestLeave_rowsThatMissedEventsAreThoseOfNone(t *testing.T) {
	f := withTally(t)
	p := storetest.Tally()
	other := func() bool { return otherBuilt(f, p.Name, p.Version) }
	leave := func(named ...string) { must.OK(t, f.Leave(f.Ctx, named)) }
	back := func() { install(f, p) }
	leave(p.Name)
	must.Hold(t, !other(), "a loaded projection was left")
	leave()
	must.Hold(t, other(), "where it is loaded yet, nothing says that another process applies events without it")
	back()
	must.Hold(t, !other(), "a projection that missed nothing leaves a mark")
	leave()
	f.AppendN("a", 1)
	f.Drain()
	back()
	must.Hold(t, other(), "rows that lack events are taken for complete")
}

// otherBuilt reports whether the rows of a projection count as built by another version than the loaded one.
func otherBuilt(f *fixture, name, version string) bool {
	return must.Get(f.Runs.DescribeProjections(f.Ctx, []campaign.ProjectionInfo{{Name: name, Version: version}})).Or(f.TB)[0].BuiltByOtherVersion
}

func install(f *fixture, p readmodel.Projection) {
	must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{p}))
}

func TestFailures_arePagedNewestFirst(t *testing.T) {
	f := own(t)
	f.AppendN("a b", 3)
	f.Drain()
	for seq := range int64(3) {
		f.Fails("roster", "a", seq+1)
		f.Fails("history", "b", seq+1)
		f.Fails("history", "b", seq+1)
	}
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Resolve("b", 2) }))
	read := func(filter campaign.FailureFilter) (seen []string) {
		filter.Limit = 1
		for {
			page := must.Get(f.Failures(f.Ctx, filter)).Or(t)
			for _, p := range page.Items {
				seen = append(seen, fmt.Sprint(p.CampaignID, p.Seq, p.Status, p.Attempts))
			}
			if page.NextCursor == nil {
				return seen
			}
			filter.Cursor = *page.NextCursor
		}
	}
	for _, c := range []struct {
		filter campaign.FailureFilter
		want   string
	}{
		{campaign.FailureFilter{}, "b3open2 a3open1 b2resolved2 a2open1 b1resolved2 a1open1"},
		{campaign.FailureFilter{Status: campaign.FailureOpen}, "b3open2 a3open1 a2open1 a1open1"},
		{campaign.FailureFilter{Status: campaign.FailureResolved}, "b2resolved2 b1resolved2"},
		{campaign.FailureFilter{CampaignID: "b"}, "b3open2 b2resolved2 b1resolved2"},
		{campaign.FailureFilter{CampaignID: "b", Status: campaign.FailureOpen}, "b3open2"},
		{campaign.FailureFilter{Projection: "roster"}, "a3open1 a2open1 a1open1"},
		{campaign.FailureFilter{Fingerprint: "other"}, ""},
	} {
		must.Equal(t, strings.Join(read(c.filter), " "), c.want, c.filter)
	}
	f.Sound()
	f.Fails("history", "b", 1) // again, after it was resolved
	got := read(campaign.FailureFilter{CampaignID: "b"})
	must.Hold(t, got[0] == "b1open1" && len(got) == 4, "failures %q, want a new one for the event that was passed before", got)
}
