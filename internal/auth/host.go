package auth

import (
	"errors"
	"net/http"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// ForHost returns a function for Config.Who that identifies requests as a gate of this configuration
// does. It neither logs nor counts its refusals, which the other gate passes on, and they name settings as
// the embedding program has them. An invalid configuration is an event.ErrSetup.
func ForHost(c Config) (func(*http.Request) (operator.Identity, error), error) {
	g, err := New(c)
	if refusal := (*event.Refusal)(nil); errors.As(err, &refusal) {
		return nil, event.Setup("%s: %s", hostWords.Replace("--"+refusal.Field), hostWords.Replace(refusal.Detail))
	}
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (operator.Identity, error) {
		who, denied := g.identify(r)
		if denied != nil {
			said := *denied.refusal
			said.Detail = hostWords.Replace(said.Detail)
			return operator.Identity{}, &denial{why: denied.why, refusal: &said, cause: denied.cause}
		}
		return who, nil
	}, nil
}

// hostWords names settings by the fields of outboxweb.ProxyHeader and outboxweb.Assertion, which are named as
// those of Config are.
var hostWords = func() *strings.Replacer {
	words := []string{operator.RoleFlags(), "Roles", "--viewer", "Roles", "--operator", "Roles", "--admin", "Roles",
		"--trusted-proxy", "Trusted", "--auth jwt", "Assertion", "--auth proxy-header", "ProxyHeader"}
	for _, f := range bound {
		words = append(words, "--"+f.Tag.Get("name"), f.Name)
	}
	return strings.NewReplacer(words...)
}()

// byHost asks the program in which this server is embedded.
func (g *Gate) byHost(r *http.Request) (operator.Identity, *denial) {
	who, err := g.config.Who(r)
	if denied := (*denial)(nil); errors.As(err, &denied) {
		return operator.Identity{}, denied
	}
	if err != nil {
		denied := deny(whyAbsent, "you are not signed in; sign in and load the page again")
		denied.cause = err
		return operator.Identity{}, denied
	}
	if who.Name == "" {
		return operator.Identity{}, deny(whyClaims, "the program that this console is part of names no user for this request")
	}
	if !who.Role.Includes(operator.RoleViewer) {
		return operator.Identity{}, deny(whyRole, "you are signed in as %q, and have no role here: the program that this console is part of grants one", who.Name)
	}
	return who, nil
}
