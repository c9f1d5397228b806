package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

type pager struct {
	url string

	mu  sync.Mutex
	got []alertMessage
}

type alertMessage struct {
	Kind, Rule, Title, Error, Todo string
	Count                          int64
	Version                        string `json:"projection_version"`
	Console                        string `json:"console_url"`
}

func newPager(t *testing.T) *pager {
	p := &pager{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m alertMessage
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, m)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// config is a configuration in which the pager gets alerts of a rule at once.
func (p *pager) config(t *testing.T, d databases, rule string) []string {
	return d.config(t, fmt.Sprintf("alerts:\n  receivers: {pager: {url: %q, allow_private: true}}\n  to: [pager]\n  rules:\n    %s: {over: 0, for: 0}\n", p.url, rule))
}

func (p *pager) await(t *testing.T, kind, rule string) (found alertMessage) {
	t.Helper()
	eventually(t, patience, "a message "+kind+" about "+rule, func() (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, m := range p.got {
			if m.Kind == kind && m.Rule == rule {
				found = m
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", p.got)
	})
	return found
}

// gate is the address at which readers reach one server after another, as at a proxy.
type gate struct {
	url string
	to  atomic.Pointer[url.URL]
}

// newGate opens a gate; what is between it and the server may be wrapped.
func newGate(t *testing.T, wraps ...func(http.Handler) http.Handler) *gate {
	g := &gate{}
	var way http.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(g.to.Load())
		r.Out.Host = r.In.Host
	}}
	for _, wrap := range wraps {
		way = wrap(way)
	}
	server := httptest.NewServer(way)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gate) start(t *testing.T, d databases, flags ...string) *server {
	t.Helper()
	s := start(t, d, append([]string{"--public-origin", g.url}, flags...)...)
	to := must.Get(url.Parse(s.url)).Or(t)
	g.to.Store(to)
	s.url = g.url
	return s
}

// alertsConfig has two receivers of alerts: one is well, and one is down if the partner's path /away
// is.
func alertsConfig(p *partner) string {
	return fmt.Sprintf(`
alerts:
  to: [chat, pager]
  receivers:
    chat: {url: "slack+%[1]s/chat", allow_private: true}
    pager: {url: %[2]q, allow_private: true}
  rules:
    dead_rows: {for: 0}
`, p.url, p.url+"/away")
}
