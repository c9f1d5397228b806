package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// behindProxy is a site whose users are named by a proxy at 10.0.0.7: ana is an admin, ben an
// operator, cal a viewer.
func behindProxy(t *testing.T) *site {
	t.Helper()
	return newSite(t, func(c *Config) {

		gate := must.Get(auth.New(auth.Config{Kind: auth.KindProxyHeader, Preset: "authelia", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")},
			Grants: outbox.Grants{outbox.RoleAdmin: {"user:ana"}, outbox.RoleOperator: {"user:ben"}, outbox.RoleViewer: {"user:cal"}},
			Tokens: c.Tokens.TokenByHash, Now: c.Now, Logger: slog.New(slog.DiscardHandler)})).Or(t)
		c.Auth = gate
	})
}

// as is a request forwarded by the proxy for a user.
func as(user string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = "10.0.0.7:4444"
		r.Header.Set("Remote-User", user)
	}
}

// bearing is a request with a token, bypassing the proxy.
func bearing(text string) func(*http.Request) { return header("Authorization", "Bearer "+text) }

// token makes a token and returns its text.
func (s *site) token(role outbox.Role, note string) string {
	s.t.Helper()
	text, hash := auth.NewToken()
	order := outbox.Command{By: outbox.Operator{Name: "root", Via: "cli"}}
	must.Get(s.tokens.CreateToken(context.Background(), order, hash, role, note, s.clock.Add(time.Hour))).Or(s.t)
	return text
}

// Who has a session at the proxy can end it, also a user who is refused here.
func TestSignOut_isOfferedToUsersOfTheProxy(t *testing.T) {
	t.Parallel()
	s, local := behindProxy(t), newSite(t, func(c *Config) { c.SignOut = "/bye?rd=%2F" })
	s.srv.SignOut = local.srv.SignOut
	const link = `<a href="/bye?rd=%2F" data-testid="sign-out">Sign out</a>`
	s.get("/about", as("cal")).want(t, 200, link)
	s.get("/about", as("dan")).want(t, 403, link)
	s.get("/about", bearing(s.token(outbox.RoleViewer, "watch"))).want(t, 200).lacks(t, link)
	local.get("/about").want(t, 200).lacks(t, link)
}

func TestTokens_letMachinesInUntilTheyAreRevoked(t *testing.T) {
	t.Parallel()
	s := behindProxy(t)
	s.seed("c-1", "a")
	viewer, operator := s.token(outbox.RoleViewer, "watch"), s.token(outbox.RoleOperator, "deploy")
	s.get("/api/v1/summary").want(t, 401)
	s.get("/rows", bearing(viewer)).want(t, 200)
	s.post("/api/v1/campaigns/c-1/pause", `{}`, bearing(viewer)).want(t, 403, "needs the role operator", "you are token 1: watch, a viewer")
	s.post("/api/v1/campaigns/c-1/pause", `{}`, bearing(operator)).want(t, 200)
	s.get("/api/v1/audit?action=pause", as("cal")).want(t, 200, `"actor":"token 2: deploy"`, `"auth":"token"`, `"role":"operator"`)
	s.get("/api/v1/tokens", bearing(operator)).want(t, 403, "needs the role admin")
	s.post("/api/v1/tokens/2/revoke", `{"reason":"leaked"}`, as("ana")).want(t, 200, `"revoked_by":"ana"`)
	s.get("/rows", bearing(operator)).want(t, 401, "oken 2 was revoked on")
	s.post("/api/v1/tokens/2/revoke", `{}`, as("ana")).want(t, 409, "was revoked by ana")
	s.post("/api/v1/tokens/9/revoke", `{}`, as("ana")).want(t, 404, "no token 9")
	s.post("/api/v1/tokens/x/revoke", `{}`, as("ana")).want(t, 422, "whole number")
	s.get("/api/v1/audit?action=token_revoke", as("cal")).want(t, 200, `"target":"token 2"`, `"reason":"leaked"`).lacks(t, auth.HashToken(operator))
	list := s.get("/api/v1/tokens", as("ana")).want(t, 200, `"id":1`, `"note":"deploy"`).lacks(t, viewer, auth.HashToken(viewer))
	if page := decodeAs[outbox.Page[outbox.Token]](t, list); len(page.Items) != 2 || page.Items[0].ID != 1 || page.Items[1].RevokedAt == nil {
		t.Errorf("the list is %+v", page.Items)
	}
}

func TestTokens_areRevokedByAFormWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := behindProxy(t)
	s.get("/tokens", as("ana")).want(t, 200, "No API tokens yet")
	text := s.token(outbox.RoleOperator, "<deploy>")
	s.get("/tokens", as("ben")).want(t, 403, "needs the role admin; you are ben, an operator")
	s.submit("/tokens/1/revoke", "reason=x", as("ben")).want(t, 403, "admin")
	s.get("/tokens", as("ana")).want(t, 200, `data-testid="token-1"`, "&lt;deploy&gt;", `data-testid="revoke-1"`, "never", "outboxweb token revoke").lacks(t, text, "<deploy>")
	to := s.submit("/tokens/1/revoke", "reason=leaked", as("ana")).want(t, http.StatusSeeOther).Header.Get("Location")
	s.get(to, as("ana")).want(t, 200, "Revoked token 1, with the role operator (&lt;deploy&gt;)", "by ana", "revoked").lacks(t, `data-testid="revoke-1"`)
	for user, sees := range map[string]bool{"ana": true, "ben": false, "cal": false} {
		if got := strings.Contains(s.get("/", as(user)).want(t, 200).body, `href="/tokens"`); got != sees {
			t.Errorf("%s sees the way to the tokens: %t", user, got)
		}
	}
}
