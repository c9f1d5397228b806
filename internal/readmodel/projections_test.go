package readmodel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestInstallProjections_createsTablesOnceAndNotesVersions(t *testing.T) {
	t.Parallel()
	f := open(t)
	roster := readmodel.Projection{Name: "roster", Version: "v1", Tables: []string{"roster"}, Schema: []string{`create table roster (campaign_id text primary key)`}}
	install := func(p readmodel.Projection) {
		t.Helper()
		if err := f.Install(f.Ctx, []readmodel.Projection{p}); err != nil {
			t.Fatal(err)
		}
	}
	otherVersion := func(version string) bool {
		t.Helper()
		described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: "roster", Version: version}})
		if err != nil {
			t.Fatal(err)
		}
		return described[0].BuiltByOtherVersion
	}
	install(roster)
	f.ExecProjections(`insert into roster values ('a')`)
	f.Unchanged(func() { install(roster) })
	if otherVersion("v1") {
		t.Error("a fresh projection was built by another version")
	}
	roster.Version = "v2"
	install(roster)
	if !otherVersion("v2") {
		t.Error("a changed definition goes unnoticed")
	}
	if err := f.CheckStatement(f.Ctx, `insert into roster values ($1)`); err != nil {
		t.Error(err)
	}
	if err := f.CheckStatement(f.Ctx, `insert into nowhere values ($1)`); err == nil {
		t.Error("a statement on a missing table was accepted")
	}
	f.ExecProjections(`create table foreign_table (x text)`)
	install(readmodel.Projection{Name: "foreign", Version: "v1", Tables: []string{"foreign_table"}, Schema: []string{`create table foreign_table (y text)`}})
	described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: "foreign", Version: "v1"}})
	if err != nil || !described[0].BuiltByOtherVersion {
		t.Errorf("tables that somebody else made are described as %+v, %v", described, err)
	}
}

func TestInstallProjections_oneThatIsNewToAUsedJournalWasNotBuilt(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Drain()
	late := readmodel.Projection{Name: "late", Version: "v1", Tables: []string{"late"}, Schema: []string{`create table late (campaign_id text primary key)`}}
	for range 2 {
		if err := f.Install(f.Ctx, []readmodel.Projection{late}); err != nil {
			t.Fatal(err)
		}
		described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: "late", Version: "v1"}})
		if err != nil || !described[0].BuiltByOtherVersion {
			t.Errorf("it lacks an event and is described as %+v, %v", described, err)
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
		if !errors.As(err, &wrong) || wrong.Projection != "roster" || wrong.Statement != 1 || !strings.Contains(err.Error(), "tabel") {
			t.Errorf("got error %v", err)
		}
		if n := dbtest.Tables(t, f.ProjectionsDB); slices.Contains(n, "roster") {
			t.Error("the first table was left behind")
		}
	})
}

func TestInstallProjections_byManyAtOnceMakesEachTableOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	roster := readmodel.Projection{Name: "roster", Version: "v1", Tables: []string{"roster", "roster_names"},
		Schema: []string{`create table roster (campaign_id text primary key)`, `create table roster_names (campaign_id text primary key)`}}
	install := func(s *fixture) func() {
		return func() {
			if err := s.Install(s.Ctx, []readmodel.Projection{roster}); err != nil {
				t.Errorf("install: %v", err)
			}
		}
	}
	f.AtOnce(f.ProjectionsDB, `lock table projection_versions in exclusive mode`, install(f), install(f.Beside()), install(f.Beside()))
	described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: "roster", Version: "v1"}})
	if err != nil || described[0].BuiltByOtherVersion {
		t.Errorf("described as %+v, %v", described, err)
	}
}

// A version that has applied events leaves its mark, also once another follows it: going back to the
// first does not make the rows of the second right.
func TestInstallProjections_rowsOfSeveralVersionsAreThoseOfNone(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	p := storetest.Tally()
	first := p.Version
	other := func(version string) bool {
		t.Helper()
		p.Version = version
		if err := f.Install(f.Ctx, []readmodel.Projection{p}); err != nil {
			t.Fatal(err)
		}
		described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: p.Name, Version: version}})
		if err != nil {
			t.Fatal(err)
		}
		return described[0].BuiltByOtherVersion
	}
	if !other("second") || other(first) {
		t.Error("a version that applied nothing leaves a mark, or none while it is loaded")
	}
	other("second")
	f.AppendN("a", 1)
	f.Drain()
	if !other(first) || !other("third") {
		t.Error("rows of the second version are taken for rows of the first")
	}
	if err := f.MarkBuilt(f.Ctx, p.Name, "third"); err != nil {
		t.Fatal(err)
	}
	if other("third") {
		t.Error("after a rebuild the rows are still those of several versions")
	}
}

// What is applied without a projection leaves its mark once the projection is back: its rows lack events.
func TestLeave_rowsThatMissedEventsAreThoseOfNone(t *testing.T) {
	t.Parallel()
	f := withTally(t)
	p := storetest.Tally()
	other := func() bool {
		t.Helper()
		described, err := f.Runs.DescribeProjections(f.Ctx, []outbox.ProjectionInfo{{Name: p.Name, Version: p.Version}})
		if err != nil {
			t.Fatal(err)
		}
		return described[0].BuiltByOtherVersion
	}
	leave := func(named ...string) {
		t.Helper()
		if err := f.Leave(f.Ctx, named); err != nil {
			t.Fatal(err)
		}
	}
	back := func() {
		t.Helper()
		if err := f.Install(f.Ctx, []readmodel.Projection{p}); err != nil {
			t.Fatal(err)
		}
	}
	leave(p.Name)
	if other() {
		t.Error("a loaded projection was left")
	}
	leave()
	if !other() {
		t.Error("where it is loaded yet, nothing says that another process applies events without it")
	}
	back()
	if other() {
		t.Error("a projection that missed nothing leaves a mark")
	}
	leave()
	f.AppendN("a", 1)
	f.Drain()
	back()
	if !other() {
		t.Error("rows that lack events are taken for complete")
	}
}
