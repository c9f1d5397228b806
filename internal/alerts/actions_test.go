package alerts_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// nowhere is a receiver that refuses every connection: a test of it is recorded all the same.
const nowhere = `{receivers: {hook: {url: "http://127.0.0.1:1/", allow_private: true}}, to: [hook]}`

// kinds are all operator actions on alerts.
var kinds = storetest.Kinds[*fixture]{
	Open: func(tb testing.TB, o ...func(*store.Options)) *fixture {
		return around(storetest.Open(tb, o...), "w-1", nowhere)
	},
	Base:   func(f *fixture) *storetest.Fixture { return f.Fixture },
	Beside: func(f *fixture) *fixture { return around(f.Fixture.Beside(), "w-2", nowhere) },
	All: []storetest.Kind[*fixture]{
		{Action: "alert_mute", Scene: func(*fixture) {},
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.Mute(f.Ctx, o, outbox.AllAlerts, "1h") },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_mutes`) == 0 }},
		{Action: "alert_unmute", Scene: func(f *fixture) {
			if _, err := f.Mute(f.Ctx, storetest.Ben, outbox.AllAlerts, "1h"); err != nil {
				f.TB.Fatal(err)
			}
		},
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.Unmute(f.Ctx, o, outbox.AllAlerts) },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_mutes`) == 1 }},
		{Action: "alert_test", Scene: func(*fixture) {},
			Do:     func(f *fixture, o outbox.Command) (any, error) { return f.Test(f.Ctx, o, "hook") },
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from alert_messages`) == 0 }},
	},
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a outbox.Action) bool { return strings.HasPrefix(string(a), "alert_") })
}
