package handlers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// A damaged page of the table that every list reads breaks the lists; the answer links to the
// solution.
func TestSQLiteDamaged_namesTheWayOut(t *testing.T) {
	t.Parallel()
	pair := dbtest.Files(t.TempDir())
	before := newSiteOn(t, pair)
	before.seed("c-1", "noted")
	journal := dbtest.Open(t, pair.Journal)
	var root int64
	must.OK(t, journal.QueryRow(`select rootpage from sqlite_master where name = 'campaigns'`).Scan(&root))
	must.OK(t, journal.Close())
	must.OK(t, before.store.Close())
	file := must.Get(os.OpenFile(filepath.Join(pair.Dir, "journal.db"), os.O_WRONLY, 0)).Or(t)
	must.Get(file.WriteAt(make([]byte, 4096), (root-1)*4096)).Or(t)
	must.OK(t, file.Close())
	s := newSiteOn(t, pair)
	const says = "part of the database is damaged and cannot be read; outboxweb check lists what is affected, and the runbook explains how to recover, under “A database is damaged”"
	for _, at := range []string{"/", "/campaigns"} {
		s.get(at).want(t, 500, says[1:], `href="/docs/operating`)
	}
	s.get("/api/v1/campaigns").want(t, 500, says)
	s.get("/docs/operating").want(t, 200, `id="a-database-is-damaged"`, "A database is damaged")
	s.get("/readyz").want(t, 503, "the file of the journal database is malformed")
}
