package templates

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// AuditView is one page of audit records and the filter it was read with.
type AuditView struct {
	Filter        outbox.AuditFilter `redact:"-"`
	Page          outbox.Page[outbox.AuditEntry]
	RemovedBefore time.Time // older records were removed; zero if none were
	Offered
}

// option is one choice of a list.
type option struct{ Value, Words string }

func actionOptions() []option {
	var all []option
	for _, action := range outbox.AuditedActions() {
		all = append(all, option{string(action), action.Info().Choice})
	}
	slices.SortFunc(all, func(a, b option) int { return strings.Compare(a.Words, b.Words) })
	return all
}

var actOutcomes = []option{{string(outbox.AuditDone), "done"}, {string(outbox.AuditRefused), "refused"}}

// authWords describe the methods of authentication.
var authWords = map[outbox.Auth]string{
	outbox.AuthLocal:       "none (local)",
	outbox.AuthJWT:         "signed assertion",
	outbox.AuthProxyHeader: "proxy header",
	outbox.AuthToken:       "token",
	outbox.AuthHost:        "embedding program",
	outbox.AuthOS:          "system user",
	outbox.AuthSystem:      "outboxweb itself",
}

// authFact is how an actor was authenticated, without the label that a choice has.
func authFact(a outbox.Auth) string {
	if a == outbox.AuthLocal {
		return "no authentication"
	}
	return cmp.Or(authWords[a], string(a))
}

func authOptions() []option {
	var all []option
	for _, auth := range []outbox.Auth{outbox.AuthLocal, outbox.AuthJWT, outbox.AuthProxyHeader, outbox.AuthToken, outbox.AuthHost, outbox.AuthOS, outbox.AuthSystem} {
		all = append(all, option{string(auth), authWords[auth]})
	}
	return all
}

func roleOptions() []option {
	var all []option
	for _, role := range outbox.Roles {
		all = append(all, option{string(role), string(role)})
	}
	return all
}

// actorFacts describes how the actor was authenticated, the actor's role, and the action's channel.
// Records of older versions lack some of it.
func actorFacts(a *outbox.AuditEntry) string {
	facts := []string{"via " + a.Via}
	if a.From != "" {
		facts[0] += " from " + a.From
	}
	if a.Auth != "" {
		facts = append(facts, authFact(a.Auth))
	}
	if a.Role != "" {
		facts = append(facts, "role "+string(a.Role))
	}
	return strings.Join(facts, " · ")
}

// targetURL returns the page of an action's object other than a campaign; empty if the reader may
// not see it, or the text is truncated.
func (p Page) targetURL(t outbox.Target) URL {
	l := p.Links
	kind, name, _ := strings.Cut(string(t), " ")
	id, err := strconv.ParseInt(name, 10, 64)
	switch {
	case kind == "run" && err == nil:
		return l.RunOf(id)
	case kind == "operation" && err == nil:
		return l.Operation(id, outbox.OperationRowFilter{})
	case kind == "token" && p.Me.Role.Includes(outbox.RoleAdmin):
		return l.Tokens()
	case kind == "alert" || kind == "receiver":
		return l.Alerts()
	case kind == "source" && name != "":
		return l.Source(name, "", 0)
	case kind == "projection" && name != "":
		return l.Projection(name)
	case kind == "publisher":
		if sub, err := outbox.ParseSubscriptionName(name); err == nil {
			return l.Publisher(sub)
		}
	}
	return ""
}
