package handlers

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	_ "modernc.org/sqlite"
)

// TestReading_changesNothing asks for every address that answers to GET, and
// watches both files from other connections, whose data_version tells of every
// commit.
func TestReading_changesNothing(t *testing.T) {
	s := newSite(t)
	s.seed("c-1", "counted", poison, "counted")
	s.seed("c-2", "counted")
	s.work()
	files := map[string]*sql.DB{"journal.db": nil, "projections.db": nil}
	versions := func() map[string]int {
		at := make(map[string]int)
		for name, db := range files {
			var version int
			if err := db.QueryRow("pragma data_version").Scan(&version); err != nil {
				t.Fatal(err)
			}
			at[name] = version
		}
		return at
	}
	for name := range files {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1) // data_version compares with what this connection saw before
		t.Cleanup(func() { db.Close() })
		files[name] = db
	}
	before := versions()
	fill := strings.NewReplacer("{campaign}", "c-1", "{seq}", "2", "{name}", "campaigns", "/static/*", "/static/none")
	asked := 0
	err := chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodGet {
			asked++
			if a := s.get(fill.Replace(route)); a.StatusCode >= 500 {
				t.Errorf("GET %s: %d %s", route, a.StatusCode, a.body)
			}
			if after := versions(); after["journal.db"] != before["journal.db"] || after["projections.db"] != before["projections.db"] {
				t.Fatalf("GET %s wrote to a database: %v, before %v", route, after, before)
			}
		}
		return nil
	})
	if err != nil || asked < 25 {
		t.Fatalf("asked for %d addresses, %v", asked, err)
	}
	if s.submit("/campaigns/c-2/pause", ""); versions()["journal.db"] == before["journal.db"] {
		t.Error("a change went unnoticed, so this test proves nothing")
	}
}
