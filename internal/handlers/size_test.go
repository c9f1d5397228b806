package handlers

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// largestPage is the limit of a page's HTML without payloads, in bytes.
const largestPage = 60 << 10

// payloads are the parts of events, of requests and of states that pages show as they are.
var payloads = regexp.MustCompile(`(?s)<pre.*?</pre>|<code class="small">.*?</code>`)

// longID is an id as systems make them.
func longID(kind, n int) string { return fmt.Sprintf("7d9f3c52-0e4b-4a6d-%04d-%012d", kind, n) }

// manyRows fills every list of the journal with more than a page of rows with long ids.
func (s *site) manyRows() {
	s.t.Helper()
	payload := []byte(`{"note":"` + strings.Repeat("long ", 100) + `"}`)
	for n := range 55 {
		event := func(eventType string) outbox.Event {
			return outbox.Event{CampaignID: longID(0, n), EventType: eventType, EventID: longID(1, 10*n+len(eventType)), ActorType: "user", ActorID: longID(2, n),
				EntityType: "subscription", EntityID: longID(3, n), RequestID: longID(4, n), CausationID: longID(5, n), Payload: payload}
		}
		events := []outbox.Event{event(poison), event(fmt.Sprint("subscription.renewed.", n%10)), event(fmt.Sprint("subscription.payment.received.", n%10))}
		must.Get(s.store.Append(s.t.Context(), store.Append{Events: events})).Or(s.t)
	}
	s.work()
	reason := strings.Repeat("why ", 10)
	for n := range 55 {
		campaign := longID(0, n)
		s.post("/api/v1/runs", fmt.Sprintf(`{"kind":"verify","campaign_ids":[%q],"reason":%q}`, campaign, reason)).want(s.t, http.StatusAccepted)
		s.post("/api/v1/operations", fmt.Sprintf(`{"filter":{"campaign_id":%q},"reason":%q}`, campaign, reason)).want(s.t, http.StatusAccepted)
	}
}

// Every page that needs no object is one of the registry, so that a new one is tested too.
func TestPages_areSmallWithAFullPageOfLongIDs(t *testing.T) {
	s := ownSite(t)
	s.manyRows()
	lists := 0
	err := chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodGet || strings.ContainsAny(route, "{*") || strings.HasPrefix(route, apiPrefix) || strings.HasPrefix(route, "/docs") {
			return nil
		}
		a := s.get(route)
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			return nil
		}
		html := payloads.ReplaceAllString(a.body, "")
		rows := strings.Count(html, "<tr")
		if rows > 50 {
			lists++
		}
		t.Logf("note: %s: %d bytes, %d rows", route, len(html), rows)
		if len(html) > largestPage {
			t.Errorf("%s has %d bytes of HTML in %d rows; the limit is %d", route, len(html), rows, largestPage)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lists < 6 {
		t.Errorf("%d lists have a full page, want events, rows, campaigns, runs, operations and audit", lists)
	}
}
