package e2e

import (
	"fmt"
	"strings"
	"testing"
)

const blobs = `-- projection: blobs
-- tables: blobs

-- schema
create table blobs (campaign_id text primary key, bytes bigint not null);

-- on: noted
insert into blobs (campaign_id, bytes) values (:campaign_id, 1) on conflict (campaign_id) do update set bytes = blobs.bytes + 1;

-- on: huge
update blobs set bytes = length(randomblob(900000000)) where campaign_id = :campaign_id;
`

// An event that needs more memory than available fails alone, and finally is dead; the process
// survives, and others go on.
func TestSQLiteServe_anEventThatNeedsTooMuchMemoryFailsAlone(t *testing.T) {
	t.Parallel()
	d := databases{dir: t.TempDir()}
	s := start(t, d, append([]string{"--max-attempts", "2", "--retry-base", "10ms"}, writeProjections(t, map[string]string{"blobs.sql": blobs})...)...)
	limitMemory(t, s.pid(), 500<<20)
	for _, c := range []struct{ campaign, eventType string }{{"a", "noted"}, {"culprit", "noted"}, {"culprit", "huge"}, {"culprit", "noted"}, {"z", "noted"}} {
		s.post(t, 201, "/api/v1/campaigns/"+c.campaign+"/events", event{EventType: c.eventType, Payload: map[string]any{}})
	}
	eventually(t, patience, "the event is dead", func() (bool, string) {
		c := campaignState(t, s, "culprit")
		return c.AppliedSeq == 1 && strings.Contains(c.Why, "Event 2 has been dead"), c.Why
	})
	for _, id := range []string{"a", "z"} {
		s.post(t, 201, "/api/v1/campaigns/"+id+"/events", event{EventType: "noted", Payload: map[string]any{}})
		eventually(t, patience, "campaign "+id+" goes on", func() (bool, string) {
			c := campaignState(t, s, id)
			return c.AppliedSeq == 2, fmt.Sprint(c)
		})
	}
}
