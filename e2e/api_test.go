package e2e

import (
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/apitest"
	"github.com/outboxweb/outboxweb/internal/must"
)

var document = sync.OnceValues(func() (*apitest.Document, error) {
	text, err := os.ReadFile(apiDocument)
	if err != nil {
		return nil, err
	}
	return apitest.Parse(text, "/api/v1")
})

// checkDocumented tells strict unless the API answers, and takes, what its document says.
func (s *server) checkDocumented(r *http.Request, res *http.Response, body []byte) {
	doc, err := document()
	if err == nil {
		asked := *r
		asked.Body = nil
		if r.GetBody != nil {
			asked.Body, _ = r.GetBody()
		}
		_, err = doc.Check(&asked, res.StatusCode, res.Header, body)
	}
	if err != nil {
		s.strict(err)
	}
}

func do(t *testing.T, s *server, method, path string, body any) answer {
	t.Helper()
	return must.Get(s.do(t.Context(), method, path, body)).Or(t)
}

func fetch(t *testing.T, s *server, path string) answer {
	t.Helper()
	a, err := s.do(t.Context(), http.MethodGet, path, nil)
	must.Need(t, err == nil && a.status == http.StatusOK, "GET %s: %d, %v", path, a.status, err)
	return a
}
