package handlers

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestAPIParameters_areThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				if p.Value.In == "query" {
					documented[method+" "+path] = append(documented[method+" "+path], p.Value.Name)
				}
			}
		}
	}
	for route, names := range documented {
		if taken := apiParameters[route]; !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(taken))) {
			t.Errorf("%s is documented with %q and takes %q", route, names, taken)
		}
	}
	for route := range maps.Keys(apiParameters) {
		if documented[route] == nil {
			t.Errorf("%s takes parameters, and the document has none of them", route)
		}
	}
	if len(documented) < 10 {
		t.Errorf("only %d routes with parameters were found", len(documented))
	}
}

// A misspelt filter would select everything.
func TestAPI_refusesParametersThatItDoesNotTake(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", "a")
	for target, texts := range map[string][]string{
		"/api/v1/rows?statsu=dead":              {`"errors":{"statsu":`, `not a query parameter of this address; it takes status, campaign, `},
		"/api/v1/rows?status=dead&x=1&y=2":      {`"x":`, `"y":`},
		"/api/v1/rows?status=dead&status=dead":  {`"status":"status is given more than once"`},
		"/api/v1/rows?status=dead;limit=1":      {"not well formed"},
		"/api/v1/rows?status=%zz":               {"not well formed"},
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
	for route, names := range apiParameters {
		method, pattern, _ := strings.Cut(route, " ")
		if method != "GET" {
			continue
		}
		target := apiPrefix + strings.NewReplacer("{campaign}", "c-1", "{seq}", "1", "{run}", "1", "{operation}", "1", "{name}", "roster", "{topic}", "t", "{publisher}", "p").Replace(pattern)
		for _, name := range names {
			if a := s.get(target + "?" + name + "="); a.StatusCode == 422 {
				t.Errorf("%s refuses %s: %s", route, name, a.body)
			}
		}
	}
}
