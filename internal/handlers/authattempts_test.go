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
