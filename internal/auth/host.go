package auth

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Host returns the gate of a program that identifies its users itself, beside API tokens: who returns
// the identity of a request with its role, or an error, which is logged. refused may be nil; see
// Config.
func Host(who func(*http.Request) (outbox.Identity, error), tokens func(context.Context, string) (outbox.Token, error), refused func(string), log *slog.Logger) *Gate {
	g, err := New(Config{Kind: KindHost, Who: who, Tokens: tokens, Refused: refused, Logger: log})
	if err != nil {
		panic(err) // nothing in it can be wrong
	}
	return g
}

// byHost asks the program in which this server is embedded.
func (g *Gate) byHost(r *http.Request) (outbox.Identity, *denial) {
	who, err := g.config.Who(r)
	if err != nil {
		denied := deny(whyAbsent, "you are not signed in; sign in and load the page again")
		denied.cause = err
		return outbox.Identity{}, denied
	}
	if who.Name == "" {
		return outbox.Identity{}, deny(whyClaims, "the program that this console is part of names no user for this request")
	}
	if !who.Role.Includes(outbox.RoleViewer) {
		denied := deny(whyRole, "user %q has no role here; the program that this console is part of grants one", who.Name)
		denied.refusal.Err = ErrNoRole
		return outbox.Identity{}, denied
	}
	return who, nil
}
