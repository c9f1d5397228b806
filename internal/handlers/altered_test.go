package handlers

import (
	"strings"
	"testing"
)

// tamper changes events of the journal.
func (s *site) tamper(statement string) {
	s.t.Helper()
	of := ""
	if strings.HasPrefix(s.sub.Journal, "postgres") {
		of = " on events"
	}
	s.change("drop trigger if exists events_refuse_update" + of)
	s.change(statement)
}

func TestEvent_whoseContentDoesNotMatchItsHashSaysSo(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b", "c")
	s.work()
	const says = "Its content does not match its hash: it was changed after it was appended"
	s.get("/campaigns/c-1/events/2").want(t, 200, "applied").lacks(t, says)
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200).lacks(t, `"altered"`)
	s.tamper(`update events set payload = '{"amount":1000}' where campaign_id = 'c-1' and seq = 2`)
	s.get("/campaigns/c-1/events/2").want(t, 200, says, "#when-a-campaign-cannot-be-verified")
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"altered":true`)
	s.get("/campaigns/c-1/events/3").want(t, 200).lacks(t, says)

	// Documents that are shown only on demand are not checked.
	s.tamper(`update events set payload = '{"a":"` + strings.Repeat("x", 64<<10) + `"}' where campaign_id = 'c-1' and seq = 3`)
	s.get("/campaigns/c-1/events/3").want(t, 200).lacks(t, says)
	s.get("/api/v1/campaigns/c-1/events/3").want(t, 200).lacks(t, `"altered"`)
}

func TestRow_ofAnEventWhoseContentDoesNotMatchItsHashSaysSo(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	s.tamper(`update events set entity_id = 'somebody else' where campaign_id = 'c-1' and seq = 2`)
	s.get("/campaigns/c-1/events/2").want(t, 200, "Its content does not match its hash")
	s.get("/api/v1/rows/c-1/2").want(t, 200, `"altered":true`)
	s.get("/api/v1/rows/c-1/1").want(t, 200).lacks(t, `"altered"`)
}
