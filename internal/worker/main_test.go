package worker_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/store"
)

func TestMain(m *testing.M) {
	if askedByServer() {
		os.Exit(askTest())
	}
	sqlite.MustRegisterScalarFunction("probe", -1, probeOnSQLite)
	sqlite.RegisterConnectionHook(arrange)
	for name, value := range map[string]string{"rapid.steps": "25", "rapid.nofailfile": "true", "rapid.shrinktime": "5s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	code := dbtest.Main(m, differs, prepare)
	onPostgres.close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// differs names what several processes do to each other, random histories among
// it, since PostgreSQL lets them go on at the same time.
const differs = "^Test(Postgres|Run_|Runs_leave|Worker_drains|Worker_never|Pass_fences|Pass_leaves|Fence|Rebuild_beside|ApplyInline_keeps|Operation_runs)"

// prepare fills the pair that every test gets a copy of.
func prepare(p dbtest.Pair) error {
	if dbtest.Postgres() { // where opening the two stores of a history takes several times as long
		dbtest.Checks(10)
	} else {
		dbtest.Checks(40)
	}
	s, err := store.Open(context.Background(), store.Options{Journal: p.Journal, Projections: p.Projections})
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil || !dbtest.Postgres() {
		return err
	}
	return onPostgres.open(p.Projections)
}

const (
	// hurried is part of the path of databases that must not wait for locks.
	hurried = "hurried"
	// cramped is part of the path of databases that must stay small.
	cramped      = "cramped"
	crampedPages = 100
	crampedBytes = crampedPages * 4096
)

// arrange is called for every new connection, and makes contention and full
// disks show within the test's patience where the path asks for it.
func arrange(c sqlite.ExecQuerierContext, dsn string) error {
	pragma := ""
	switch {
	case strings.Contains(dsn, hurried):
		pragma = "pragma busy_timeout = 50"
	case strings.Contains(dsn, cramped):
		pragma = fmt.Sprintf("pragma max_page_count = %d", crampedPages)
	default:
		return nil
	}
	_, err := c.ExecContext(context.Background(), pragma, nil)
	return err
}
