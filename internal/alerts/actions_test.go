package alerts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// nowhere is a receiver that refuses every connection: a test of it is recorded all the same.
const nowhere = `{receivers: {hook: {url: "http://127.0.0.1:1/", allow_private: true}}, to: [hook]}`

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
			must.Get(f.Mute(f.Ctx, storetest.Ben, outbox.AllAlerts, "1h")).Or(f.TB)
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

func TestMute_holdsBackUntilItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	must.Get(f.Mute(f.Ctx, storetest.Ana("deploying"), "all", "1h")).Or(t)
	f.dead(3)
	f.pass(30 * time.Minute)
	if v, _ := f.View(f.Ctx); w.kinds() != "" || v.Rules[0].MutedUntil == nil || v.Rules[0].Status() != outbox.AlertFiring {
		t.Fatalf("sent %q, %+v", w.kinds(), v.Rules[0])
	}
	must.Get(f.Unmute(f.Ctx, storetest.Ana("done"), "all")).Or(t)
	f.step()
	must.Equal(t, w.kinds(), "firing", "sent", "after the mute")
	must.Get(f.Mute(f.Ctx, storetest.Ana(""), "dead_rows", "8h")).Or(t)
	f.dead(0)
	f.pass(time.Minute)
	must.Equal(t, w.kinds(), "firing", "sent", "in the mute")
	f.pass(time.Minute)
	f.Clock.Advance(8 * time.Hour)
	f.pass(time.Minute)
	must.Equal(t, w.kinds(), "firing resolved", "sent", "after the mute")
	_, err := f.Unmute(f.Ctx, storetest.Ana(""), "dead_rows")
	storetest.Refused(t, err, outbox.ErrConflict, "rule dead_rows is not muted")
	_, err = f.Mute(f.Ctx, storetest.Ana(""), "nothing", "1h")
	storetest.Refused(t, err, outbox.ErrNotFound, "no alert rule")
}

func TestTest_sendsAMarkedMessageAndRecordsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	o := storetest.Ana("trying")
	o.IdempotencyKey = "k-1"
	for range 2 {
		if d, err := f.Test(f.Ctx, o, "hook"); err != nil || !d.OK {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	must.Hold(t, w.kinds() == "test" && strings.Contains(w.got[0].Title, "Test message, sent by ana"), "sent %q", w.bodies)
	w.answer(500)
	d, err := f.Test(f.Ctx, storetest.Ana(""), "hook")
	must.Hold(t, err == nil && !d.OK && strings.Contains(d.Error, "500") && !strings.Contains(d.Error, "hunter2"), "%+v, %v", d, err)
	_, err = f.Test(f.Ctx, storetest.Ana(""), "none")
	storetest.Refused(t, err, outbox.ErrNotFound, `no receiver "none"`)
	acts, err := f.AuditLogOf(f.Ctx, 10, outbox.AlertReceiverTarget("hook"))
	must.Hold(t, err == nil && len(acts) == 2 && acts[0].Action == outbox.ActionAlertTest, "%+v, %v", acts, err)
}
