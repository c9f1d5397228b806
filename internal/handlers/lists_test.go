package handlers

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// link is where the element with a test id leads; empty when there is none.
func (a answer) link(id string) string {
	m := regexp.MustCompile(`href="([^"]*)" data-testid="` + id + `"`).FindStringSubmatch(a.body)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// marks are the test ids on a page that begin with the prefix.
func (a answer) marks(prefix string) (ids []string) {
	for _, m := range regexp.MustCompile(`id="(`+prefix+`[^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		ids = append(ids, m[1])
	}
	return slices.Compact(ids)
}

func TestLists_leadOnAndBackToWhatWasShown(t *testing.T) {
	s := ownSite(t)
	for i := range 7 {
		s.seed(fmt.Sprint("c-", i), "a")
		s.kit.Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, status)
values ('a', $1, 'log:', '{"event_types":["*"]}', 10, 0, 1, 1, $2)`, fmt.Sprint("p-", i), []string{"active", "failed"}[i%2])
		s.submit(fmt.Sprintf("/campaigns/c-%d/pause", i), "reason=look").want(t, http.StatusSeeOther)
	}
	for list, mark := range map[string]string{
		"/rows?limit=3": "row-c-", "/rows?limit=3&reverse=true": "row-c-", "/rows?limit=3&event_type=a": "row-c-", "/campaigns?limit=3&sort=lag": "campaign-c-",
		"/campaigns?limit=3&state=paused&reverse=true": "campaign-c-",
		"/publishers?limit=3":                          "publisher-a/",
	} {
		first := s.get(list).want(t, 200, "3 of 7 shown")
		second := s.get(first.link("next-page")).want(t, 200, "3 of 7 shown", `rel="prev"`, `rel="next"`)
		third := s.get(second.link("next-page")).want(t, 200, "1 of 7 shown", "the end")
		must.Hold(t, first.link("prev-page") == "" && first.link("first-page") == "" && third.link("next-page") == "", "%s: its ends lead further", list)
		must.Need(t, first.link("next-page") != "" && len(first.marks(mark)) == 3, "%s: the first page has %v", list, first.marks(mark))
		back := s.get(third.link("prev-page"))
		start := s.get(back.link("prev-page"))
		must.Same(t, back.marks(mark), second.marks(mark), list, "back from the third page")
		must.Same(t, start.marks(mark), first.marks(mark), list, "back again")
		must.Equal(t, start.link("prev-page"), "", list, "before its start")
		must.Same(t, s.get(third.link("first-page")).marks(mark), first.marks(mark), list, "the first page")
	}
	s.seed("c-1", "b", "c", "d", "e")
	s.get("/api/v1/campaigns/c-1/events?limit=2").want(t, 200, `"next_cursor":"2","prev_cursor":null,"total":5`)
	s.get("/api/v1/campaigns/c-1/events?limit=2&cursor=2").want(t, 200, `"next_cursor":"4","prev_cursor":"0"`)
	s.get("/api/v1/campaigns/c-1/events?limit=2&after_seq=4&cursor=0").want(t, 200, `"seq":1`).lacks(t, `"seq":5`)
	page := decodeAs[event.Page[operator.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause").want(t, 200))
	next := decodeAs[event.Page[operator.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause&cursor="+*page.NextCursor).want(t, 200, `"total":7,"total_capped":false`))
	back := decodeAs[event.Page[operator.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause&cursor="+*next.PrevCursor).want(t, 200, `"prev_cursor":null`))
	must.Need(t, len(page.Items) == 3 && next.Items[0].ID < page.Items[2].ID, "acts are %v, then %v", page.Items, next.Items)
	must.Same(t, back.Items, page.Items, "acts on the way back")
}

func TestLists_sortByHeadsThatHaveAnIndex(t *testing.T) {
	s := ownSite(t).trouble().seed("c-0", poison).work()
	for page, texts := range map[string][]string{
		"/rows":                             {`<a href="/rows?sort=seq">Row`, `<th scope="col">Status</th>`},
		"/rows?sort=seq":                    {`aria-sort="ascending"><a href="/rows?reverse=true&amp;sort=seq">Row`, `name="sort" value="seq"`},
		"/rows?reverse=true&sort=seq&q=c":   {`aria-sort="descending"><a href="/rows?q=c&amp;sort=seq">Row`, `name="reverse" value="true"`},
		"/rows?status=dead":                 {`aria-sort="ascending"><a href="/rows?reverse=true&amp;status=dead">Status, next attempt`, `<th scope="col">Row</th>`},
		"/rows?status=dead&campaign=c-1":    {`aria-sort="ascending"><a href="/rows?campaign=c-1&amp;reverse=true&amp;status=dead">Row`},
		"/campaigns":                        {`<a href="/campaigns?sort=id">Campaign`, `<a href="/campaigns?sort=lag">Behind`, `<a href="/campaigns?sort=age">For`, `<th scope="col">State</th>`},
		"/campaigns?sort=id":                {`aria-sort="ascending"><a href="/campaigns?reverse=true&amp;sort=id">Campaign`},
		"/campaigns?sort=lag&state=blocked": {`class="n ctl" aria-sort="descending"><a href="/campaigns?reverse=true&amp;sort=lag&amp;state=blocked">Behind`, `<a href="/campaigns?sort=id&amp;state=blocked">Campaign`},
		"/campaigns?sort=age&reverse=true":  {`aria-sort="ascending"><a href="/campaigns?sort=age">For`, `name="reverse" value="true"`},
		"/audit?action=pause&reverse=true":  {`No actions match`},
	} {
		s.get(page).want(t, 200, texts...)
	}
	s.get("/export/rows?format=csv&reverse=tru").want(t, 422, "true or false")
	first := s.get("/rows?status=dead").marks("row-")
	last := s.get("/rows?status=dead&reverse=true").marks("row-")
	must.Hold(t, len(first) == 2 && first[0] == last[1] && first[1] == last[0], "dead rows are %v, in reverse %v", first, last)
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	s.get("/audit").want(t, 200, `aria-sort="descending"><a href="/audit?reverse=true">When`)
	s.get("/campaigns/c-2").want(t, 200, `<th scope="col">When</th>`)
}

func TestLists_answerEveryChoiceOfTheirForms(t *testing.T) {
	s := ownSite(t).trouble()
	choices, values := regexp.MustCompile(`(?s)<select[^>]* name="([^"]+)".*?</select>`), regexp.MustCompile(`<option value="([^"]+)"`)
	for _, list := range []string{"/audit", "/campaigns", "/events"} {
		found := choices.FindAllStringSubmatch(s.get(list).body, -1)
		must.Need(t, len(found) > 0, "%s has no choices", list)
		for _, c := range found {
			for _, v := range values.FindAllStringSubmatch(c[0], -1) {
				s.get(list+"?"+c[1]+"="+url.QueryEscape(html.UnescapeString(v[1]))).want(t, 200)
			}
		}
	}
}

func TestRows_revisionsTellWhatHasChanged(t *testing.T) {
	s := ownSite(t).trouble()
	revision := func(seq int) string {
		m := regexp.MustCompile(fmt.Sprintf(`id="row-c-1-%d" data-rev="([^"]+)"`, seq)).FindStringSubmatch(s.get("/rows").body)
		must.Need(t, m != nil, "row %d has no revision", seq)
		return m[1]
	}
	dead, waiting := revision(2), revision(3)
	must.Equal(t, dead, revision(2), "a row that has not changed has another revision")
	s.clock = s.clock.Add(time.Second)
	s.post("/api/v1/rows/c-1/2/requeue", "{}").want(t, 200)
	must.Hold(t, dead != revision(2) && waiting == revision(3), "of the two, the requeued row must have another revision")
}

func TestAudit_filtersByTime(t *testing.T) {
	s, days := ownSite(t).seed("c-1", "a"), []string{"2026-11-20", "2026-11-21", "2026-11-22"}
	for i, day := range days {
		at := must.Get(time.Parse(time.DateOnly, day)).Or(t)
		s.clock = at.Add(23*time.Hour + 30*time.Minute)
		s.submit("/campaigns/c-1/"+[]string{"pause", "resume", "pause"}[i], "reason=day-"+day).want(t, http.StatusSeeOther)
	}
	for query, want := range map[string][]int{
		"since=2026-11-21": {1, 2}, "until=2026-11-21": {0, 1}, "since=2026-11-21&until=2026-11-21": {1}, "since=2026-11-21T23:30:00Z": {1, 2},
		"until=2026-11-21T23:30:00Z": {0}, "since=2026-11-21T23:30:00-01:00": {2}, "since=2026-11-23": {}, "campaign=c-1&since=2026-11-22": {2},
	} {
		a := s.get("/audit?"+strings.ReplaceAll(query, "+", "%2B")).want(t, 200)
		for i, day := range days {
			must.Equal(t, strings.Contains(a.body, "day-"+day), strings.Contains(fmt.Sprint(want), fmt.Sprint(i)), query, "act of", day, "shown")
		}
	}
	s.get("/audit?since=2026-11-21&until=2026-11-21").want(t, 200, `name="since" value="2026-11-21"`, `name="until" value="2026-11-21"`, "since=2026-11-21&amp;until=2026-11-21")
	s.get("/api/v1/audit?since=soon").want(t, 422, "since")
	s.get("/api/v1/audit?until=9999-12-31").want(t, 422, "until")
}

func (s *site) placed(id string, more ...func(*event.Event)) {
	e := event.Event{CampaignID: "orders", EventType: "order.placed", EntityType: "order", EntityID: id, RequestID: "req-" + id, Payload: []byte(`{"order":"` + id + `","password":"hunter2"}`)}
	for _, change := range more {
		change(&e)
	}
	s.kit.MustAppend(e)
}

func TestSearch_leadsToTheOnlyThingNamedOrOffersWhatATextMayMean(t *testing.T) {
	s := ownSite(t).trouble()
	s.placed("17", func(e *event.Event) { e.EventID = "ev-17" })
	s.placed("c-9", func(e *event.Event) { e.CampaignID, e.CorrelationID = "c-9", "flow-9" })
	s.submit("/campaigns/c-9/pause", "reason=x")
	request := decodeAs[items[operator.AuditEntry]](t, s.get(apiPrefix+"/audit?campaign=c-9").want(t, 200)).Items[0].RequestID
	for text, want := range map[string]string{"c-9": "/campaigns/c-9", "flow-9": "/events?q=flow-9", request: "/audit?request_id=" + request, "c-1": "/campaigns/c-1", " c-1/2 ": "/campaigns/c-1/events/2", "ev-17": "/campaigns/orders/events/1",
		"order 17": "/events?entity_id=17&entity_type=order", "req-17": "/events?request_id=req-17", "": "/events"} {
		s.get("/search?q="+url.QueryEscape(text)).want(t, http.StatusSeeOther).header(t, "Location", want)
	}
	s.get("/search?q=c-").want(t, 200, `data-testid="found-campaign"`, `href="/campaigns/c-1"`, `data-testid="elsewhere"`)
	s.get("/search?q=zzz").want(t, 200, `data-testid="nothing-found"`, `href="/events?q=zzz"`, `href="/audit?request_id=zzz"`)
	s.get("/search?q=%3Cscript%3Ealert(1)%3C/script%3E").want(t, 200, "&lt;script&gt;").lacks(t, "<script>alert")
	s.get("/search?q=order+17+-1d").want(t, 200, `data-testid="found-range"`, "recorded 20", `href="/events?entity_id=17&amp;entity_type=order&amp;since=20`)
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
		a.header(t, "Location", "/audit?since="+url.QueryEscape(event.FormatSince(want)))
	}
	s.get("/events?since=soon").want(t, 422, "14:00")
	s.get("/events?since=2026-11-22&until=2026-11-20").want(t, 422, "ince must be before until")
	s.get("/api/v1/events?since=-2h").want(t, 200, `"items":`)
	s.get("/api/v1/events?tag=x").want(t, 422, "name=value")
}

func TestEvents_areFoundByWhenTheyOccurred(t *testing.T) {
	s := ownSite(t)
	s.placed("17", func(e *event.Event) { e.OccurredAt = time.Date(2025, 3, 4, 14, 5, 0, 0, time.UTC) })
	s.placed("18")
	const at, byOccurrence = "since=2025-03-04T14:00:00Z&until=2025-03-04T14:10:00Z", `data-testid="by-occurrence"`
	s.get("/events?"+at).want(t, 200, "No events match", ">Recorded <strong>2025-03-04 14:00:00 to 14:10:00 UTC", byOccurrence, "time=occurred")
	s.get("/events?time=occurred&"+at).want(t, 200, ">Occurred <strong>2025-03-04 14:00:00", "occurred <time", "/orders/events/1\"", `<option value="occurred" selected`).
		lacks(t, "/orders/events/2\"", byOccurrence)
	found := decodeAs[search.FoundEvents](t, s.get("/api/v1/events?time=occurred&"+at))
	must.Hold(t, len(found.Items) == 1 && found.Looked.First == 2 && found.Looked.Last == 1, "found %+v", found)
	s.get("/api/v1/events?time=x").want(t, 422, "time")
}

// An empty list says which values do not exist; what is hidden does not.
func TestEvents_anEmptySearchSaysWhichValuesNothingHas(t *testing.T) {
	s := ownSite(t)
	const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	s.placed(token, func(e *event.Event) { e.CampaignID, e.RequestID, e.EventID = "store-07", "Req-a", "EV-17" })
	s.placed("18", func(e *event.Event) { e.CampaignID, e.EventType = "store-12", "order.paid" })
	for query, want := range map[string]string{
		"event_type=order.payed":                   "No event has the type order.payed.",
		"campaign=store-007&event_type=order.paid": "There is no campaign store-007.",
		"entity_id=99":                             "No event has the entity id 99.",
		"event_id=ev-17":                           "No event has the id ev-17.",
	} {
		s.get("/events?"+query).want(t, 200, "No events match", want, "upper and lower case differ")
	}
	s.get("/events?entity_id="+token).want(t, 200, `data-testid="misses"`)
	s.get("/events?campaign=store-07&event_type=order.paid").want(t, 200, "No events match", "Searched events").lacks(t, `data-testid="misses"`, "Found by")
	s.get("/rows?q=STORE").want(t, 200, "No rows match", "upper and lower case differ")
	s.get("/campaigns?q=store-007").want(t, 200, "No campaigns match", "upper and lower case differ")
}

// A list says how far it looked, and on request the settled position, where a condition can ask for the same events. Nothing hidden is found.
func TestEvents_sayHowFarTheyLookedAndFindNothingHidden(t *testing.T) {
	s := ownSite(t)
	for range 5 {
		s.placed("17")
	}
	const asked, settled = "/events?event_type=order.placed&amp;settled=true", `data-testid="settled"`
	s.get("/events?event_type=order.placed").want(t, 200, `href="`+asked+`"`).lacks(t, settled)
	s.get("/events?event_type=order.placed&settled=true").want(t, 200, settled, "Settled position <code>5</code>", `href="/docs/appending#conditional-appends"`, "/api/v1"+asked).lacks(t, `data-testid="show-settled"`)
	next := s.get("/events?event_type=order.placed&settled=true&limit=1").want(t, 200, settled).link("next-page")
	must.Hold(t, next != "" && !strings.Contains(next, "settled"), "the next page is %q", next)
	for _, other := range []string{"", "q=x", "entity_id=17", "event_type=order.placed&q=x", "event_type=order.placed&since=-2h", "tag=password%3Dhunter2"} {
		s.get("/events?"+other).lacks(t, settled, `data-testid="show-settled"`)
	}
	s.get("/events?settled=true").want(t, 200).lacks(t, ">Clear<")
	s.get("/events?q=x&settled=true").want(t, 422, "settled")
	s.get("/events?q=nowhere").want(t, 200, "No events match", "Looked through events 5–1, back to ")
	s.get("/events?q=order&limit=2").want(t, 200, "Looked through events 5–4", `data-testid="next-page"`).times(t, 2, `<tr id="event-`)
	s.get("/events?entity_id=17").want(t, 200, "Found by an index in events 5–1")
	for _, base := range []string{"/events", "/api/v1/events"} {
		s.get(base+"?entity_id=17").want(t, 200, "[redacted]", "order.placed").lacks(t, "hunter")
		s.get(base+"?q=%22order%22").want(t, 200, "[redacted]").lacks(t, "hunter")
		s.get(base+"?q=hunter2").want(t, 200).lacks(t, "[redacted]")
	}
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
	must.Equal(t, len(must.Get(s.srv.Search.Views(t.Context(), "local", "rows")).Or(t)), 1, "views")
	at := "/views/" + url.PathEscape("1")
	s.submit(at+"/rename", "list=rows&name=ours").want(t, http.StatusSeeOther)
	s.get("/rows").want(t, 200, ">ours<")
	s.submit(at+"/remove", "list=rows&name=ours").want(t, http.StatusSeeOther)
	s.get("/rows").want(t, 200).lacks(t, ">ours<")
	s.submit(at+"/remove", "list=rows").want(t, http.StatusNotFound)
	acts, err := s.store.AuditLog(t.Context(), operator.AuditFilter{})
	must.Hold(t, err == nil && len(acts.Items) == 0, "audited: %v, %v", acts.Items, err)
}

// spoilers are campaign ids that break careless exports.
var spoilers = []string{`=cmd|' /C calc'!A0`, "+1", "-1", "@sum(a1)", "  =1", "\u00a0@x", "＝1", "﹢1", `a "b", c`, "ü✓", "'quoted", "a;b", "plain"}

func TestExport_jsonIsWhatTheListHas(t *testing.T) {
	s := ownSite(t).trouble()
	for _, id := range spoilers {
		s.seed(id, "a", "b")
	}
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	for _, list := range []string{"rows", "rows?status=dead", "rows?event_type=b&reverse=true", "rows?campaign=none", "campaigns", "campaigns?state=blocked&sort=age", "campaigns?q=none", "audit?actor=none", "audit", "audit?action=pause"} {
		name, query, _ := strings.Cut(list, "?")
		listed := decodeAs[struct{ Items []any }](t, s.get("/api/v1/"+name+"?limit=200&"+query).want(t, 200))
		for _, prefix := range []string{"", apiPrefix} {
			exported := decodeAs[[]any](t, s.get(prefix+"/export/"+name+"?format=json&bom=true&"+query).want(t, 200))
			must.Same(t, exported, listed.Items, list, "as the list has it")
		}
		records, err := csv.NewReader(strings.NewReader(s.get("/export/"+name+"?format=csv&"+query).want(t, 200).body)).ReadAll()
		must.Hold(t, err == nil && len(records) == len(listed.Items)+1, "%s: %d records, %v, want a header and %d", list, len(records), err, len(listed.Items))
	}
}

func TestExport_isAFileAndSaysWhatIsWrongBeforeItBegins(t *testing.T) {
	s := ownSite(t)
	for query, begin := range map[string]string{"": "campaign_id,seq,", "?bom=true": "\ufeffcampaign_id,seq,"} {
		body := s.get("/export/rows"+query).want(t, 200).body
		must.Hold(t, strings.HasPrefix(body, begin), "/export/rows%s begins otherwise: %q", query, body)
	}
	s.seed("=1", "a")
	file := s.get("/export/rows?format=csv").want(t, 200)
	file.header(t, "Content-Type", "text/csv; charset=utf-8")
	file.header(t, "Content-Disposition", `attachment; filename="outboxweb-rows-20261121T070000Z.csv"`)
	row := must.Get(csv.NewReader(strings.NewReader(file.body)).ReadAll()).Or(t)[1]
	must.Hold(t, row[0] == "'=1" && row[1] == "1" && row[3] == "pending" && row[8] == "2026-11-21T07:00:00Z" && row[10] == "true", "the row is %q", row)
	s.get("/api/v1/export/rows?format=xml").want(t, 422, "csv or json")
	s.get("/export/audit?format=csv&since=soon").want(t, 422, "write a time (UTC) like")
	a := s.do("HEAD", "/export/rows?format=csv", "").want(t, 200)
	must.Hold(t, a.body == "" && strings.Contains(a.Header.Get("Content-Disposition"), "rows"), "HEAD answers with %q, headers %v", a.body, a.Header)
	s.serveExport("/test/broken", func(yield func([]int, error) bool) { yield(nil, errors.New("no disk")) })
	must.Equal(t, s.get("/test/broken?format=csv").want(t, 500).Header.Get("Content-Disposition"), "", "an error is offered as a file")
}

// serveExport serves a test's sequence as an export of numbers.
func (s *site) serveExport(path string, pages iter.Seq2[[]int, error]) {
	s.srv.router.Get(path, s.srv.stream(func(w http.ResponseWriter, r *http.Request) error {
		_, bounded := r.Context().Deadline()
		must.Hold(s.t, !bounded, "an export has a deadline")
		heeding := func(yield func([]int, error) bool) {
			for numbers, err := range pages {
				if gone := r.Context().Err(); gone != nil {
					numbers, err = nil, gone
				}
				if !yield(numbers, err) {
					return
				}
			}
		}
		return export(s.srv, w, r, "numbers", heeding, []ui.Column[int]{{Name: "n", Text: func(n *int) any { return *n }}})
	}))
}

// flushes is an answer that records how much was written between flushes.
type flushes struct {
	*httptest.ResponseRecorder
	sizes []int
	seen  int
}

func (f *flushes) Flush() {
	f.sizes = append(f.sizes, f.Body.Len()-f.seen)
	f.seen = f.Body.Len()
}

func TestExport_ofManyRowsIsSentInSmallParts(t *testing.T) {
	s := ownSite(t)
	const manyRows = 5_000
	for _, statement := range []string{
		`insert into campaigns (campaign_id, high_water_seq, head_seq, head_status, pending, created_at, updated_at) values ('many', $1, 1, 'pending', $1, 1, 1)`,
		`insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
with recursive n(i) as (values (1) union all select i + 1 from n where i < $1) select 'many', i, 'counted', 1, 1, 1 from n`} {
		s.kit.Exec(statement, manyRows)
	}
	for _, format := range []string{"csv", "json"} {
		w := &flushes{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "http://127.0.0.1/export/rows?format="+format, nil)
		s.http.ServeHTTP(w, r)
		must.Hold(t, len(w.sizes) >= manyRows/500 && slices.Max(w.sizes) <= 500*400, "%s: %d parts, the largest of %d bytes", format, len(w.sizes), slices.Max(w.sizes))
		count := 0
		if format == "csv" {
			count = len(must.Get(csv.NewReader(w.Body).ReadAll()).Or(t)) - 1
		} else {
			var all []campaign.Row
			must.OK(t, json.Unmarshal(w.Body.Bytes(), &all))
			count = len(all)
		}
		must.Equal(t, count, manyRows, "the rows of", format)
	}
}

// listenWith serves the site on its own port, with the program's server. Zero patience means no limit.
func (s *site) listenWith(p Patience) *httptest.Server {
	const ample = time.Hour
	p = Patience{cmp.Or(p.Header, ample), cmp.Or(p.Read, ample), cmp.Or(p.Write, ample), cmp.Or(p.Idle, ample)}
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewHTTPServer(s.http, p, s.srv.Logger)
	server.Start()
	s.t.Cleanup(server.Close)
	return server
}

func TestExport_outlivesTheDeadlinesOfTheConnection(t *testing.T) {
	const patience = 50 * time.Millisecond
	s := ownSite(t)
	began := time.Now()
	s.serveExport("/test/long", func(yield func([]int, error) bool) {
		tick := time.NewTicker(patience / 2)
		defer tick.Stop()
		for n := range 8 {
			<-tick.C
			if !yield([]int{n}, nil) {
				return
			}
		}
	})
	res := must.Get(http.Get(s.listenWith(Patience{Read: patience, Write: patience}).URL + "/test/long?format=csv")).Or(t)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	took := time.Since(began)
	must.Hold(t, err == nil && took >= 3*patience && string(body) == "n\r\n0\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n", "after %s got %q, %v", took, body, err)
}

func TestExport_thatFailsMidwayIsCutOff(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	s := newSite(t, func(c *Config) { c.Stopping = stopping })
	s.serveExport("/test/broken", func(yield func([]int, error) bool) {
		if yield([]int{1, 2}, nil) {
			yield(nil, errors.New("no disk"))
		}
	})
	s.serveExport("/test/stopped", func(yield func([]int, error) bool) {
		for i := 0; i < 1000 && yield([]int{3}, nil); i++ {
			if i == 0 {
				close(stopping)
			}
		}
	})
	server := s.listenWith(Patience{})
	for _, path := range []string{"/test/broken", "/test/stopped"} {
		for _, format := range []string{"csv", "json"} {
			res, err := http.Get(server.URL + path + "?format=" + format)
			if path == "/test/stopped" && format == "json" {
				must.Hold(t, err != nil || res.StatusCode == http.StatusInternalServerError, "%s begins while the server stops: %d", path, res.StatusCode)
				continue
			}
			must.OK(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			must.Hold(t, errors.Is(err, io.ErrUnexpectedEOF), "%s as %s ends with %v after %q", path, format, err, body)
		}
	}
}

func TestExport_endsWhenItsReaderHasGone(t *testing.T) {
	s, ended := ownSite(t), make(chan struct{})
	s.serveExport("/test/endless", func(yield func([]int, error) bool) {
		defer close(ended)
		numbers := make([]int, 500)
		for yield(numbers, nil) {
		}
	})
	res := must.Get(http.Get(s.listenWith(Patience{}).URL + "/test/endless?format=json")).Or(t)
	must.Get(io.CopyN(io.Discard, res.Body, 10_000)).Or(t)
	res.Body.Close()
	must.Receive(t, ended, "the export goes on without a reader")
}
