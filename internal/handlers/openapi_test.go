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

// readFromServers is what only a whole server has; e2e reads it, and all that is read, from one with
// objects of every kind.
var readFromServers = map[string]bool{
	"/campaigns/{campaign}/events/{seq}/changes": true, "/campaigns/{campaign}/read-model": true, "/campaigns/{campaign}/read-model/cell": true,
	"/failures/{failure}": true, "/rehearsals/{run}": true, "/runs/{run}/results/{campaign}": true,
}

// Every operation is refused, and every reading one succeeds, as the document says: the requests check
// that. Acts succeed as it says in the scenarios of cmd/outboxweb.
func TestDocument_everyOperationIsRefusedAndReadingSucceeds(t *testing.T) {
	g := newGuarded(t).fill()
	asAdmin := people[outbox.RoleAdmin]
	for _, r := range everyRoute(t, g.site) {
		if r.entry.api.id == "" {
			continue
		}
		misspelt := r.sent
		misspelt.target += "?unknown=1"
		g.ask(r.sent, func(*http.Request) {}).want(t, 401)
		g.ask(misspelt, asAdmin).want(t, 422)
		if r.method == http.MethodGet && !readFromServers[strings.TrimPrefix(r.entry.pattern, apiPrefix)] {
			g.get(r.target, asAdmin).want(t, 200)
		}
	}
}
