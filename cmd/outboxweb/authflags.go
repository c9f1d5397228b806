package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// authFlags configure how serve authenticates requests.
type authFlags struct {
	auth.Config
	TokensFile     string `placeholder:"FILE" help:"API tokens in addition to those in the database: lines with name, role and hash, as token hash prints them. Read at start."`
	InsecureNoAuth bool   `help:"Listen on non-loopback addresses without authentication; only with --read-only."`
}

// kind is how users are authenticated. --insecure-no-auth admits everyone, also through a proxy.
func (f *authFlags) kind() auth.Kind {
	if f.InsecureNoAuth && !f.authenticates() {
		return auth.KindNone
	}
	return cmp.Or(f.Kind, auth.KindLocal)
}

// authenticates reports whether users are told apart.
func (f *authFlags) authenticates() bool {
	return !slices.Contains([]auth.Kind{"", auth.KindLocal, auth.KindNone}, f.Kind)
}

// letsProxiesAct reports whether the flags admit, or indicate, a proxy in front while no
// authentication tells its users apart.
func (c *serveCmd) letsProxiesAct() bool {
	return !c.authenticates() && !c.ReadOnly && (c.kind() == auth.KindNone || c.PublicOrigin != "" || len(c.TrustedProxy) > 0)
}

// gate returns the authenticator of requests. st, collectors and log may be nil when only the flags
// are validated.
func (f *authFlags) gate(st *engine.Engine, collectors *metrics.Metrics, log *slog.Logger) (*auth.Gate, error) {
	c := f.Config
	c.Kind, c.Logger = f.kind(), log
	c.Tokens = func(ctx context.Context, hash string) (operator.Token, error) { return st.ValidToken(ctx, hash) }
	if collectors != nil {
		c.Refused = func(why string) { collectors.IdentityRefused.WithLabelValues(why).Inc() }
	}
	g, err := auth.New(c)
	return g, asFlag(err)
}

// asFlag reports a refused configuration as wrong usage of its flag.
func asFlag(err error) error {
	if refusal, ok := errors.AsType[*event.Refusal](err); ok && refusal.Field != "" {
		return asUsage("--"+refusal.Field, refusal)
	}
	return err
}
