package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

// reproduces writes a fixture, with some texts in it replaced, and tries it in a process and a directory that have
// nothing else.
func reproduces(t *testing.T, fixture string, code int, says string, replaced ...string) {
	t.Helper()
	dir := t.TempDir()
	changed := strings.NewReplacer(replaced...).Replace(fixture)
	must.Need(t, len(replaced) == 0 || changed != fixture, "nothing of %q is in the file", replaced)
	must.OK(t, os.WriteFile(filepath.Join(dir, "f.json"), []byte(changed), 0o600))
	out, errs, got := runWith(t, dir, nil, "reproduce", "f.json")
	must.Hold(t, got == code && strings.Contains(out+errs, says), "reproduce with %q ends with %d, want %d and %q: %s", replaced, got, code, says, out+errs)
	must.Equal(t, len(must.Get(os.ReadDir(dir)).Or(t)), 1, "files left")
}

func TestFixture_failsAlikeElsewhere(t *testing.T) {
	t.Parallel()
	for _, dialect := range []string{"sqlite", "postgres"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			s := newTheatre(t, dialect).scene(t)
			for _, types := range [][]string{{"c-1", "taken", "lost", "lost"}, {"c-2", "taken", "full"}} {
				for _, kind := range types[1:] {
					must.Get(s.Append(t.Context(), store.Append{Events: []event.Event{{CampaignID: types[0], EventType: kind, Payload: json.RawMessage(`{"note": "a < b"}`)}}})).Or(t)
				}
			}
			s.work()
			s.does(skip)
			s.work()
			s.has("c-3", "taken", "lost")

			lost := s.send(s.http, http.MethodGet, "/api/v1/campaigns/c-1/events/3/fixture", "", operator.RoleViewer, http.Header{})
			must.Need(t, lost.status == http.StatusOK, "%d %s", lost.status, lost.text)
			var f projection.Fixture
			must.OK(t, json.Unmarshal([]byte(lost.text), &f))
			must.Hold(t, f.Database == dialect && f.LiveBefore && f.Hidden == 0 && len(f.Events) == 3 && f.Events[1].Skipped != nil && string(f.Events[0].Payload) == `{"note":"a < b"}`, "the fixture is %s", lost.text)
			reproduces(t, lost.text, exitDone, "fails alike: projection seats (seats.sql:10) on lost: payload.number is required")
			reproduces(t, lost.text, exitFailed, "event 3 is applied to projection seats without an error", ":payload.number!)", "1)")
			reproduces(t, lost.text, exitFailed, "event 3 fails with another error", ":payload.number!)", "0)")
			reproduces(t, lost.text, exitFailed, "projection seats refuses event 1 already", ":seq, 1)", ":seq, 0)")

			full, errs, code := here(t.Context(), append([]string{"fixture", "c-2", "2"}, s.flags...)...)
			must.Need(t, code == exitDone, "it ends with %d %s", code, errs)
			reproduces(t, full, exitDone, "fails alike: projection seats (seats.sql:8) on full: CHECK constraint failed: free > 0")
			reproduces(t, full, exitFailed, "is applied to projection seats without an error", ":seq, 0)", ":seq, 2)")
			reproduces(t, full, exitFailed, "fails with another error", ":seq, 0)", ":seq, null)")

			hidden := s.send(s.http, http.MethodGet, "/campaigns/c-3/events/2/fixture", "", operator.RoleViewer, http.Header{})
			must.Hold(t, hidden.status == http.StatusOK && strings.Contains(hidden.text, `"hidden_events":2`), "%d %s", hidden.status, hidden.text)
			reproduces(t, hidden.text, exitDone, "fails alike: ")
			reproduces(t, hidden.text, exitFailed, "Values of 2 events are hidden in this file", ":payload.number!)", "1)")

			page := s.send(s.http, http.MethodGet, "/campaigns/c-1/events/3", "", operator.RoleViewer, http.Header{})
			must.Hold(t, strings.Contains(page.text, `href="/campaigns/c-1/events/3/fixture"`), "its page does not offer it: %s", page.text)
			applied := s.send(s.http, http.MethodGet, "/api/v1/campaigns/c-1/events/1/fixture", "", operator.RoleViewer, http.Header{})
			must.Hold(t, applied.status == http.StatusConflict && strings.Contains(applied.text, "does not fail"), "%d %s", applied.status, applied.text)
		})
	}
}

// A stranger's file can do no more than the SQL of projections can, and one that is none is said to be.
func TestReproduce_refusesOtherFiles(t *testing.T) {
	d := newDesk(t, needing("log", "number"))
	d.applied("c-1", "{}")
	fixture, errs, code := here(t.Context(), append([]string{"fixture", "c-1", "1"}, d.flags...)...)
	must.Need(t, code == exitDone, "it ends with %d %s", code, errs)
	reproduces(t, fixture, exitDone, "fails alike: ")
	reproduces(t, fixture, exitUsage, "log.sql:4", "create table log", "attach database 'f.json' as other; create table log")
	reproduces(t, fixture, exitUsage, "log.sql:6", "insert into log", "vacuum into 'copy'; insert into log")
	reproduces(t, fixture, exitUsage, "is not a fixture of form 1", `"outboxweb_fixture": 1`, `"outboxweb_fixture": 2`)
	reproduces(t, fixture, exitUsage, "does not end with the event that fails", `"seq": 1,
      "position"`, `"seq": 2,
      "position"`)
	reproduces(t, fixture[:len(fixture)/2], exitUsage, "is not JSON, or its end is missing")
	reproduces(t, "[]", exitUsage, "is not a fixture of form 1")
	reproduces(t, "{}", exitUsage, "is not a fixture of form 1")
}
