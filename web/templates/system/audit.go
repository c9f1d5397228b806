package system

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// AuditView is one page of audit records and the filter it was read with.
type AuditView struct {
	Filter        outbox.AuditFilter `redact:"-"`
	Page          outbox.Page[outbox.AuditEntry]
	RemovedBefore time.Time // older records were removed; zero if none were
	ui.Offered
}

func actionOptions() []ui.Option {
	var all []ui.Option
	for _, action := range outbox.AuditedActions() {
		all = append(all, ui.Option{Value: string(action), Words: action.Info().Choice})
	}
	slices.SortFunc(all, func(a, b ui.Option) int { return strings.Compare(a.Words, b.Words) })
	return all
}

var actOutcomes = []ui.Option{{Value: string(outbox.AuditDone), Words: "done"}, {Value: string(outbox.AuditRefused), Words: "refused"}}

func authOptions() []ui.Option {
	var all []ui.Option
	for _, auth := range []outbox.Auth{outbox.AuthLocal, outbox.AuthJWT, outbox.AuthProxyHeader, outbox.AuthToken, outbox.AuthHost, outbox.AuthOS, outbox.AuthSystem} {
		all = append(all, ui.Option{Value: string(auth), Words: ui.AuthWords[auth]})
	}
	return all
}

func roleOptions() []ui.Option {
	var all []ui.Option
	for _, role := range outbox.Roles {
		all = append(all, ui.Option{Value: string(role), Words: string(role)})
	}
	return all
}
