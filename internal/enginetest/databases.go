package enginetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Main runs the tests of a package on both databases; see dbtest.Main. differs matches the tests in which PostgreSQL behaves differently.
func Main(m *testing.M, differs string) int {
	if askedByServer() {
		return askTest()
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
	return code
}

// prepare fills the pair that every test's pair is copied from.
func prepare(p dbtest.Pair) error {
	if dbtest.Postgres() { // opening the two stores of a history takes several times as long there
		dbtest.Checks(size.Of(10, 2, 20)) // in a short run rapid tries a fifth
	} else {
		dbtest.Checks(size.Of(10, 7, 60))
	}
	if err := storetest.Prepare(p); err != nil || !dbtest.Postgres() {
		return err
	}
	return onPostgres.open(p.Projections)
}

const (
	// Hurried in the path of a database limits its waits for locks.
	Hurried = "hurried"
	// Cramped in the path of a database limits its size.
	Cramped      = "cramped"
	crampedPages = 150
	CrampedBytes = crampedPages * 4096
)

// arrange is called for every new connection. For paths with Hurried or Cramped it sets limits at which lock conflicts and full disks show quickly.
func arrange(c sqlite.ExecQuerierContext, dsn string) error {
	pragma := ""
	switch {
	case strings.Contains(dsn, Hurried):
		pragma = "pragma busy_timeout = 50"
	case strings.Contains(dsn, Cramped):
		pragma = fmt.Sprintf("pragma max_page_count = %d", crampedPages)
	default:
		return nil
	}
	_, err := c.ExecContext(context.Background(), pragma, nil)
	return err
}
