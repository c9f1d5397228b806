package alerts

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// muteCommand is the parameters of a mute in its audit record.
type muteCommand struct {
	Rule  string    `json:"rule"`
	For   string    `json:"for,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// Mute silences a rule, or all rules if the name is all, for a span of outbox.AlertMuteSpans. A mute
// replaces the one before.
func (a *Alerts) Mute(ctx context.Context, o outbox.Command, rule, span string) (outbox.AlertMute, error) {
	asked := muteCommand{Rule: rule, For: span}
	c := &store.Change{Command: o, Action: outbox.ActionAlertMute, Target: outbox.AlertTarget(rule), Before: asked, Asked: asked}
	return store.Perform(ctx, a.core, c, func(t *store.Tx, now int64) (outbox.AlertMute, error) {
		m := outbox.AlertMute{Rule: rule, By: o.By.Name, At: sqldb.At(now), Reason: o.Reason}
		var err error
		if m.Rule, err = a.muted(rule); err != nil {
			return m, err
		}
		if m.Until, err = outbox.MuteEnd(span, m.At); err != nil {
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

// Unmute ends a mute. It returns outbox.ErrConflict if there is none.
func (a *Alerts) Unmute(ctx context.Context, o outbox.Command, rule string) (outbox.AlertMute, error) {
	asked := muteCommand{Rule: rule}
	c := &store.Change{Command: o, Action: outbox.ActionAlertUnmute, Target: outbox.AlertTarget(rule), Before: asked, Asked: asked}
	return store.Perform(ctx, a.core, c, func(t *store.Tx, now int64) (outbox.AlertMute, error) {
		name := rule
		if rule == outbox.AllAlerts {
			name = ""
		}
		mutes, err := readMutes(t, now)
		if err != nil {
			return outbox.AlertMute{}, err
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
		return outbox.AlertMute{}, outbox.Conflict("%s not muted", map[bool]string{true: "the alerts as a whole are", false: "rule " + rule + " is"}[name == ""])
	})
}

func (a *Alerts) muted(rule string) (string, error) {
	if rule == outbox.AllAlerts {
		return "", nil
	}
	if !a.hasRule(rule) {
		return "", outbox.NotFound("there is no alert rule %q in this process's configuration", rule)
	}
	return rule, nil
}

// Test sends a test message to a receiver, and records it. An error of the receiver is part of the
// result. A command whose idempotency key was used before sends nothing.
func (a *Alerts) Test(ctx context.Context, o outbox.Command, receiver string) (outbox.AlertTestResult, error) {
	asked := outbox.AlertTestResult{Receiver: receiver}
	c := &store.Change{Command: o, Action: outbox.ActionAlertTest, Target: outbox.AlertReceiverTarget(receiver), Before: asked, Asked: asked}
	r, known := a.receiver(receiver)
	if !known {
		return asked, a.core.Refused(ctx, c, outbox.NotFound("there is no receiver %q in this process's configuration", receiver))
	}
	m := outbox.TestAlert("test-"+uuid.NewString(), o.By.Name, a.link)
	var failure error
	send := func(ctx context.Context) (outbox.AlertTestResult, error) {
		began := time.Now()
		failure = r.Send(ctx, m, a.Version, sqldb.At(a.core.Now()))
		result := outbox.AlertTestResult{Receiver: receiver, OK: failure == nil, Seconds: time.Since(began).Seconds()}
		if failure != nil {
			result.Error = a.Hide(failure.Error())
		}
		return result, nil
	}
	return store.PerformOutside(ctx, a.core, c, func(*store.Tx) error { return nil }, send, func(t *store.Tx, result outbox.AlertTestResult, now int64) error {
		at := sqldb.At(now)
		d := outbox.AlertDelivery{Receiver: receiver, Message: m, CreatedAt: at, Status: "failed", LastError: result.Error}
		if result.OK {
			d.Status, d.SentAt = "sent", &at
		}
		if err := insertMessage(t, d); err != nil {
			return err
		}
		return recordOutcome(t, receiver, failure, result.Error, now)
	})
}
