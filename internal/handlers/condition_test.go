package handlers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestAppend_underACondition(t *testing.T) {
	s := ownSite(t)
	s.get("/api/v1/journal").want(t, 200, `{"position":0}`)
	take := func(seat string, after int) string {
		return fmt.Sprintf(`{"events":[{"event_id":"e-%[1]s-%[2]d","event_type":"seat.taken","tags":{"seat":%[1]q},"payload":{}}],
			"condition":{"after_position":%[2]d,"items":[{"event_types":["closed"]},{"event_types":["seat.taken"],"tags":{"seat":%[1]q,"campaign_id":"c-1"}}]}}`, seat, after)
	}
	s.post("/api/v1/campaigns/c-1/events", take("7", 0)).want(t, 201, `"position":1`)
	s.post("/api/v1/campaigns/c-1/events", take("7", 0)).want(t, 200, `"existed":true`)
	s.get("/api/v1/journal").want(t, 200, `{"position":1}`)
	s.post("/api/v1/campaigns/c-1/events", take("7", 1)).want(t, 201, `"position":2`)
	s.post("/api/v1/campaigns/c-1/events", take("8", 0)).want(t, 201, `"position":3`)

	again := strings.Replace(take("8", 0), "e-8-0", "e-other", 1)
	a := s.post("/api/v1/campaigns/c-1/events", again).want(t, 409, `"blocking_event":{"position":3,"campaign_id":"c-1","seq":3,"event_type":"seat.taken"}`,
		`"detail":"conflicting event 3 (seat.taken, campaign \"c-1\" seq 3): it came after position 0 and matches item 2 of the condition; read on from there and decide again"`)
	if p := decodeAs[problem](t, a); p.BlockingEvent == nil || *p.BlockingEvent != (outbox.EventRef{Position: 3, CampaignID: "c-1", Seq: 3, EventType: "seat.taken"}) {
		t.Errorf("problem is %+v", p)
	}
	both := `{"expected_seq":%d,"events":[{"event_type":"a","payload":{}}],"condition":{"items":[{"tags":{"seat":"9"}}]}}`
	s.post("/api/v1/campaigns/c-1/events", fmt.Sprintf(both, 2)).want(t, 409, "is at seq 3")
	s.post("/api/v1/campaigns/c-1/events", fmt.Sprintf(both, 3)).want(t, 201)
	s.post("/api/v1/campaigns/c-1/events", `{"events":[{"event_type":"a","payload":{}}],"condition":null}`).want(t, 201)
}

func TestAppend_saysWhatIsWrongWithACondition(t *testing.T) {
	s := ownSite(t)
	for condition, texts := range map[string][]string{
		`{}`:                              {`"condition.items":`, "at least one item"},
		`{"items":[]}`:                    {`"condition.items":`},
		`{"items":[{}]}`:                  {`"condition.items[0]":`, "matches nothing"},
		`{"items":[{"tags":{"seat":1}}]}`: {`"condition.items.tags":`, "cannot be a number"},
		`{"items":[{"event_types":"a"}]}`: {`"condition.items.event_types":`, "cannot be a string"},
		`{"items":[{"types":["a"]}]}`:     {`"condition":`, `unknown field \"types\"`},
		`{"items":[{"event_types":["a.*"]}],"after_position":0}`: {`"condition.items[0].event_types":`, "takes exact event types"},
		`{"items":[{"event_types":["a"]}],"after_position":-1}`:  {`"condition.after_position":`, "0 or more"},
		`[]`: {`"condition":`, "not a array"},
		`{"items":[` + strings.Repeat(`{"event_types":["a"]},`, 100) + `{"event_types":["a"]}]}`: {`"condition.items":`, "at most 100 items"},
	} {
		s.post("/api/v1/campaigns/c-1/events", `{"events":[{"event_type":"a","payload":{}}],"condition":`+condition+`}`).want(t, 422, texts...)
	}
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{},"condition":{"items":[{"event_types":["a"]}]}}`).want(t, 422, `"condition":`)
	s.get("/api/v1/campaigns/c-1").want(t, 404)
}
