package handlers

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Who has a session at the proxy can end it, also a user who is refused here.
func TestSignOut_isOfferedToUsersOfTheProxy(t *testing.T) {
	t.Parallel()
	s, local := newGuarded(t, func(c *Config) { c.SignOut = "/bye?rd=%2F" }), newSite(t, func(c *Config) { c.SignOut = "/bye?rd=%2F" })
	const link = `<a href="/bye?rd=%2F" data-testid="sign-out">Sign out</a>`
	s.get("/about", people[outbox.RoleViewer]).want(t, 200, link)
	s.get("/about", byProxy("dan")).want(t, 403, link)
	s.get("/about", s.byToken("viewer")).want(t, 200).lacks(t, link)
	local.get("/about").want(t, 200).lacks(t, link)
}

func TestTokens_areListedAndRevokedByAdmins(t *testing.T) {
	t.Parallel()
	s, empty := newGuarded(t), newSite(t)
	ada := people[outbox.RoleAdmin]
	empty.get("/tokens").want(t, 200, "No API tokens yet")
	s.addToken("<deploy>", outbox.RoleOperator, time.Hour) // the sixth
	s.seed("c-1", "a")
	s.post("/api/v1/campaigns/c-1/pause", `{}`, s.byToken("viewer")).want(t, 403, "needs the role operator", "you are token 1: viewer, a viewer")
	s.post("/api/v1/campaigns/c-1/pause", `{}`, s.byToken("operator")).want(t, 200)
	s.get("/api/v1/audit?action=pause", ada).want(t, 200, `"actor":"token 2: operator"`, `"auth":"token"`, `"role":"operator"`)
	list := s.get("/api/v1/tokens", ada).want(t, 200, `"id":1`, `"note":"viewer"`).lacks(t, s.tokens["viewer"], auth.HashToken(s.tokens["viewer"]))
	if page := decodeAs[outbox.Page[outbox.Token]](t, list); len(page.Items) != 6 || page.Items[0].ID != 6 {
		t.Errorf("the list is %+v", page.Items)
	}
	s.post("/api/v1/tokens/x/revoke", `{}`, ada).want(t, 422, "whole number")
	s.get("/tokens", people[outbox.RoleOperator]).want(t, 403, "needs the role admin; you are otto, an operator")
	s.get("/tokens", ada).want(t, 200, `data-testid="token-6"`, "&lt;deploy&gt;", `data-testid="revoke-6"`, "never", "outboxweb token revoke").lacks(t, s.tokens["<deploy>"], "<deploy>")
	to := s.submit("/tokens/6/revoke", "reason=leaked", ada).want(t, http.StatusSeeOther).Header.Get("Location")
	s.get(to, ada).want(t, 200, "Revoked token 6, with the role operator (&lt;deploy&gt;)", "by ada", "revoked").lacks(t, `data-testid="revoke-6"`)
	s.get("/rows", s.byToken("<deploy>")).want(t, 401, "oken 6 was revoked on")
	s.get("/api/v1/audit?action=token_revoke", ada).want(t, 200, `"target":"token 6"`, `"reason":"leaked"`).lacks(t, auth.HashToken(s.tokens["<deploy>"]))
	for role, as := range people {
		if got := strings.Contains(s.get("/", as).want(t, 200).body, `href="/tokens"`); got != (role == outbox.RoleAdmin) {
			t.Errorf("a %s sees the way to the tokens: %t", role, got)
		}
	}
}
