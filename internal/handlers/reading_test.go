package handlers

import (
	"database/sql"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/dbtest"
)

// TestReading_changesNothing requests every GET address, and watches both databases from other
// connections.
func TestReading_changesNothing(t *testing.T) {
	s := newSite(t)
	s.seed("c-1", "counted", poison, "counted")
	s.seed("c-2", "counted")
	s.work()
	journal, projections := dbtest.Open(t, s.sub.Journal), dbtest.Open(t, s.sub.Projections)
	state := func() string { return stateOf(t, journal) + stateOf(t, projections) }
	before := state()
	fill := strings.NewReplacer("{campaign}", "c-1", "{seq}", "2", "{name}", "campaigns", "/static/*", "/static/none")
	asked := 0
	err := chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodGet {
			asked++
			if a := s.get(fill.Replace(route)); a.StatusCode >= 500 {
				t.Errorf("GET %s: %d %s", route, a.StatusCode, a.body)
			}
			if after := state(); after != before {
				t.Fatalf("GET %s wrote to a database: %s, before %s", route, after, before)
			}
		}
		return nil
	})
	if err != nil || asked < 25 {
		t.Fatalf("asked for %d addresses, %v", asked, err)
	}
	if s.submit("/campaigns/c-2/pause", ""); state() == before {
		t.Error("a change went unnoticed, so this test proves nothing")
	}
}

// stateOf is a text that changes with every committed write to the database: on SQLite the data
// version seen by another connection, on PostgreSQL each row's location, writer and locker, and the
// sequences.
func stateOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	read := func(query string) string {
		var text string
		if err := db.QueryRow(query).Scan(&text); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return text + "\n"
	}
	if !dbtest.Postgres() {
		db.SetMaxOpenConns(1) // it compares with what the same connection saw before
		return read(`pragma data_version`)
	}
	state := read(`select coalesce(string_agg(concat(sequencename, last_value), ' '), '') from pg_sequences where schemaname = current_schema()`)
	for _, table := range dbtest.Tables(t, db) {
		state += read(`select coalesce(string_agg(concat_ws(' ', ctid, xmin, xmax), ',' order by ctid), '') from "` + table + `"`)
	}
	return state
}
