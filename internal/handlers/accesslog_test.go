package handlers

import (
	"bytes"
	"encoding/json"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// logged sends requests to a site and returns their lines of its log.
func logged(t *testing.T, level slog.Level, ask func(*site), change ...func(*Config)) []map[string]any {
	t.Helper()
	return slices.DeleteFunc(allLogged(t, level, ask, change...), func(line map[string]any) bool { return line["msg"] != "request" })
}

// allLogged is logged with every line that the requests lead to.
func allLogged(t *testing.T, level slog.Level, ask func(*site), change ...func(*Config)) []map[string]any {
	t.Helper()
	var log bytes.Buffer
	s := newSite(t, append(change, func(c *Config) {
		c.Logger = slog.New(redact.Builtin().Log(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})))
	})...).trouble()
	log.Reset()
	ask(s)
	var all []map[string]any
	for line := range strings.Lines(log.String()) {
		var one map[string]any
		err := json.Unmarshal([]byte(line), &one)
		must.Need(t, err == nil, "%v: %q", err, line)
		all = append(all, one)
	}
	return all
}

func TestAccessLog_tellsOfARequest(t *testing.T) {
	t.Parallel()
	var a answer
	lines := logged(t, slog.LevelInfo, func(s *site) { a = s.get("/api/v1/campaigns/c-1?min_seq=1") })
	must.Need(t, len(lines) == 1, "%d lines: %v", len(lines), lines)
	for name, want := range map[string]any{"level": "INFO", "method": "GET", "path": "/api/v1/campaigns/c-1", "query": "min_seq=1", "route": "/api/v1/campaigns/{campaign}", "status": 200.0,
		"bytes": float64(len(a.body)), "identity": "local", "role": "admin", "from": "127.0.0.1", "request_id": a.Header.Get("X-Request-Id")} {
		must.Equal(t, lines[0][name], want, name, "is")
	}
	if took, _ := lines[0]["duration_ms"].(float64); took <= 0 {
		t.Errorf("it took %v", lines[0]["duration_ms"])
	}
}

// The id that a trusted proxy gives a request is beside ours in every log line about it, and where the
// reader is told of ours. Ours is the one of the answer.
func TestRequestID_ofATrustedProxyIsKeptBesideOurs(t *testing.T) {
	t.Parallel()
	trusted := func(c *Config) { c.Trusts = func(*http.Request) bool { return true } }
	boom := func(s *site) {
		s.srv.router.Get("/api/boom", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	}
	long := strings.Repeat("x", 128)
	for _, tt := range []struct {
		what   string
		given  []string
		trusts bool
		want   any
	}{
		{"of a trusted proxy", []string{"7f3a-00 \"x\""}, true, "7f3a-00 \"x\""},
		{"at the limit", []string{long}, true, long},
		{"too long", []string{long + "x"}, true, nil},
		{"not ASCII", []string{"é"}, true, nil},
		{"a control character", []string{"a\tb"}, true, nil},
		{"empty", []string{""}, true, nil},
		{"twice", []string{"a", "b"}, true, nil},
		{"of a stranger", []string{"7f3a-00"}, false, nil},
	} {
		change := []func(*Config){}
		if tt.trusts {
			change = append(change, trusted)
		}
		given := func(r *http.Request) { r.Header["X-Request-Id"] = tt.given }
		var failed, page answer
		lines := allLogged(t, slog.LevelInfo, func(s *site) {
			boom(s)
			failed = s.get("/api/boom", given)
			page = s.get("/nope", given)
		}, change...)
		must.Equal(t, len(lines), 2, tt.what, "lines")
		for i, line := range lines {
			own := failed.Header.Get("X-Request-Id")
			if i == 1 {
				own = page.Header.Get("X-Request-Id")
			}
			if line["proxy_request_id"] != tt.want || line["request_id"] != own || len(own) != 36 {
				t.Errorf("%s: the line %q has %q beside %q, want %q beside %q", tt.what, line["msg"], line["proxy_request_id"], line["request_id"], tt.want, own)
			}
		}
		text, _ := tt.want.(string)
		must.Equal(t, decodeAs[problem](t, failed.want(t, 500)).ProxyRequestID, text, tt.what, "the problem")
		if said := "the proxy’s <code>" + html.EscapeString(text) + "</code>"; strings.Contains(page.body, "the proxy’s") != (text != "") || text != "" && !strings.Contains(page.body, said) {
			t.Errorf("%s: the page lacks %s, or has what it should not: %s", tt.what, said, page.body)
		}
	}
}

func TestAccessLog_holdsNeitherSecretsNorLineBreaks(t *testing.T) {
	t.Parallel()
	lines := logged(t, slog.LevelInfo, func(s *site) {
		s.get("/rows?q=password%3Dhunterdeux&access_tok%65n=hunterdeux&api_key=hunterdeux&x=%zz%0aINFO")
		s.get("/campaigns/" + url.PathEscape("a\nlevel=ERROR\x1b[2J\u202e"))
		s.get("/campaigns/" + url.PathEscape("Bearer hunterdeux") + "/" + url.PathEscape(`{"password":"hunterdeux"}`))
		s.get("/campaigns/" + strings.Repeat("x", 5000))
		s.get("/rows?q=" + strings.Repeat("y", 5000))
	})
	must.Need(t, len(lines) == 5, "%d lines", len(lines))
	for _, line := range lines {
		for name, value := range line {
			text, _ := value.(string)
			must.Hold(t, !strings.Contains(text, "hunterdeux") && !strings.ContainsAny(text, "\n\r\x1b\u202e") && len(text) <= 1100, "%s is %q", name, text)
		}
	}
}

// Repetitive requests without information, and those that anyone can send without limit, are logged
// only at debug level.
func TestAccessLog_keepsQuietAboutProbes(t *testing.T) {
	t.Parallel()
	ask := func(s *site) {
		s.get("/healthz")
		s.get("/readyz")
		s.get("/metrics")
		s.get("/static/none")
		s.get("/", header("HX-Target", "live"))
		s.get("/", host("evil.example"))
	}
	must.Equal(t, len(logged(t, slog.LevelInfo, ask)), 0, "the log")
	must.Equal(t, len(logged(t, slog.LevelDebug, ask)), 6, "the lines of the log")
	lines := logged(t, slog.LevelInfo, func(s *site) {
		s.do(http.MethodPost, "/campaigns/c-2/pause", "", header("Origin", "https://evil.example"))
	})
	must.Hold(t, len(lines) == 1 && lines[0]["status"] == 403.0, "of a refused act the log has %v", lines)
}
