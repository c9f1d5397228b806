package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// A rehearsal whose process is killed goes on in the next one, and changes nothing live.
func TestRehearsal_killed(t *testing.T) {
	t.Parallel()
	const campaigns = 12
	loaded := map[string]string{"seats.sql": seatsFile("null", "1")}
	changed := seatsFile("0", "(with recursive spin (i) as (select 1 union all select i + 1 from spin where i < 30000) select count(*) from spin)")
	d := newDatabases(t)
	flags := append(quickDeath, writeProjections(t, loaded)...)
	var lines strings.Builder
	for c := range campaigns {
		fmt.Fprintf(&lines, `{"campaign_id":"c-%02d","event_type":"taken","payload":{}}`+"\n", c)
		fmt.Fprintf(&lines, `{"campaign_id":"c-%02d","event_type":"refused","payload":{}}`+"\n", c)
		for range 20 {
			fmt.Fprintf(&lines, `{"campaign_id":"c-%02d","event_type":"taken","payload":{}}`+"\n", c)
		}
	}
	s := start(t, d, flags...)
	mustCommand(t, d, strings.NewReader(lines.String()), "append", "-")
	s.awaitSummary(t, "every campaign is blocked", func(sum summary) bool { return sum.Campaigns.Blocked == campaigns })
	before := liveSeats(t, d)
	var r runDoc
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "seats.sql", "text": changed}}}).decode(t, &r)
	awaitRunAt(t, s, r.ID, "is under way", func(r runDoc) bool { return r.Campaigns.Done > 0 || !r.active() })
	s.kill()
	if now := liveSeats(t, d); now != before {
		t.Errorf("the live rows changed: %s, then %s", before, now)
	}
	s = start(t, d, flags...)
	if r = awaitEnd(t, s, r.ID); r.Status != "completed" || r.Attempts != 2 {
		t.Errorf("the run after the kill: %+v", r)
	}
	var rehearsal struct {
		Counts struct{ Passes int64 }
		Loaded bool
	}
	s.get(t, fmt.Sprintf("/api/v1/rehearsals/%d", r.ID), &rehearsal)
	if rehearsal.Counts.Passes != campaigns || rehearsal.Loaded {
		t.Errorf("the rehearsal says %+v", rehearsal)
	}
	if now := liveSeats(t, d); now != before {
		t.Errorf("the live rows changed: %s, then %s", before, now)
	}
}

// seatsFile is a projection in which an event of type refused has the value of refused, and one of
// type taken the value of taken.
func seatsFile(refused, taken string) string {
	return `
-- projection: seats
-- tables: seats

-- schema
create table seats (campaign_id text not null, seq bigint not null, n bigint not null, primary key (campaign_id, seq));

-- on: taken
insert into seats (campaign_id, seq, n) select cast(:campaign_id as text), cast(:seq as bigint), ` + taken + `;

-- on: refused
insert into seats (campaign_id, seq, n) values (:campaign_id, :seq, ` + refused + `);
`
}

// liveSeats are the rows and the watermarks in the projections database.
func liveSeats(t *testing.T, d databases) string {
	t.Helper()
	var all string
	err := openReader(t, d.projections()).QueryRow(`
select (select count(*) || ' rows, ' || sum(n) from seats) || ', ' || (select sum(applied_seq) from projection_watermarks)`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// rehearseComment rehearses a file of the built-in projections to which only a comment is added, and
// returns the run's number once it has ended.
func rehearseComment(t *testing.T, s *server) int64 {
	t.Helper()
	text, err := os.ReadFile("../internal/projection/builtin/campaigns/campaigns.sql")
	if err != nil {
		t.Fatal(err)
	}
	var r runDoc
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "campaigns.sql", "text": string(text) + "-- the same\n"}}}).decode(t, &r)
	if r = awaitEnd(t, s, r.ID); r.Status != "completed" {
		t.Fatalf("the rehearsal is %+v", r)
	}
	return r.ID
}
