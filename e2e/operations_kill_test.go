package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// guestProjections is a read model with two mistakes: it reads a name from two fields that no event
// has. Events can never succeed with it, so they are dead at once.
func guestProjections(came, left string) map[string]string {
	return map[string]string{"guests.sql": `
-- projection: guests
-- tables: guests

-- schema
create table guests (campaign_id text not null, seq bigint not null, name text not null, primary key (campaign_id, seq));

-- on: guest.came
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + came + `);

-- on: guest.left
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + left + `!);

-- on: guest.waved
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.name!);
`}
}

func guest(eventType string) event {
	return event{EventType: eventType, Payload: map[string]any{"name": "ana"}}
}

// operationState is the API's state of an operation.
type operationState struct {
	Status string
	Why    string
	Totals struct {
		Chosen, Waiting, Requeued, Done, Skipped, Left int64
		FailedAgain                                    int64 `json:"failed_again"`
	}
	Groups []struct {
		Wave   int64
		Totals struct{ Chosen int64 }
	}
}

// awaitOperation waits until an operation has ended.
func awaitOperation(t *testing.T, s *server, id int64) (o operationState) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("operation %d ends", id), func() (bool, string) {
		s.get(t, fmt.Sprintf("/api/v1/operations/%d", id), &o)
		return o.Status != "running", o.Why
	})
	return o
}

// An operation on a killed server is continued by the next one.
func TestOperation_survivesKill(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := append(writeProjections(t, guestProjections("nam", "name")), "--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms", "--lease", "2s")
	s := start(t, d, flags...)
	for i := range 40 {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.came"), guest("guest.waved")})
	}
	awaitCounts(t, s, "", 40, 0, 40)
	s.stop(t)
	flags = append(writeProjections(t, guestProjections("name", "name")), flags[2:]...)
	s = start(t, d, flags...)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": true, "reason": "mended"})
	eventually(t, patience, "the operation is half way", func() (bool, string) {
		var o operationState
		s.get(t, "/api/v1/operations/1", &o)
		return o.Totals.Done > 0, o.Why
	})
	s.kill()
	s = start(t, d, flags...)
	if o := awaitOperation(t, s, 1); o.Status != "done" || o.Totals.Done != 40 {
		t.Errorf("the operation is %+v, want all 40 rows done", o)
	}
	s.awaitSettled(t)
}
