package alerts

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// muteCommand is the parameters of a mute in its audit record.
type muteCommand struct {
	Rule  string    `json:"rule"`
	For   string    `json:"for,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// Mute silences a rule, or all rules if the name is all, for a span of AlertMuteSpans. A mute
// replaces the one before.
func (a *Alerts) Mute(ctx context.Context, o operator.Command, rule, span string) (AlertMute, error) {
	asked := muteCommand{Rule: rule, For: span}
	c := &store.Change{Command: o, Action: operator.ActionAlertMute, Target: operator.AlertTarget(rule), Before: asked, Asked: asked}
	return store.Perform(ctx, a.core, c, func(t *store.Tx, now int64) (AlertMute, error) {
		m := AlertMute{Rule: rule, By: o.By.Name, At: sqldb.At(now), Reason: o.Reason}
		var err error
		if m.Rule, err = a.muted(rule); err != nil {
			return m, err
		}
		if m.Until, err = MuteEnd(span, m.At); err != nil {
			return m, err
		}
		if err := a.core.RequireReason(o, 0); err != nil {
			return m, err
		}
		c.After = muteCommand{Rule: rule, For: span, Until: m.Until}
		_, err = t.Exec(`
insert into alert_mutes (rule, until, muted_at, muted_by, reason)
values ($1, $2, $3, $4, $5)
on conflict (rule) do update
set until = excluded.until, muted_at = excluded.muted_at, muted_by = excluded.muted_by, reason = excluded.reason`,
			m.Rule, m.Until.UnixMicro(), now, m.By, m.Reason)
		return m, err
	})
}

// Unmute ends a mute. It returns event.ErrConflict if there is none.
func (a *Alerts) Unmute(ctx context.Context, o operator.Command, rule string) (AlertMute, error) {
	asked := muteCommand{Rule: rule}
	c := &store.Change{Command: o, Action: operator.ActionAlertUnmute, Target: operator.AlertTarget(rule), Before: asked, Asked: asked}
	return store.Perform(ctx, a.core, c, func(t *store.Tx, now int64) (AlertMute, error) {
		name := rule
		if rule == AllAlerts {
			name = ""
		}
		mutes, err := readMutes(t, now)
		if err != nil {
			return AlertMute{}, err
		}
		for _, m := range mutes {
			if m.Rule != name {
				continue
			}
			if err := a.core.RequireReason(o, 0); err != nil {
				return m, err
			}
			_, err := t.Exec(`delete from alert_mutes where rule = $1`, name)
			c.After = muteCommand{Rule: rule, Until: m.Until}
			return m, err
		}
		return AlertMute{}, event.Conflict("%s not muted", map[bool]string{true: "the alerts as a whole are", false: "rule " + rule + " is"}[name == ""])
	})
}

func (a *Alerts) muted(rule string) (string, error) {
	if rule == AllAlerts {
		return "", nil
	}
	if !a.hasRule(rule) {
		return "", event.NotFound("there is no alert rule %q in this process's configuration", rule)
	}
	return rule, nil
}

// Test sends a test message to a receiver, and records it. An error of the receiver is part of the
// result. A command whose idempotency key was used before sends nothing.
func (a *Alerts) Test(ctx context.Context, o operator.Command, receiver string) (AlertTestResult, error) {
	asked := AlertTestResult{Receiver: receiver}
	c := &store.Change{Command: o, Action: operator.ActionAlertTest, Target: operator.AlertReceiverTarget(receiver), Before: asked, Asked: asked}
	r, known := a.receiver(receiver)
	if !known {
		return asked, a.core.Refused(ctx, c, event.NotFound("there is no receiver %q in this process's configuration", receiver))
	}
	m := TestAlert("test-"+uuid.NewString(), o.By.Name, a.link)
	var failure error
	send := func(ctx context.Context) (AlertTestResult, error) {
		began := time.Now()
		failure = r.Send(ctx, m, a.Version, sqldb.At(a.core.Now()))
		result := AlertTestResult{Receiver: receiver, OK: failure == nil, Seconds: time.Since(began).Seconds()}
		if failure != nil {
			result.Error = a.Hide(failure.Error())
		}
		return result, nil
	}
	return store.PerformOutside(ctx, a.core, c, func(*store.Tx) error { return nil }, send, func(t *store.Tx, result AlertTestResult, now int64) error {
		at := sqldb.At(now)
		d := AlertDelivery{Receiver: receiver, Message: m, CreatedAt: at, Status: "failed", LastError: result.Error}
		if result.OK {
			d.Status, d.SentAt = "sent", &at
		}
		if err := insertMessage(t, d); err != nil {
			return err
		}
		return recordOutcome(t, receiver, failure, result.Error, now)
	})
}
