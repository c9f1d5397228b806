package handlers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRoutes_answerEveryMethodLikeTheOthers requests every address with a method that it does not
// allow, and with HEAD.
func TestRoutes_answerEveryMethodLikeTheOthers(t *testing.T) {
	s := ownSite(t).trouble()
	for _, r := range everyRequest(t, s) {
		deleting := r
		deleting.method = http.MethodDelete
		a := s.send(deleting)
		kind := "text/html; charset=utf-8"
		if s.srv.systemPath(httptest.NewRequest(r.method, r.target, nil)) != "" {
			kind = "text/plain; charset=utf-8"
		}
		if strings.HasPrefix(r.target, apiPrefix) {
			kind = "application/problem+json"
		}
		if a.StatusCode != http.StatusMethodNotAllowed || a.Header.Get("Content-Type") != kind {
			t.Errorf("%s is answered with %d as %s, want 405 as %s", deleting, a.StatusCode, a.Header.Get("Content-Type"), kind)
		}
		if allow := strings.Join(a.Header.Values("Allow"), ","); !strings.Contains(allow, r.method) {
			t.Errorf("%s allows %q, and takes %s", r, allow, r.method)
		}
		if r.method == http.MethodGet {
			asked := s.send(r)
			r.method = http.MethodHead
			if a := s.send(r); a.StatusCode != asked.StatusCode || a.Header.Get("Content-Type") != asked.Header.Get("Content-Type") {
				t.Errorf("%s is answered with %d %v, GET with %d %v", r, a.StatusCode, a.Header, asked.StatusCode, asked.Header)
			}
		}
	}
}

// A browser that comes back to the address of an action, such as from a login, is led to the page with
// its form.
func TestRoutes_thatTakeFormsLeadToTheirPage(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "/base"} {
		s := newSite(t, func(c *Config) { c.BasePath = base })
		for action, page := range map[string]string{
			"/rehearsals": "/rehearsals/new", "/campaigns/a%2Fb/pause": "/campaigns/a%2Fb", "/rows/c-1/2/skip": "/rows/c-1/2",
			"/publishers/t/p/pause": "/publishers/t/p", "/campaigns/c-1/events/2/reveal": "/campaigns/c-1/events/2",
		} {
			browser := header("Accept", "text/html,application/xhtml+xml")
			if to := s.get(base+action, browser).want(t, 303).Header.Get("Location"); to != base+page {
				t.Errorf("%s leads to %s, want %s", action, to, base+page)
			}
			s.get(base+action).want(t, 405)
			s.get(base+"/api/v1"+action, browser).want(t, 405)
		}
	}
}

func TestRoutes_tellOfWhatIsNotThere(t *testing.T) {
	s := ownSite(t).trouble()
	absent := strings.NewReplacer("/c-1/events/2", "/c-1/events/99", "/campaigns/c-1/events/2", "/campaigns/c-1/events/99", "/c-1", "/nobody", "/operations/1", "/operations/99", "/runs/1", "/runs/99")
	for _, r := range everyRequest(t, s) {
		to := absent.Replace(r.target)
		if to == r.target || r.method == http.MethodPost && strings.HasSuffix(r.target, "/events") { // the first event makes a campaign
			continue
		}
		for _, target := range []string{to, strings.Replace(strings.Replace(to, "/c-1/", "/nobody/", 1), "/99", "/2", 1)} {
			r.target = target
			if path := strings.TrimPrefix(target, apiPrefix); strings.HasPrefix(path, "/operations/2") || strings.HasPrefix(path, "/runs/2") {
				continue
			}
			a := s.send(r)
			if a.StatusCode != http.StatusNotFound {
				t.Errorf("%s is answered with %d: %.200s", r, a.StatusCode, a.body)
			}
			if !strings.HasPrefix(target, apiPrefix) {
				continue
			}
			if p := decodeAs[problem](t, a); p.Detail == "" || p.RequestID == "" || strings.Contains(p.Detail, "sql") || p.Type != "urn:outboxweb:not-found" {
				t.Errorf("%s is answered with %+v", r, p)
			}
		}
	}
}
