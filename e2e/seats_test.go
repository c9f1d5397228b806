package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// seatProjections is a read model that fails on some journals: no user may hold two seats of a campaign.
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
func seats(users ...string) (events []event) {
	for i, user := range users {
		events = append(events, taken(fmt.Sprintf("seat-%d", i+1), user))
	}
	return events
}

func appendTo(t *testing.T, s *server, base, campaign string, events []event) {
	s.post(t, http.StatusCreated, base+"/api/v1/campaigns/"+url.PathEscape(campaign)+"/events", map[string]any{"events": events})
}

// applied appends events to a campaign, and waits until everything is applied.
func applied(t *testing.T, s *server, campaign string, events []event) {
	appendTo(t, s, "", campaign, events)
	s.awaitSettled(t)
}

// quickDeath are flags with which a poisonous event is dead soon.
var quickDeath = []string{"--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms"}

func startSeats(t *testing.T, flags ...string) (*server, databases) {
	d := newDatabases(t)
	return start(t, d, append(flags, writeProjections(t, seatProjections)...)...), d
}

// poisoned makes databases in which event 2 of campaign poisoned is dead, and returns the flags to serve them with.
func poisoned(t *testing.T) (d databases, flags []string) {
	d, flags = newDatabases(t), slices.Concat(quickDeath, writeProjections(t, seatProjections))
	s := start(t, d, flags...)
	appendTo(t, s, "", "poisoned", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	must.Equal(t, s.stop(t), 0, "the server ended with")
	return d, flags
}

// awaitCounts waits for counts by status and for the campaigns' leases to be released.
func awaitCounts(t *testing.T, s *server, base string, pending, failed, dead int64) {
	eventually(t, fmt.Sprintf("%d rows are pending, %d failed and %d dead", pending, failed, dead), func() (bool, string) {
		sum := s.summary(t, base)
		c := sum.Counts
		return c.Pending == pending && c.Failed == failed && c.Dead == dead && c.Processing == 0 && sum.Campaigns.Leased == 0, fmt.Sprintf("%+v", sum)
	})
}

// change writes to a database behind the server's back, as an operator who fixes something does. It
// fails the test unless it changes a row.
func change(t *testing.T, place, statement string, args ...any) {
	db := connect(t, place, "_txlock=immediate")
	defer db.Close()
	n, err := must.Get(db.Exec(statement, args...)).Or(t).RowsAffected()
	must.Need(t, err == nil && n != 0, "%s: changed %d rows (%v)", statement, n, err)
}

const freeSeat = "delete from seats where campaign_id = $1 and user_id = $2"

// guestProjections is a read model that takes the name of a guest who came from an expression.
func guestProjections(name string) map[string]string {
	return map[string]string{"guests.sql": `
-- projection: guests
-- tables: guests

-- schema
create table guests (campaign_id text not null, seq bigint not null, name text not null, primary key (campaign_id, seq));

-- on: guest.came
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, ` + name + `);

-- on: guest.left
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.name!);
`}
}

func guest(eventType string) event {
	return event{EventType: eventType, Payload: map[string]any{"name": "ana"}}
}

type operationState struct {
	Status, Why string
	Totals      struct{ Done int64 }
	Groups      []struct{ Wave int64 }
}

func awaitOperation(t *testing.T, s *server, id int64) (o operationState) {
	eventually(t, fmt.Sprintf("operation %d ends", id), func() (bool, string) {
		s.get(t, fmt.Sprintf("/api/v1/operations/%d", id), &o)
		return o.Status != "running", o.Why
	})
	return o
}

type runDoc struct {
	ID                int64
	Status, Verdict   string
	Events, Campaigns struct{ Done, Total int64 }
	Counts            struct{ Drifted, Failed int64 }
}

func (r runDoc) active() bool {
	return r.Status == "queued" || r.Status == "running" || r.Status == "cancelling"
}

const rebuildPhrase = "rebuild all campaigns"

func startRun(t *testing.T, s *server, body map[string]any) (r runDoc) {
	body["confirm"] = rebuildPhrase
	s.post(t, http.StatusAccepted, "/api/v1/runs", body).decode(t, &r)
	return r
}

func awaitEnd(t *testing.T, s *server, id int64) (r runDoc) {
	eventually(t, fmt.Sprintf("run %d ends", id), func() (bool, string) {
		r = runDoc{}
		s.get(t, fmt.Sprintf("/api/v1/runs/%d", id), &r)
		return !r.active(), fmt.Sprintf("%+v", r)
	})
	return r
}
