package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// The reference lists each invariant, once and in the same words.
func TestCheck_invariantsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", "commands.md"))).Or(t)
	_, table, _ := strings.Cut(string(text), "| invariant | what holds |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var want []string
	for _, i := range outbox.Invariants {
		want = append(want, fmt.Sprintf("| `%s` | %s |", i.Name, i.Holds))
	}
	if got := strings.Split(table, "\n"); !slices.Equal(got, want) {
		t.Errorf("docs/commands.md has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCheck_replaysAProjectionThatIsSetAsideOnlyAsFarAsItStands has one live projection and one
// that was quarantined half-way.
func TestCheck_replaysAProjectionThatIsSetAsideOnlyAsFarAsItStands(t *testing.T) {
	t.Parallel()
	d := newHeldDesk(t, logging("log"), `-- projection: names
-- tables: names
-- on-failure: quarantine
-- schema
create table names (campaign_id text not null, name text not null, primary key (campaign_id, name));
-- on: noted
insert into names (campaign_id, name) values (:campaign_id, :payload.name!);
`)
	d.appendPayloads("c-1", `{"name":"Ash"}`, `{}`, `{"name":"Birch"}`)
	d.apply()
	db := dbtest.Open(t, d.flags[3])
	var aside string
	if err := db.QueryRow(`select projection || ' ' || applied_seq from projection_cursors where state <> 'live'`).Scan(&aside); err != nil || aside != "names 1" {
		t.Fatalf("set aside: %q, %v", aside, err)
	}
	d.appendPayloads("c-2", `{"name":"Elm"}`)
	d.says("check")
	must.Get(db.Exec(`update names set name = 'Aspen'`)).Or(t)
	d.runs("check", exitFailed, "projection names differs from the journal: 1 row missing, 0 changed, 1 unexpected; first divergence at event 1 or earlier")
	for id, want := range map[string]string{"c-9": "table log has rows of a campaign that is not in the journal", "c-2": "table log has rows of a campaign of which no event was applied"} {
		must.Get(db.Exec(`insert into log (campaign_id, seq) values ($1, 1)`, id)).Or(t)
		d.runs("check", exitFailed, want)
	}
}
