package handlers

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Whoever accepts it gets a long answer compressed, with the same text, except pages of other sites.
func TestAnswers_areCompressedForOurPagesAndForScripts(t *testing.T) {
	s := ownSite(t).trouble()
	for _, c := range []struct {
		target, accepts, site string
		compressed            bool
	}{
		{"/docs/operating", "gzip, br", "same-origin", true},
		{"/docs/operating", "gzip", "none", true},
		{"/docs/operating", "gzip", "cross-site", false},
		{"/docs/operating", "gzip", "same-site", false},
		{"/docs/operating", "gzip", "", false},
		{"/docs/operating", "gzip;q=0", "same-origin", false},
		{"/docs/operating", "br", "same-origin", false},
		{"/api/v1/rows", "gzip", "", false},
		{"/api/v1/openapi.json", "gzip", "cross-site", false},
		{"/api/v1/openapi.json", "gzip", "", true},
		{"/api/v1/export/rows?format=json", "gzip", "", true},
		{"/export/rows", "gzip", "same-origin", true},
		{"/api/v1/campaigns/c-1/events/1/payload", "gzip", "", false},
		{"/readyz", "gzip", "", false},
	} {
		plain := s.get(c.target)
		ask := func(r *http.Request) {
			r.Header.Set("Accept-Encoding", c.accepts)
			r.Header.Set("Sec-Fetch-Site", c.site)
			if c.site == "" {
				r.Header.Del("Sec-Fetch-Site")
			}
		}
		a := s.do(http.MethodGet, c.target, "", ask)
		text := a.body
		if (a.Header.Get("Content-Encoding") == "gzip") != c.compressed {
			t.Errorf("%+v: Content-Encoding is %q", c, a.Header.Get("Content-Encoding"))
		} else if c.compressed {
			text = string(must.Get(io.ReadAll(must.Get(gzip.NewReader(strings.NewReader(a.body))).Or(t))).Or(t))
			if !strings.Contains(strings.Join(a.Header.Values("Vary"), ","), "Accept-Encoding") || a.Header.Get("Content-Length") != "" {
				t.Errorf("%+v: the headers are %v", c, a.Header)
			}
		}
		if a.StatusCode != 200 || len(text) != len(plain.body) {
			t.Errorf("%+v is answered with %d and %d bytes, want %d", c, a.StatusCode, len(text), len(plain.body))
		}
		if a := s.do(http.MethodHead, c.target, "", ask); a.StatusCode != 200 || a.Header.Get("Content-Encoding") != "" {
			t.Errorf("HEAD of %+v is answered with %d, and %q", c, a.StatusCode, a.Header.Get("Content-Encoding"))
		}
	}
}

func TestBodies_thatAreCompressedAreRefused(t *testing.T) {
	s := ownSite(t).trouble()
	zipped := header("Content-Encoding", "gzip")
	s.post("/api/v1/campaigns/c-1/events", "\x1f\x8b", zipped).want(t, 415, "urn:outboxweb:media-type", "Content-Encoding: gzip is not read; send it uncompressed")
	s.submit("/campaigns/c-1/pause", "\x1f\x8b", zipped).want(t, 415, "send it uncompressed")
	s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`, header("Content-Encoding", "identity")).want(t, 200)
}
