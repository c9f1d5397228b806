package templates

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

// AuditView is one page of audit records and the filter it was read with.
type AuditView struct {
	Filter        outbox.AuditFilter `redact:"-"`
	Page          outbox.Page[outbox.AuditEntry]
	RemovedBefore time.Time // older records are gone; zero when none are
}

// option is one of a list to choose from.
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

// authWords say how it is known who somebody is.
var authWords = map[outbox.Auth]string{
	outbox.AuthLocal:       "none (local)",
	outbox.AuthJWT:         "signed assertion",
	outbox.AuthProxyHeader: "proxy header",
	outbox.AuthToken:       "token",
	outbox.AuthOS:          "system user",
	outbox.AuthSystem:      "outboxweb itself",
}

func authOptions() []option {
	var all []option
	for _, auth := range []outbox.Auth{outbox.AuthLocal, outbox.AuthJWT, outbox.AuthProxyHeader, outbox.AuthToken, outbox.AuthOS, outbox.AuthSystem} {
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

// actorFacts say how it was known who acted, what that one might do, and how the
// act came in. Records of older versions lack some of it.
func actorFacts(a outbox.AuditEntry) string {
	facts := []string{"via " + a.Via}
	if a.From != "" {
		facts[0] += " from " + a.From
	}
	if a.Auth != "" {
		facts = append(facts, string(a.Auth))
	}
	if a.Role != "" {
		facts = append(facts, string(a.Role))
	}
	return strings.Join(facts, " · ")
}

// targetURL is the page of what an action was about besides a campaign; empty where
// there is none that the reader may see, or the text is cut off.
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
	case kind == "projection" && name != "":
		return l.Projection(name)
	case kind == "publisher":
		if sub, err := outbox.ParseSubscriptionName(name); err == nil {
			return l.Publisher(sub)
		}
	}
	return ""
}
