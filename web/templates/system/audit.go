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

func auditForm(p ui.Page, f operator.AuditFilter) ui.FilterForm {
	return ui.FilterForm{Filter: f, To: p.Links.Audit(operator.AuditFilter{}), Does: "Filter", Clear: f != operator.AuditFilter{},
		First: []string{"actor", "action", "outcome", "campaign", "seq", "target", "auth", "role", "since", "until"},
		Words: map[string][]ui.Option{"action": actionOptions(), "auth": authOptions()}}
}

func actionOptions() []ui.Option {
	var all []ui.Option
	for _, action := range operator.AuditedActions() {
		all = append(all, ui.Option{Value: string(action), Words: action.Info().Choice})
	}
	slices.SortFunc(all, func(a, b ui.Option) int { return strings.Compare(a.Words, b.Words) })
	return all
}

func authOptions() []ui.Option {
	var all []ui.Option
	for _, auth := range operator.Auths {
		all = append(all, ui.Option{Value: string(auth), Words: ui.AuthWords[auth]})
	}
	return all
}
