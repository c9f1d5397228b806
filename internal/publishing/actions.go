package publishing

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
	"outboxweb/internal/store"
)

// publisherCommand is what an action on a subscription was asked to do, as the audit record
// has it.
type publisherCommand struct {
	outbox.SubscriptionName
	Position *int64 `json:"position,omitempty"`
	Time     string `json:"time,omitempty"`
	To       string `json:"to,omitempty"`
}

// publisherFacts are what an audit record keeps of a subscription.
type publisherFacts struct {
	Status        outbox.PublisherStatus `json:"status"`
	Position      int64                  `json:"position"`
	ErrorCount    int64                  `json:"error_count"`
	LastError     string                 `json:"last_error,omitempty"`
	ErrorPosition int64                  `json:"error_position,omitempty"`
}

func (p *publisherRow) facts() publisherFacts {
	return publisherFacts{Status: p.status, Position: p.position, ErrorCount: p.errors, LastError: p.lastError, ErrorPosition: p.errorPosition}
}

// publisherChange is what came of an action on a subscription, as its audit record has it.
type publisherChange struct {
	Was  publisherFacts   `json:"was"`
	Is   publisherFacts   `json:"is"`
	Seek *outbox.Seek     `json:"seek,omitempty"`
	Skip *outbox.EventRef `json:"skip,omitempty"`
}

// change changes the row of a subscription. An action that gives the audit record
// nothing to add passes a change that returns nil.
func (pr *Progress) change(ctx context.Context, o outbox.Command, action outbox.Action, asked publisherCommand, change func(*tx, *publisherRow, *publisherChange, int64) error) (outbox.Publisher, error) {
	a := &store.Change{Command: o, Action: action, Target: outbox.PublisherTarget(asked.SubscriptionName), Before: asked, Asked: asked}
	return perform(ctx, pr, a, func(t *tx, now int64) (outbox.Publisher, error) {
		p, err := t.changed(a, asked.SubscriptionName, change, now)
		if err != nil {
			return outbox.Publisher{}, err
		}
		return t.view(p, now)
	})
}

// changed is the part of an action on a subscription that all have in common.
// Whoever holds the subscription sees by the number of actions that there was one.
func (t *tx) changed(a *store.Change, name outbox.SubscriptionName, change func(*tx, *publisherRow, *publisherChange, int64) error, now int64) (*publisherRow, error) {
	p, err := t.publisher(name)
	if err != nil {
		return nil, err
	}
	came := publisherChange{Was: p.facts()}
	if err := change(t, p, &came, now); err != nil {
		return nil, err
	}
	p.actions++
	came.Is, a.After = p.facts(), &came
	return p, t.save(p, now)
}

// Pause stops a subscription until it is resumed; its holder notices after the batch in
// flight, and delivers nothing that is appended later. One that is paused already
// is outbox.ErrConflict, a missing one outbox.ErrNotFound.
func (pr *Progress) Pause(ctx context.Context, o outbox.Command, name outbox.SubscriptionName) (outbox.Publisher, error) {
	return pr.change(ctx, o, outbox.ActionPublisherPause, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Pausable() {
			return outbox.Conflict("publisher %s is already paused, by %s since %s ago%s", name, p.pausedBy,
				outbox.Age(sqldb.At(now).Sub(sqldb.At(p.pausedAt.Int64))), t.lastAction(name, now))
		}
		p.status = outbox.PublisherPaused
		p.pausedAt, p.pausedBy, p.pausedReason = sql.NullInt64{Int64: now, Valid: true}, o.By.Name, o.Reason
		return pr.core.RequireReason(o, 0)
	})
}

// Resume lets a subscription that is paused or has failed go on at once, with no errors
// counted. One with nothing to resume is outbox.ErrConflict, a missing one
// outbox.ErrNotFound. Of two callers at once one wins.
func (pr *Progress) Resume(ctx context.Context, o outbox.Command, name outbox.SubscriptionName) (outbox.Publisher, error) {
	return pr.change(ctx, o, outbox.ActionPublisherResume, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Resumable() {
			return outbox.Conflict("publisher %s is active and has no errors, so there is nothing to resume%s", name, t.lastAction(name, now))
		}
		if p.status == outbox.PublisherPaused {
			p.status = outbox.PublisherActive
			p.pausedAt, p.pausedBy, p.pausedReason = sql.NullInt64{}, "", ""
		}
		p.clearErrors()
		return pr.core.RequireReason(o, 0)
	})
}

// Reset forgets the errors of a subscription, so that one that is not paused is tried at
// once; a pause stays. One without errors is outbox.ErrConflict, a missing one
// outbox.ErrNotFound.
func (pr *Progress) Reset(ctx context.Context, o outbox.Command, name outbox.SubscriptionName) (outbox.Publisher, error) {
	return pr.change(ctx, o, outbox.ActionPublisherReset, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Resettable() {
			return outbox.Conflict("publisher %s is %s and has no errors, so there is nothing to reset%s", name, p.status, t.lastAction(name, now))
		}
		p.clearErrors()
		return pr.core.RequireReason(o, 0)
	})
}

// SkipEvent lets a subscription go on after the event that could not be delivered, which
// it then never delivers. Any other position than that event's is
// outbox.ErrConflict. A reason is required. Where the last error blames the
// destination the order must be confirmed, since no other
// event would get through either.
func (pr *Progress) SkipEvent(ctx context.Context, o outbox.Command, name outbox.SubscriptionName, position int64) (outbox.Publisher, error) {
	asked := publisherCommand{SubscriptionName: name, Position: &position}
	return pr.change(ctx, o, outbox.ActionPublisherSkip, asked, func(t *tx, p *publisherRow, came *publisherChange, now int64) error {
		event, err := t.eventInTheWay(p, position, now)
		if err != nil {
			return err
		}
		came.Skip = event
		if strings.TrimSpace(o.Reason) == "" {
			return outbox.Invalid("reason", "event %d of campaign %q would never be delivered to publisher %s; skipping it requires a reason", event.Seq, event.CampaignID, name)
		}
		if err := outbox.ActionPublisherSkip.Confirm(o.Confirm, outbox.Reach{Pair: name, Blames: p.errorKind}); err != nil {
			return err
		}
		p.moveTo(position)
		return nil
	})
}

// eventInTheWay is the event that a subscription could not deliver, when that is the one
// at the position.
func (t *tx) eventInTheWay(p *publisherRow, position, now int64) (*outbox.EventRef, error) {
	if !p.view(now).Hindered() {
		return nil, outbox.Conflict("no event is blocking publisher %s: it has had no error since its last delivery, move or reset%s", p.SubscriptionName, t.lastAction(p.SubscriptionName, now))
	}
	event, err := t.eventRef(p.errorPosition)
	if err == nil && event == nil {
		err = fmt.Errorf("the last error of publisher %s is at position %d, where there is no event", p.SubscriptionName, p.errorPosition)
	}
	if err != nil {
		return nil, err
	}
	if position != p.errorPosition {
		return nil, outbox.Conflict("the event at position %d is not blocking publisher %s; the one at position %d is: event %d (%s) of campaign %q%s",
			position, p.SubscriptionName, event.Position, event.Seq, event.EventType, event.CampaignID, t.lastAction(p.SubscriptionName, now))
	}
	return event, nil
}

// moveTo takes the subscription from its holder and lets it go on after a position.
// What went wrong was about the event that was next, unless the destination has
// said that it is gone: that still stands.
func (p *publisherRow) moveTo(position int64) {
	p.revoke()
	p.position = position
	if p.stopped {
		p.errorPosition = 0
		return
	}
	p.clearErrors()
}

// lastAction says who did what last to a subscription, for a refusal; empty when nobody did
// anything.
func (t *tx) lastAction(name outbox.SubscriptionName, now int64) string {
	return t.LastActionOn(outbox.PublisherTarget(name), now)
}

// AdmitTest is asked before a test delivery is sent: it refuses what
// RecordTestDelivery would. Where the order's idempotency key was used for a test
// delivery of the subscription before, it returns what came of that, and none is to
// be sent.
func (pr *Progress) AdmitTest(ctx context.Context, o outbox.Command, name outbox.SubscriptionName) (done *outbox.TestDelivery, err error) {
	a := testChange(o, name)
	done, err = pr.admitTest(ctx, a, name)
	return done, pr.core.Refused(ctx, a, err)
}

func testChange(o outbox.Command, name outbox.SubscriptionName) *store.Change {
	asked := publisherCommand{SubscriptionName: name}
	return &store.Change{Command: o, Action: outbox.ActionPublisherTest, Target: outbox.PublisherTarget(name), Before: asked, Asked: asked}
}

func (pr *Progress) admitTest(ctx context.Context, a *store.Change, name outbox.SubscriptionName) (done *outbox.TestDelivery, err error) {
	if err := pr.core.Admit(a.Command); err != nil {
		return nil, err
	}
	if err := pr.core.RequireReason(a.Command, 0); err != nil {
		return nil, err
	}
	err = pr.read(ctx, func(t *tx) error {
		var before outbox.TestDelivery
		repeated, err := t.RepeatedChange(a, &before)
		if err != nil {
			return err
		}
		if repeated {
			done = &before
			return nil
		}
		_, err = t.publisher(name)
		return err
	})
	return done, err
}

// RecordTestDelivery writes the audit record of a test delivery that was sent.
// The subscription itself stays as it is. A missing one is outbox.ErrNotFound.
func (pr *Progress) RecordTestDelivery(ctx context.Context, o outbox.Command, d outbox.TestDelivery) error {
	a := testChange(o, d.SubscriptionName)
	a.After = d
	_, err := perform(ctx, pr, a, func(t *tx, _ int64) (outbox.TestDelivery, error) {
		if _, err := t.publisher(d.SubscriptionName); err != nil {
			return d, err
		}
		return d, pr.core.RequireReason(o, 0)
	})
	return err
}
