package tokens_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// kinds are all operator actions on tokens.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return around(f.Fixture.Beside()) }, All: []storetest.Kind[*fixture]{
	{Action: "token_create", Scene: func(*fixture) {},
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.CreateToken(f.Ctx, o, "0123", outbox.RoleViewer, "deploy", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from tokens`) == 0 }},
	{Action: "token_revoke", Scene: func(f *fixture) { token(f, "0123", outbox.RoleViewer, time.Hour) },
		Do:     func(f *fixture, o outbox.Command) (any, error) { return f.RevokeToken(f.Ctx, o, 1) },
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from tokens where revoked_at is null`) == 1 }},
}}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a outbox.Action) bool { return strings.HasPrefix(string(a), "token_") })
}
