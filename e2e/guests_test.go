package e2e

import (
	"fmt"
	"testing"
)

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

-- on: guest.waved
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.name!);
`}
}

func guest(eventType string) event {
	return event{EventType: eventType, Payload: map[string]any{"name": "ana"}}
}

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

func awaitOperation(t *testing.T, s *server, id int64) (o operationState) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("operation %d ends", id), func() (bool, string) {
		s.get(t, fmt.Sprintf("/api/v1/operations/%d", id), &o)
		return o.Status != "running", o.Why
	})
	return o
}
