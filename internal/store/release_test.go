package store_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// releasedPair is the pair that the program of a release left: testdata/VERSION has its two databases as SQLite files and as SQL of pg_dump
// --inserts. The sample of three campaigns is appended and applied, but for one event, which an operator dead-lettered. Those of 0.1.0 are
// by the last program before it, whose last migrations made the same schema.
func releasedPair(t *testing.T, dir string) dbtest.Pair {
	pair := dbtest.Fresh(t)
	for name, url := range map[string]string{"journal": pair.Journal, "projections": pair.Projections} {
		if !dbtest.Postgres() {
			must.OK(t, os.WriteFile(filepath.Join(pair.Dir, name+".db"), unpacked(t, filepath.Join(dir, name+".db.gz")), 0o600))
		} else {
			must.Get(dbtest.Open(t, url).Exec(string(unpacked(t, filepath.Join(dir, name+".sql.gz"))))).Or(t)
		}
	}
	return pair
}

func unpacked(t *testing.T, path string) []byte {
	packed := must.Get(os.ReadFile(path)).Or(t)
	return must.Get(io.ReadAll(must.Get(gzip.NewReader(bytes.NewReader(packed))).Or(t))).Or(t)
}

// wholeSchema describes the schema of a database on the current server; it is empty for a database without tables.
func wholeSchema(t testing.TB, db *sql.DB) (lines []string) {
	others := `select type || ' ' || name from sqlite_schema where type in ('trigger', 'view')`
	if dbtest.Postgres() {
		others = `
select 'trigger ' || tgname from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = cast(current_schema() as regnamespace) and not tgisinternal
union all
select 'view ' || viewname from pg_views where schemaname = current_schema()
union all
select 'function ' || proname from pg_proc where pronamespace = cast(current_schema() as regnamespace)`
	}
	for _, query := range append(slices.Clone(schemaQueries[dbtest.Postgres()]), others) {
		lines = append(lines, storetest.Texts(t, db, query)...)
	}
	slices.Sort(lines)
	return lines
}

// rehearsedBefore is a rehearsal with each outcome that rehearsals of 0.1.0 had.
const rehearsedBefore = `
insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at)
values ('rehearse', 'completed', '[]', 1, '[]', '{}', '', 'ana', 'api', '', 1, 1);
insert into run_results (run_id, campaign_id, outcome, seq, events, full_digest, projections, error, at, rehearsed)
select r.id, 'campaign of ' || outcome, outcome, 1, 1, '', '[]', '', 1, case when outcome = 'fails_same' then '{"head":3}' else '{}' end
from runs r, (select 'passes' as outcome union all select 'fails_same' union all select 'fails_differently' union all select 'not_rehearsed'
  union all select 'same_rows' union all select 'other_rows' union all select 'breaks') as before
where r.kind = 'rehearse'`

func TestOpen_takesOverTheDatabasesOfEachRelease(t *testing.T) {
	dirs, err := filepath.Glob("testdata/*.*.*")
	must.Need(t, err == nil && len(dirs) != 0, "%q, %v", dirs, err)
	fresh := own(t)
	for _, dir := range dirs {
		pair := releasedPair(t, dir)
		must.Get(dbtest.Open(t, pair.Journal).Exec(rehearsedBefore)).Or(t)
		f := openPair(t, pair, storetest.NewClock())
		must.Equal(t, storetest.Texts(t, f.JournalDB, `select outcome || ' ' || rehearsed from run_results order by outcome, rehearsed`),
			[]string{`drift {}`, `failed {"same_error":true,"head":3}`, `failed {}`, `failed {}`, `match {}`, `not_compared {}`, `replayed {}`}, dir, "outcomes of a rehearsal")
		must.Equal(t, storetest.Texts(t, f.JournalDB, `select matched || ' ' || drifted || ' ' || replayed || ' ' || failed from runs where kind = 'rehearse'`), []string{"1 1 1 3"}, dir, "its counts")
		for name, both := range map[string][2]*sql.DB{"journal": {fresh.JournalDB, f.JournalDB}, "projections": {fresh.ProjectionsDB, f.ProjectionsDB}} {
			want, got := wholeSchema(t, both[0]), wholeSchema(t, both[1])
			if name == "projections" { // beside the tables of projections
				got = slices.DeleteFunc(got, func(line string) bool { return !slices.Contains(want, line) })
			}
			must.Hold(t, len(want) >= 20, "the %s database is described by %q alone", name, want)
			must.Equal(t, got, want, dir, "the schema of the", name, "database")
		}
		must.Equal(t, len(f.Ready(f.Ctx)), 0, dir, "not ready")
		sum, err := f.Summary(f.Ctx)
		must.Hold(t, err == nil && sum.Campaigns.Total == 3 && sum.Counts.Dead == 1, "%s: the summary is %+v, %v", dir, sum, err)
		f.Applied("later", 2)
		f.Is("later", "applied 2 of 2")
		f.Sound()
	}
}

// Databases of the last schema before 0.1.0 are migrated as those of 0.1.0 are, and a program that may not migrate takes them from then on.
// Those of the schemas before belong to the last program that had their migrations.
func TestOpen_takesFromBefore010TheLastSchemaAlone(t *testing.T) {
	t.Parallel()
	pair := releasedPair(t, "testdata/0.1.0")
	o := asTheyAre(storetest.OptionsFor(pair))
	openPair(t, pair, storetest.NewClock()).Close()
	f := openPair(t, pair, storetest.NewClock(), func(o *store.Options) { *o = asTheyAre(*o) })
	f.Close()
	must.Equal(t, len(must.Get(store.Plan(t.Context(), o)).Or(t)), 0, "the plan")
	for name, db := range map[string]*sql.DB{"journal": f.JournalDB, "projections": f.ProjectionsDB} {
		released := map[string]int{"journal": 31, "projections": 5}[name]
		must.Get(db.Exec(`update goose_db_version set version_id = version_id - 1000 where version_id >= $1`, released)).Or(t)
		f.Unchanged(func() {
			for _, o := range []store.Options{o, storetest.OptionsFor(pair)} {
				setup(t, o, "the "+name+" database", "from before outboxweb 0.1.0; the revision 9868c124 migrates it")
			}
			refused(t, storetest.No(store.Plan(t.Context(), o)), event.ErrSetup, "9868c124")
		})
		must.Get(db.Exec(`update goose_db_version set version_id = version_id + 1000 where version_id < 0`)).Or(t)
	}
	must.Hold(t, creating(o).Config().NoMigrate, "a command that may only create migrates")
}

// cutOff is what processes leave that are cut off while they create databases.
type cutOff struct {
	whole map[string][]string // the schemas of databases that were not
	left  map[string]int
}

func newCutOff(f *fixture) *cutOff {
	return &cutOff{map[string][]string{"journal": wholeSchema(f.TB, f.JournalDB), "projections": wholeSchema(f.TB, f.ProjectionsDB)}, map[string]int{}}
}

// look fails unless each database of the pair is empty or whole, and the next process goes on with it.
func (c *cutOff) look(t *testing.T, pair dbtest.Pair, when string, nth any) {
	for name, url := range map[string]string{"journal": pair.Journal, "projections": pair.Projections} {
		if _, err := os.Stat(strings.TrimPrefix(url, "sqlite:")); err != nil && !dbtest.Postgres() {
			continue // it is not there yet
		}
		got := wholeSchema(t, dbtest.Open(t, url))
		state := map[bool]string{true: "empty", false: "whole"}[len(got) == 0]
		c.left[name+" "+state]++
		must.Hold(t, state == "empty" || slices.Equal(got, c.whole[name]), "%s %v the %s database is neither empty nor whole:\n%s", when, nth, name, cmp.Diff(c.whole[name], got))
	}
	f := openPair(t, pair, storetest.NewClock(), func(o *store.Options) { *o = creating(*o) })
	f.AppendN("b", 1)
	f.Sound()
	f.CloseNow()
}

// TestPostgresOpen_severedAnywhereLeavesNoneOrAWholeSchema cuts a process that creates both schemas
// off, after each of its messages to the server, or some of them.
func TestPostgresOpen_severedAnywhereLeavesNoneOrAWholeSchema(t *testing.T) {
	cut, severer := newCutOff(own(t)), dbtest.Server().Severer(t)
	step := size.Of[int64](60, 15, 1)
	for nth := 1 + rand.Int64N(step); ; nth += step {
		pair := dbtest.Fresh(t)
		severer.CutAt(nth)
		s, err := store.Open(t.Context(), creating(store.Options{Journal: severer.Through(pair.Journal), Projections: severer.Through(pair.Projections)}))
		if err == nil {
			s.Close()
		}
		if !severer.CutAt(0) {
			break
		}
		cut.look(t, pair, "cut off after message", nth)
	}
	must.Hold(t, size.Little() || cut.left["journal whole"] != 0 && cut.left["journal empty"] != 0, "what was left is %v", cut.left)
}
