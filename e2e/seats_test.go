package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// seatProjections is a read model that fails on some journals: no user may hold two seats of a
// campaign.
var seatProjections = map[string]string{"seats.sql": `
-- projection: seats
-- tables: seats

-- schema
create table seats (
  campaign_id text not null,
  seat text not null,
  user_id text not null,
  primary key (campaign_id, seat),
  unique (campaign_id, user_id)
);

-- on: seat.taken
insert into seats (campaign_id, seat, user_id) values (:campaign_id, :payload.seat!, :payload.user!);
`}

// taken is the event that a user takes a seat.
func taken(seat, user string) event {
	return event{EventType: "seat.taken", Payload: map[string]any{"seat": seat, "user": user}}
}

// seats are events of a campaign in which the users take a seat each, in this
// order. A user who is named twice makes the second event poisonous.
func seats(users ...string) []event {
	var events []event
	for i, user := range users {
		events = append(events, taken(fmt.Sprintf("seat-%d", i+1), user))
	}
	return events
}

// appendTo appends events to a campaign.
func appendTo(t *testing.T, s *server, base, campaign string, events []event) {
	t.Helper()
	s.post(t, http.StatusCreated, base+"/api/v1/campaigns/"+url.PathEscape(campaign)+"/events", map[string]any{"events": events})
}

// quickDeath are flags with which a poisonous event is dead soon.
var quickDeath = []string{"--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms"}

// startSeats starts a server for the seats projection.
func startSeats(t *testing.T, flags ...string) (*server, databases) {
	t.Helper()
	d := newDatabases(t)
	return start(t, d, append(flags, writeProjections(t, seatProjections)...)...), d
}

// awaitCounts waits for counts by status and for the campaigns' leases to be released.
func awaitCounts(t *testing.T, s *server, base string, pending, failed, dead int64) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("%d rows are pending, %d failed and %d dead", pending, failed, dead), func() (bool, string) {
		var sum summary
		s.get(t, base+"/api/v1/summary", &sum)
		c := sum.Counts
		return c.Pending == pending && c.Failed == failed && c.Dead == dead && c.Processing == 0 && sum.Campaigns.Leased == 0, fmt.Sprintf("%+v", sum)
	})
}

// change writes to a database behind the server's back, as an operator who fixes something does. It
// fails the test unless it changes a row.
func change(t *testing.T, place, statement string, args ...any) {
	t.Helper()
	db := connect(t, place, "_txlock=immediate")
	defer db.Close()
	result, err := db.Exec(statement, args...)
	must.Need(t, err == nil, "%s: %v", statement, err)
	n, err := result.RowsAffected()
	must.Need(t, err == nil && n != 0, "%s: changed %d rows (%v)", statement, n, err)
}

const freeSeat = "delete from seats where campaign_id = $1 and user_id = $2"
