package handlers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/web/templates"
)

// A misspelt filter would select everything.
func TestRoutes_refuseParametersThatTheyDoNotTake(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	for target, texts := range map[string][]string{
		"/api/v1/rows?statsu=dead":              {`"errors":{"statsu":`, `not a query parameter of this URL; it takes status, campaign, `},
		"/api/v1/rows?status=dead&x=1&y=2":      {`"x":`, `"y":`},
		"/api/v1/rows?status=dead&status=dead":  {`"status":"status is given more than once"`},
		"/api/v1/rows?status=dead;limit=1":      {`the query string is malformed at \"status=dead;limit=1\": write`},
		"/api/v1/rows?limit=1&status=%zz":       {`the query string is malformed at \"status=%zz\"`},
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
	step := size.Of(3, 1, 1)
	for i, key := range slices.Sorted(maps.Keys(s.srv.routes)) {
		route := s.srv.routes[key]
		if i%step != 0 || route.method != "GET" || route.role == outbox.RoleNone || route.pattern == "/metrics" {
			continue
		}
		target, refused := strings.NewReplacer("{", "", "}", "").Replace(plain.Replace(route.pattern)), []string{"x=a;b", "x=100%", "utm_source=mail", "="}
		for _, p := range route.takes {
			name := p.name()
			if a := s.get(target + "?" + name + "="); a.StatusCode == 422 && strings.Contains(a.body, "query parameter") {
				t.Errorf("%s refuses %s: %s", key, name, a.body)
			}
			refused = append(refused, name+"=1;2", name+"=100%", strings.ToUpper(name)+"=1", name+"=1&utm_source=mail")
			if p.field.Type != textsType {
				refused = append(refused, name+"=1&"+name+"=1")
			}
		}
		for _, query := range refused {
			a := s.get(target + "?" + query)
			if a.StatusCode != 422 || !strings.Contains(a.body, "is not a query parameter of this URL") && !strings.Contains(a.body, "is given more than once") && !strings.Contains(a.body, "he query string is malformed at") {
				t.Errorf("%s?%s is answered with %d: %.300s", key, query, a.StatusCode, a.body)
			}
			if route.api.id == "" && !strings.Contains(a.body, `href="`+target+`" data-testid="whole"`) {
				t.Errorf("%s?%s is refused without a way out: %s", key, query, a.body)
			}
			if a = s.get(target+"?"+query, header("HX-Request", "true"), header("HX-Target", templates.LiveTarget)); route.api.id == "" && (a.Header.Get(statusHeader) != "422" || strings.Contains(a.body, "<")) {
				t.Errorf("a poll of %s?%s is answered with %v %s", key, query, a.Header, a.body)
			}
		}
		if a := s.get(target + "/?x=%20"); route.api.id == "" && target != "/" && (a.StatusCode != 308 || a.Header.Get("Location") != target+"?x=%20") {
			t.Errorf("%s/ is answered with %d %v", target, a.StatusCode, a.Header)
		}
	}
	s.get("/metrics?x=1").want(t, 200)
	s.get("/nowhere/?x=1").want(t, 404)
	s.get("/api/v1/rows/").want(t, 404)
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
