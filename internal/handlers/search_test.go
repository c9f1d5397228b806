package handlers

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

func (s *site) placed(id string, more ...func(*outbox.Event)) {
	s.t.Helper()
	e := outbox.Event{CampaignID: "orders", EventType: "order.placed", EntityType: "order", EntityID: id, RequestID: "req-" + id, Payload: []byte(`{"order":"` + id + `","password":"hunter2"}`)}
	for _, change := range more {
		change(&e)
	}
	must.Get(s.store.Append(s.t.Context(), store.Append{Events: []outbox.Event{e}})).Or(s.t)
}

func TestSearch_leadsToTheOnlyThingNamed(t *testing.T) {
	s := ownSite(t).trouble()
	s.placed("17", func(e *outbox.Event) { e.EventID = "ev-17" })
	for text, want := range map[string]string{
		"c-1":      "/campaigns/c-1",
		" c-1/2 ":  "/campaigns/c-1/events/2",
		"ev-17":    "/campaigns/orders/events/1",
		"order 17": "/events?entity_id=17&entity_type=order",
		"req-17":   "/events?request_id=req-17",
		"":         "/events",
	} {
		a := s.get("/search?q="+url.QueryEscape(text)).want(t, http.StatusSeeOther)
		a.header(t, "Location", want)
	}
}

func TestSearch_offersWhatATextMayMean(t *testing.T) {
	s := ownSite(t).trouble()
	s.placed("17")
	s.get("/search?q=c-").want(t, 200, `data-testid="found-campaign"`, `href="/campaigns/c-1"`, `data-testid="elsewhere"`)
	s.get("/search?q=zzz").want(t, 200, `data-testid="nothing-found"`, `href="/events?q=zzz"`, `href="/audit?request_id=zzz"`)
	s.get("/search?q=%3Cscript%3Ealert(1)%3C/script%3E").want(t, 200, "&lt;script&gt;").lacks(t, "<script>alert")
	a := s.get("/search?q=order+17+-1d").want(t, 200, `data-testid="found-range"`, "recorded 20")
	first := a.body[strings.Index(a.body, `data-testid="found-range"`):]
	first = first[strings.Index(first, `href="`)+6:]
	first = strings.ReplaceAll(first[:strings.Index(first, `"`)], "&amp;", "&")
	to, err := url.Parse(first)
	if err != nil || to.Path != "/events" || to.Query().Get("entity_id") != "17" || to.Query().Get("entity_type") != "order" || to.Query().Get("since") == "" {
		t.Errorf("the first suggestion is %s", first)
	}
	s.get("/search/suggestions?q=c-1").want(t, 200, `role="option"`, `data-href="/campaigns/c-1"`).lacks(t, "<html", "<script")
	s.get("/search/suggestions?q=").want(t, 200).lacks(t, "<li")
	s.get("/search?q="+strings.Repeat("x", 501)).want(t, 422)
}

func TestEvents_aRelativeTimeBecomesAbsoluteInTheAddress(t *testing.T) {
	s := ownSite(t)
	s.placed("17")
	now := s.srv.Now().UTC()
	for text, want := range map[string]time.Time{
		"-2h":                              now.Add(-2 * time.Hour).Truncate(time.Second),
		now.Add(time.Hour).Format("15:04"): now.Add(-23 * time.Hour).Truncate(time.Minute),
	} {
		a := s.get("/events?q=x&since="+url.QueryEscape(text)).want(t, http.StatusSeeOther)
		to, _ := url.Parse(a.Header.Get("Location"))
		got, err := time.Parse(time.RFC3339Nano, to.Query().Get("since"))
		must.Hold(t, err == nil && got.Equal(want) && to.Query().Get("q") == "x", "%q leads to %s, want since %s", text, to, want)
		s.get(a.Header.Get("Location")).want(t, 200, "<h1>Find events", ">Recorded <strong>since "+want.Format("2006-01-02 15:04:05")+" UTC")
		a = s.get("/audit?since="+url.QueryEscape(text)).want(t, http.StatusSeeOther)
		a.header(t, "Location", "/audit?since="+url.QueryEscape(outbox.FormatSince(want)))
	}
	s.get("/events?since=soon").want(t, 422, "14:00")
	s.get("/events?since=2026-11-22&until=2026-11-20").want(t, 422, "ince must be before until")
	s.get("/api/v1/events?since=-2h").want(t, 200, `"items":`)
	s.get("/api/v1/events?tag=x").want(t, 422, "name=value")
	s.get("/api/v1/events?nothing=x").want(t, 422, "nothing")
}

func TestEvents_areFoundByWhenTheyOccurred(t *testing.T) {
	s := ownSite(t)
	s.placed("17", func(e *outbox.Event) { e.OccurredAt = time.Date(2025, 3, 4, 14, 5, 0, 0, time.UTC) })
	s.placed("18")
	const at, byOccurrence = "since=2025-03-04T14:00:00Z&until=2025-03-04T14:10:00Z", `data-testid="by-occurrence"`
	s.get("/events?"+at).want(t, 200, "No events match", ">Recorded <strong>2025-03-04 14:00:00 to 14:10:00 UTC", byOccurrence, "time=occurred")
	s.get("/events?time=occurred&"+at).want(t, 200, ">Occurred <strong>2025-03-04 14:00:00", "occurred <time", "/orders/events/1\"", `<option value="occurred" selected`).
		lacks(t, "/orders/events/2\"", byOccurrence)
	found := decodeAs[outbox.FoundEvents](t, s.get("/api/v1/events?time=occurred&"+at))
	must.Hold(t, len(found.Items) == 1 && found.Looked.First == 2 && found.Looked.Last == 1, "found %+v", found)
	s.get("/api/v1/events?time=x").want(t, 422, "time")
}

// An empty list says which values do not exist; what is hidden does not.
func TestEvents_anEmptySearchSaysWhichValuesNothingHas(t *testing.T) {
	s := ownSite(t)
	const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	s.placed(token, func(e *outbox.Event) { e.CampaignID, e.RequestID, e.EventID = "store-07", "Req-a", "EV-17" })
	s.placed("18", func(e *outbox.Event) { e.CampaignID, e.EventType = "store-12", "order.paid" })
	for query, want := range map[string]string{
		"event_type=order.payed":                   "No event has the type order.payed.",
		"campaign=store-007&event_type=order.paid": "There is no campaign store-007.",
		"entity_id=99":                             "No event has the entity id 99.",
		"request_id=req-a":                         "No event has the request id req-a.",
		"event_id=ev-17":                           "No event has the id ev-17.",
		"q=Order.Paid":                             "No events match",
	} {
		s.get("/events?"+query).want(t, 200, "No events match", want, "upper and lower case differ")
	}
	s.get("/events?entity_id="+token).want(t, 200, `data-testid="misses"`)
	s.get("/events?campaign=store-07&event_type=order.paid").want(t, 200, "No events match", "Searched events").lacks(t, `data-testid="misses"`, "Found by")
	s.get("/rows?q=STORE").want(t, 200, "No rows match", "upper and lower case differ")
	s.get("/campaigns?q=store-007").want(t, 200, "No campaigns match", "upper and lower case differ")
}

// The settled position is shown on request, where a condition can ask for the same events.
func TestEvents_showTheSettledPosition(t *testing.T) {
	s := ownSite(t)
	s.placed("17")
	s.placed("18")
	const asked, settled = "/events?event_type=order.placed&amp;settled=true", `data-testid="settled"`
	s.get("/events?event_type=order.placed").want(t, 200, `href="`+asked+`"`).lacks(t, settled)
	s.get("/events?event_type=order.placed&settled=true").want(t, 200, settled, "Settled position <code>2</code>", `href="/docs/appending#conditional-appends"`, "/api/v1"+asked).lacks(t, `data-testid="show-settled"`)
	s.get("/events?event_type=order.placed&settled=true&limit=1").want(t, 200, settled, `data-testid="next-page"`).lacks(t, "cursor=1&amp;limit=1&amp;settled")
	for _, other := range []string{"", "q=x", "entity_id=17", "event_type=order.placed&q=x", "event_type=order.placed&since=-2h", "tag=password%3Dhunter2"} {
		s.get("/events?"+other).lacks(t, settled, `data-testid="show-settled"`)
	}
	s.get("/events?settled=true").want(t, 200).lacks(t, ">Clear<")
	s.get("/events?q=x&settled=true").want(t, 422, "settled")
}

func TestEvents_showAndFindNothingHidden(t *testing.T) {
	s := ownSite(t)
	s.placed("17")
	for _, base := range []string{"/events", "/api/v1/events"} {
		s.get(base+"?entity_id=17").want(t, 200, "[redacted]", "order.placed").lacks(t, "hunter")
		s.get(base+"?q=%22order%22").want(t, 200, "[redacted]").lacks(t, "hunter")
		for _, guess := range []string{"h", "hu", "hunter2", `password":"h`} {
			a := s.get(base + "?q=" + url.QueryEscape(guess))
			must.Hold(t, !strings.Contains(a.body, "order.placed\"") || !strings.Contains(a.body, "[redacted]"), "%s: %q finds the event", base, guess)
		}
	}
}

func TestEvents_sayHowFarTheyLooked(t *testing.T) {
	s := ownSite(t)
	for range 5 {
		s.placed("17")
	}
	s.get("/events?q=nowhere").want(t, 200, "No events match", "Looked through events 5–1, back to ")
	a := s.get("/events?q=order&limit=2").want(t, 200, "Looked through events 5–4", `data-testid="next-page"`)
	a.times(t, 2, `<tr id="event-`)
	s.get("/events?entity_id=17").want(t, 200, "Found by an index in events 5–1")
}

func TestViews_areKeptPerReaderAndGuardedLikeForms(t *testing.T) {
	s := ownSite(t).trouble()
	form := url.Values{"list": {"rows"}, "name": {"<b>mine</b>"}, "query": {"status=dead&cursor=x"}}.Encode()
	a := s.submit("/views", form).want(t, http.StatusSeeOther)
	a.header(t, "Location", "/rows?status=dead")
	s.get("/rows").want(t, 200, `href="/rows?status=dead"`, "&lt;b&gt;mine&lt;/b&gt;", "shared: this server has no authentication").lacks(t, "<b>mine")
	s.get("/campaigns").want(t, 200).lacks(t, "mine")
	s.submit("/views", form, header("Sec-Fetch-Site", "cross-site")).want(t, http.StatusForbidden)
	s.submit("/views", "list=nothing&name=x").want(t, 422)
	views, err := s.srv.Search.Views(t.Context(), "local", "rows")
	if err != nil || len(views) != 1 {
		t.Fatal(views, err)
	}
	at := "/views/" + url.PathEscape("1")
	s.submit(at+"/rename", "list=rows&name=ours").want(t, http.StatusSeeOther)
	s.get("/rows").want(t, 200, ">ours<")
	s.submit(at+"/remove", "list=rows&name=ours").want(t, http.StatusSeeOther)
	s.get("/rows").want(t, 200).lacks(t, ">ours<")
	s.submit(at+"/remove", "list=rows").want(t, http.StatusNotFound)
	acts, err := s.store.AuditLog(t.Context(), outbox.AuditFilter{})
	must.Hold(t, err == nil && len(acts.Items) == 0, "audited: %v, %v", acts.Items, err)
}
