package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

// TestCheck_foldsAProjectionThatIsSetAsideOnlyAsFarAsItStands has one
// projection that follows and one that was set aside half-way.
func TestCheck_foldsAProjectionThatIsSetAsideOnlyAsFarAsItStands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal, projections := "sqlite:"+filepath.Join(dir, "journal.db"), "sqlite:"+filepath.Join(dir, "projections.db")
	for name, text := range map[string]string{
		"log.sql": `-- projection: log
-- tables: log
-- schema
create table log (campaign_id text not null, seq bigint not null, primary key (campaign_id, seq));
-- on: *
insert into log (campaign_id, seq) values (:campaign_id, :seq);
`,
		"names.sql": `-- projection: names
-- tables: names
-- on-failure: quarantine
-- schema
create table names (campaign_id text not null, name text not null, primary key (campaign_id, name));
-- on: named
insert into names (campaign_id, name) values (:campaign_id, :payload.name!);
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := projection.Load("sqlite", dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Options{Journal: journal, Projections: projections, Retry: outbox.Retry{MaxAttempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := runs.Install(t.Context(), s, set); err != nil {
		t.Fatal(err)
	}
	var events []outbox.Event
	for _, payload := range []string{`{"name":"Ash"}`, `{}`, `{"name":"Birch"}`} {
		events = append(events, outbox.Event{CampaignID: "c-1", EventType: "named", Payload: []byte(payload)})
	}
	if _, err := s.Append(t.Context(), store.Append{Events: events}); err != nil {
		t.Fatal(err)
	}
	w := worker.New(worker.Config{Store: s, Set: set, Mode: outbox.ModeOutbox})
	for more := true; more; {
		if more, err = w.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	aside, err := s.ReadModel().SetAside(t.Context(), "c-1")
	if err != nil || aside["names"] != 1 || len(aside) != 1 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
	if _, err := s.Append(t.Context(), store.Append{Events: []outbox.Event{{CampaignID: "c-2", EventType: "named", Payload: []byte(`{"name":"Elm"}`)}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check := func() (int, string) {
		out, errs, code := here(t.Context(), "check", "--journal-db", journal, "--projections-db", projections, "--projections", dir)
		return code, out + errs
	}
	if code, text := check(); code != exitDone {
		t.Errorf("check ends with %d:\n%s", code, text)
	}
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(projections, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`update names set name = 'Aspen'`); err != nil {
		t.Fatal(err)
	}
	if code, text := check(); code != exitFailed || !strings.Contains(text, "projection names has other rows than a fold") {
		t.Errorf("with a changed row check ends with %d:\n%s", code, text)
	}
	for id, want := range map[string]string{"c-9": "table log has rows of a campaign the journal does not know", "c-2": "table log has rows of a campaign of which no event was applied"} {
		if _, err := db.Exec(`insert into log (campaign_id, seq) values ($1, 1)`, id); err != nil {
			t.Fatal(err)
		}
		if code, text := check(); code != exitFailed || !strings.Contains(text, want) {
			t.Errorf("with rows of %s check ends with %d:\n%s", id, code, text)
		}
	}
}
