package handlers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/outboxweb/outboxweb/internal/apitest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

var document = sync.OnceValues(func() (*apitest.Document, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err != nil {
		return nil, err
	}
	return apitest.Parse(openapi, apiPrefix)
})

// checkDocumented fails the test if an answer of the API, or a request that it took, does not conform
// to the document. Requests that are malformed on purpose cannot be read again.
func checkDocumented(t testing.TB, s *server, r *http.Request, rec *httptest.ResponseRecorder) {
	t.Helper()
	doc := must.Get(document()).Or(t)
	asked := r.Clone(context.Background())
	asked.URL.Path, asked.URL.RawPath = strings.TrimPrefix(r.URL.Path, s.links.Base()), strings.TrimPrefix(r.URL.RawPath, s.links.Base())
	if r.GetBody != nil {
		asked.Body, _ = r.GetBody()
	} else {
		asked.Body = nil
	}
	if _, err := doc.Check(asked, rec.Code, rec.Header(), rec.Body.Bytes()); err != nil {
		t.Error(err)
	}
}

// succeeding are the addresses and bodies of the acts that succeed on a filled site, where those of
// everyRequest do not.
var succeeding = map[string]request{
	"/campaigns/{campaign}/events/{seq}/reveal":       {target: "/campaigns/c-1/events/2/reveal", body: `{"reason":"x"}`},
	"/campaigns/{campaign}/events/{seq}/unskip":       {target: "/campaigns/c-3/events/1/unskip", body: `{"reason":"x"}`},
	"/failures/groups/note":                           {target: "/failures/groups/note", body: `{"fingerprint":"` + outbox.Fingerprint(`seat "7" is <taken>`) + `","note":"n"}`},
	"/intake/{source}/hand-over":                      {target: "/intake/shop/hand-over", body: `{"reason":"x","confirm":"hand over shop"}`},
	"/intake/{source}/rejections/{rejection}/discard": {target: "/intake/shop/rejections/1/discard", body: `{"reason":"x","confirm":"discard shop 1"}`},
	"/intake/{source}/rejections/{rejection}/retry":   {target: "/intake/shop/rejections/2/retry"},
	"/operations/{operation}/cancel":                  {target: "/operations/2/cancel"},
	"/projections/{name}/pause":                       {target: "/projections/campaigns/pause", body: `{"campaign_id":"c-1"}`},
	"/projections/{name}/resume":                      {target: "/projections/campaigns/resume", body: `{"campaign_id":"c-1"}`},
	"/publishers/{topic}/{publisher}/reset":           {target: "/publishers/scenes/failing/reset"},
	"/publishers/{topic}/{publisher}/skip":            {target: "/publishers/scenes/overcome/skip", body: `{"position":5,"reason":"x"}`},
	"/rows/requeue":                                   {target: "/rows/requeue", body: `{"campaign_id":"c-1"}`},
	"/rows/{campaign}/{seq}/dead-letter":              {target: "/rows/c-5/1/dead-letter"},
	"/rows/{campaign}/{seq}/requeue":                  {target: "/rows/c-7/1/requeue"},
	"/rows/{campaign}/{seq}/retry":                    {target: "/rows/c-8/1/retry"},
	"/rows/{campaign}/{seq}/skip":                     {target: "/rows/c-9/1/skip", body: `{"reason":"x","confirm":"skip c-9 1"}`},
	"/runs":                                           {target: "/runs", body: `{"kind":"verify","campaign_id":"c-4"}`},
	"/runs/{run}/cancel":                              {target: "/runs/3/cancel"},
	"/runs/{run}/resume":                              {target: "/runs/2/resume"},
}

// readFromServers is what only a whole server has; e2e reads it, and all that is read, from one with
// objects of every kind.
var readFromServers = map[string]bool{
	"/campaigns/{campaign}/events/{seq}/changes": true, "/campaigns/{campaign}/read-model": true, "/campaigns/{campaign}/read-model/cell": true,
	"/failures/{failure}": true, "/rehearsals/{run}": true, "/runs/{run}/results/{campaign}": true,
}

// Every operation succeeds, and is refused, as the document says: the requests check that.
func TestDocument_everyOperationSucceedsAndIsRefused(t *testing.T) {
	g := newGuarded(t)
	for _, campaign := range []string{"c-7", "c-9"} {
		g.seed(campaign, poison)
	}
	g.fill()
	for _, insert := range []string{
		`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', '13', 'c-2', 'e-2', 'order.paid', '{}', 2, 'payload is not JSON', 1)`,
		`insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
values ('scenes', 'failing', 'log:', '{"event_types":["*"]}', 10, 1, 1, 1)`,
	} {
		g.change(insert)
	}
	g.publisherFails(5, "event")
	g.seed("c-8", poison)
	g.pass()
	asAdmin := people[outbox.RoleAdmin]
	for _, r := range everyRoute(t, g.site) {
		if r.entry.api.id == "" {
			continue
		}
		misspelt := r.request
		misspelt.target += "?unknown=1"
		g.ask(r.request, func(*http.Request) {}).want(t, 401)
		g.ask(misspelt, asAdmin).want(t, 422)
		if better, ok := succeeding[strings.TrimPrefix(r.entry.pattern, apiPrefix)]; ok {
			r.target, r.body = apiPrefix+better.target, better.body
		}
		ask := g.post // which also checks what is sent
		if r.method == http.MethodGet {
			ask = func(target, _ string, change ...func(*http.Request)) answer { return g.get(target, change...) }
		}
		if a := ask(r.target, r.body, asAdmin); a.StatusCode >= 300 && !readFromServers[strings.TrimPrefix(r.entry.pattern, apiPrefix)] {
			t.Errorf("%s is refused: %d %s", r, a.StatusCode, a.body)
		}
	}
}
