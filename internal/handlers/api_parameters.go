package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"outboxweb/internal/outbox"
)

// apiParameters are the query parameters that routes of the API take, as
// openapi.json documents them. The other routes take none.
var apiParameters = map[string][]string{
	"GET /rows":                                   {"status", "campaign", "event_type", "fingerprint", "q", "reverse", "cursor", "limit"},
	"GET /campaigns":                              {"state", "q", "sort", "reverse", "cursor", "limit"},
	"GET /campaigns/{campaign}":                   {"min_seq", "timeout"},
	"GET /campaigns/{campaign}/events":            {"after_seq", "cursor", "limit"},
	"POST /campaigns/{campaign}/events":           {"wait", "timeout"},
	"GET /runs":                                   {"kind", "status", "campaign", "cursor", "limit"},
	"GET /runs/{run}/results":                     {"outcome", "cursor", "limit"},
	"GET /runs/{run}/log":                         {"cursor", "limit"},
	"GET /audit":                                  {"actor", "action", "campaign", "seq", "outcome", "auth", "role", "target", "request_id", "cursor", "limit", "since", "until", "reverse"},
	"GET /history":                                {"span"},
	"GET /export/rows":                            {"format", "status", "campaign", "event_type", "fingerprint", "q", "reverse"},
	"GET /export/campaigns":                       {"format", "state", "q", "sort", "reverse"},
	"GET /export/audit":                           {"format", "actor", "action", "campaign", "seq", "outcome", "auth", "role", "target", "request_id", "since", "until", "reverse"},
	"GET /campaigns/{campaign}/skips":             {"cursor", "limit"},
	"GET /operations":                             {"status", "acknowledged", "cursor", "limit"},
	"GET /operations/{operation}/rows":            {"status", "cursor", "limit"},
	"GET /projections/{name}/cursors":             {"state", "cursor", "limit"},
	"GET /failures":                               {"status", "campaign", "projection", "fingerprint", "cursor", "limit"},
	"GET /rows/{campaign}/{seq}/dry-run":          {"next"},
	"GET /publishers/{topic}/{publisher}/history": {"span"},
}

// checkQuery refuses what a request to the API asks for and does not get: a
// filter that is misspelt would select everything. Pages pass over parameters
// that they do not know.
func (t route) checkQuery(r *http.Request) error {
	pattern, isAPI := strings.CutPrefix(t.pattern, apiPrefix)
	if !isAPI || r.URL.RawQuery == "" {
		return nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return outbox.Invalid("", "the address is not well formed behind the ?: write name=value, with & between parameters and %% escapes in values")
	}
	known := apiParameters[t.method+" "+pattern]
	wrong := map[string]string{}
	for name, values := range given {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			wrong[name] = fmt.Sprintf("%q is not a query parameter of this address, which takes none", name)
		case !slices.Contains(known, name):
			wrong[name] = fmt.Sprintf("%q is not a query parameter of this address; it takes %s", name, outbox.OrList(known))
		case len(values) > 1:
			wrong[name] = name + " is given more than once"
		}
	}
	if len(wrong) > 0 {
		return &invalidFields{fields: wrong}
	}
	return nil
}
