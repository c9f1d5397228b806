package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/network"
)

// isName reports whether a proxy accepts the text as a name of a user or a group.
func isName(text string) bool {
	return text != "" && len(text) <= 200 && strings.TrimSpace(text) == text && !strings.Contains(text, ",") && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// postAs requests an action as the proxy does for a user.
func (s *server) postAs(t *testing.T, status int, user, path, body string, groups ...string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Remote-User", user)
	r.Header.Set("Remote-Groups", js(groups))
	if a, err := s.send(r); err != nil || a.status != status {
		t.Fatalf("%s as %q: %d %s %v", path, user, a.status, a.body, err)
	}
}

// Names of users, groups and tokens, and refusals, are text like any other, on the pages that show
// them and on error pages.
func TestBrowser_hostileNamesOfUsers(t *testing.T) {
	t.Parallel()
	const nasty = `"><img src=x onerror=hostile(30)>`
	d := newDatabases(t)
	mustCommand(t, d, strings.NewReader(`{"campaign_id":"c","event_type":"campaign.created","payload":{}}`), "append", "-")
	s := start(t, d, "--auth", "proxy-header", "--auth-user-header", "Remote-User", "--auth-groups-header", "Remote-Groups", "--auth-groups-format", "json", "--trusted-proxy", "127.0.0.1/32",
		"--viewer", "*", "--viewer", "group:"+nasty, "--admin", "group:admins", "--act-rate", "0")
	var names, notes []string
	for _, text := range hostile {
		if isName(text) {
			names = append(names, text)
		}
	}
	for i, name := range names {
		path := []string{"/api/v1/campaigns/c/replay", "/api/v1/projections/" + url.PathEscape(name) + "/resume", "/api/v1/publishers/" + url.PathEscape(name) + "/" + url.PathEscape(name) + "/pause"}[i%3]
		switch {
		case i%3 == 0:
			s.postAs(t, http.StatusOK, name, path, `{}`, "admins")
		case i%2 == 0:
			s.postAs(t, http.StatusForbidden, name, path, `{}`, name)
		default:
			s.postAs(t, http.StatusNotFound, name, path, `{}`, "admins", name)
		}
		if len(name) <= 100 && i%8 == 0 {
			mustCommand(t, d, nil, "token", "create", "--role", "viewer", "--note", name)
			notes = append(notes, name)
		}
	}
	b := openBesieged(t, s)
	b.expect("403")
	signIn := func(user string, groups ...string) {
		tell(b.tab, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Remote-User": user, "Remote-Groups": js(groups)}})
	}
	signIn(nasty, "admins", nasty)
	said := map[string]string{}
	for _, path := range []string{"/audit?limit=200", "/audit?outcome=refused&limit=200", "/tokens", "/about", "/campaigns/c", "/audit?" + url.Values{"actor": {nasty}, "target": {nasty}, "request_id": {nasty}}.Encode()} {
		said[path] = b.visit(path)
		b.shows(path, said[path], []string{nasty}, sees)
	}
	b.shows("audit", said["/audit?limit=200"], names, sees)
	b.shows("tokens", said["/tokens"], notes, sees)
	signIn(nasty, nasty) // a viewer in a group of that name
	for _, path := range []string{"/campaigns/c", "/tokens"} {
		b.shows(path, b.visit(path), []string{nasty}, sees)
	}
	t.Logf("%d names, %d notes, %d pages", len(names), len(notes), b.pages)
	b.hears()
}
