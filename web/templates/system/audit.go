package system

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// AuditView is one page of audit records and the filter it was read with.
type AuditView struct {
	Filter        operator.AuditFilter `redact:"-"`
	Page          event.Page[operator.AuditEntry]
	RemovedBefore time.Time // older records were removed; zero if none were
	ui.Offered
}

func actionOptions() []ui.Option {
	var all []ui.Option
	for _, action := range operator.AuditedActions() {
		all = append(all, ui.Option{Value: string(action), Words: action.Info().Choice})
	}
	slices.SortFunc(all, func(a, b ui.Option) int { return strings.Compare(a.Words, b.Words) })
	return all
}

var actOutcomes = []ui.Option{{Value: string(operator.AuditDone), Words: "done"}, {Value: string(operator.AuditRefused), Words: "refused"}}

func authOptions() []ui.Option {
	var all []ui.Option
	for _, auth := range []operator.Auth{operator.AuthLocal, operator.AuthJWT, operator.AuthProxyHeader, operator.AuthToken, operator.AuthHost, operator.AuthOS, operator.AuthSystem} {
		all = append(all, ui.Option{Value: string(auth), Words: ui.AuthWords[auth]})
	}
	return all
}

func roleOptions() []ui.Option {
	var all []ui.Option
	for _, role := range operator.Roles {
		all = append(all, ui.Option{Value: string(role), Words: string(role)})
	}
	return all
}
