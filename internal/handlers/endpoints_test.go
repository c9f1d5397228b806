package handlers

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/store"
)

// A misspelt filter would select everything.
func TestAPI_refusesParametersThatItDoesNotTake(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", "a")
	for target, texts := range map[string][]string{
		"/api/v1/rows?statsu=dead":              {`"errors":{"statsu":`, `not a query parameter of this URL; it takes status, campaign, `},
		"/api/v1/rows?status=dead&x=1&y=2":      {`"x":`, `"y":`},
		"/api/v1/rows?status=dead&status=dead":  {`"status":"status is given more than once"`},
		"/api/v1/rows?status=dead;limit=1":      {"the query string is malformed"},
		"/api/v1/rows?status=%zz":               {"the query string is malformed"},
		"/api/v1/summary?status=":               {"takes none"},
		"/api/v1/campaigns/c-1?wait=applied":    {`"wait":`, "min_seq or timeout"},
		"/api/v1/export/rows?format=csv&size=1": {`"size":`},
	} {
		s.get(target).want(t, 422, texts...)
	}
	event := `{"event_type":"a","payload":{}}`
	s.post("/api/v1/campaigns/c-1/events?wiat=applied", event).want(t, 422, `"wiat":`, "wait or timeout")
	s.post("/api/v1/campaigns/c-1/pause?reason=x", "").want(t, 422, `"reason":`, "takes none")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"high_water_seq":1`)
	s.get("/rows?statsu=dead").want(t, 200)
	for key, route := range s.srv.routes {
		if route.method != "GET" || route.api.id == "" {
			continue
		}
		target := strings.NewReplacer("{campaign}", "c-1", "{seq}", "1", "{run}", "1", "{operation}", "1", "{name}", "roster", "{topic}", "t", "{publisher}", "p").Replace(route.pattern)
		for _, name := range route.api.query.names() {
			if a := s.get(target + "?" + name + "="); a.StatusCode == 422 {
				t.Errorf("%s refuses %s: %s", key, name, a.body)
			}
		}
	}
}

func TestEndpoints_haveWhatClientsAreMadeFrom(t *testing.T) {
	t.Parallel()
	ids := map[string]string{}
	for key, r := range newServer(Config{Store: new(store.Store), Metrics: metrics.New(nil)}).routes {
		if !strings.HasPrefix(r.pattern, apiPrefix) {
			continue
		}
		e := r.api
		if other := ids[e.id]; other != "" || e.id == "" {
			t.Errorf("%s has the id %q, and so has %q", key, e.id, other)
		}
		ids[e.id] = key
		if e.summary == "" || len(e.summary) > 120 || strings.HasSuffix(e.summary, ".") {
			t.Errorf("%s has no summary of one line without a final stop: %q", key, e.summary)
		}
		if !slices.ContainsFunc(apiTags(), func(tag *openapi3.Tag) bool { return tag.Name == string(e.tag) }) {
			t.Errorf("%s has the tag %q, which there is not", key, e.tag)
		}
		if len(e.answers) == 0 || (r.method == http.MethodPost) != (len(e.body.types) > 0) {
			t.Errorf("%s does not say what it answers, or what body it reads", key)
		}
	}
}
