package readmodel_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestInstallProjections_createsTablesOnceAndNotesVersions(t *testing.T) {
	t.Parallel()
	f := open(t)
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
	t.Parallel()
	f := open(t)
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
	t.Parallel()
	f := open(t)
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
	t.Parallel()
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
	t.Parallel()
	f := withTally(t)
	p := storetest.Tally()
	other := func() bool { return otherBuilt(f, p.Name, p.Version) }
	leave := func(named ...string) {
		must.OK(t, f.Leave(f.Ctx, named))
	}
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
	described := must.Get(f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: name, Version: version}})).Or(f.TB)
	return described[0].BuiltByOtherVersion
}

func install(f *fixture, p readmodel.Projection) {
	must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{p}))
}

func TestFailures_arePagedNewestFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b"} {
		f.AppendN(id, 3)
	}
	f.Drain()
	for seq := range int64(3) {
		f.Fails("roster", "a", seq+1)
		f.Fails("history", "b", seq+1)
		f.Fails("history", "b", seq+1)
	}
	must.OK(t, f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error { return tx.Resolve("b", 2) }))
	read := func(filter outbox.FailureFilter) (seen []string) {
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
		filter outbox.FailureFilter
		want   string
	}{
		{outbox.FailureFilter{}, "b3open2 a3open1 b2resolved2 a2open1 b1resolved2 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureOpen}, "b3open2 a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Status: outbox.FailureResolved}, "b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b"}, "b3open2 b2resolved2 b1resolved2"},
		{outbox.FailureFilter{CampaignID: "b", Status: outbox.FailureOpen}, "b3open2"},
		{outbox.FailureFilter{Projection: "roster"}, "a3open1 a2open1 a1open1"},
		{outbox.FailureFilter{Fingerprint: "other"}, ""},
	} {
		must.Equal(t, strings.Join(read(c.filter), " "), c.want, c.filter)
	}
	f.Sound()
	f.Fails("history", "b", 1) // again, after it was resolved
	got := read(outbox.FailureFilter{CampaignID: "b"})
	must.Hold(t, got[0] == "b1open1" && len(got) == 4, "failures %q, want a new one for the event that was passed before", got)
}
