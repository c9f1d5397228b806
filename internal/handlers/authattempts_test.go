package handlers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// While authentication is unavailable, requests cause one log line per second, rather than one
// each.
func TestIdentity_thatCannotBeToldFillsNoLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := newSite(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var err error
		c.Auth, err = auth.New(auth.Config{Kind: auth.KindToken, Logger: c.Logger, Now: c.Now,
			Tokens: func(context.Context, string) (outbox.Token, error) {
				return outbox.Token{}, errors.New("the disk is gone")
			}})
		if err != nil {
			t.Fatal(err)
		}
	})
	text, _ := auth.NewToken()
	for range 20 {
		a := s.get("/api/v1/rows", header("Authorization", "Bearer "+text)).want(t, 503, "urn:outboxweb:busy").lacks(t, "disk")
		if a.Header.Get("Retry-After") == "" {
			t.Error("it is not said when to come back")
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "the disk is gone") {
		t.Errorf("%d lines were logged:\n%s", lines, log.String())
	}
}

// While the issuer is away the console says so where an operator looks, and stays ready: API tokens
// are accepted.
func TestIdentity_keysThatCannotBeReadAreReported(t *testing.T) {
	t.Parallel()
	const trouble = "the issuer's keys have not been read yet, so every user is refused: http://127.0.0.1:1/keys: connection refused; the next try is at "
	g := newGuarded(t, func(c *Config) {
		var err error
		c.Auth, err = auth.New(auth.Config{Kind: auth.KindJWT, Header: "X-Assertion", Issuer: "https://sso.example", Audience: []string{"outboxweb"}, JWKS: "http://127.0.0.1:1/keys",
			Grants: outbox.Grants{outbox.RoleViewer: {"*"}}, Tokens: c.Tokens.TokenByHash, Logger: c.Logger, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
	})
	g.get("/readyz?verbose").want(t, 200, `{"ready":true,"reasons":[]}`)
	const signed = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.c2lnbmVk"
	a := g.get("/api/v1/rows", header("X-Assertion", signed)).want(t, 503, "urn:outboxweb:busy", "keys cannot be read at the moment, so the signature cannot be checked; try again in 10 s")
	if got := a.Header.Get("Retry-After"); got != "10" {
		t.Errorf("Retry-After is %q", got)
	}
	g.get("/readyz?verbose").want(t, 200, `"ready":true`, `"warnings":["`+trouble)
	g.get("/readyz").want(t, 200).lacks(t, "warnings")
	about := decodeAs[about](t, g.get("/api/v1/about", g.byToken("viewer")).want(t, 200))
	if len(about.Request.Advice) != 1 || !strings.HasPrefix(about.Request.Advice[0], trouble) {
		t.Errorf("advice: %q", about.Request.Advice)
	}
}
