package publishing

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// publisherCommand is the parameters of an action on a subscription in its audit record.
type publisherCommand struct {
	operator.SubscriptionName
	Position *int64 `json:"position,omitempty"`
	Time     string `json:"time,omitempty"`
	To       string `json:"to,omitempty"`
}

// publisherFacts is the state of a subscription in an audit record.
type publisherFacts struct {
	Status        subscription.PublisherStatus `json:"status"`
	Position      int64                        `json:"position"`
	ErrorCount    int64                        `json:"error_count"`
	LastError     string                       `json:"last_error,omitempty"`
	ErrorPosition int64                        `json:"error_position,omitempty"`
}

func (p *publisherRow) facts() publisherFacts {
	return publisherFacts{Status: p.status, Position: p.position, ErrorCount: p.errors, LastError: p.lastError, ErrorPosition: p.errorPosition}
}

// publisherChange is the outcome of an action on a subscription in its audit record.
type publisherChange struct {
	Was  publisherFacts  `json:"was"`
	Is   publisherFacts  `json:"is"`
	Seek *operator.Seek  `json:"seek,omitempty"`
	Skip *event.EventRef `json:"skip,omitempty"`
}

// change changes the row of a subscription. An action without details for its audit record passes a
// change that returns nil.
func (pr *Progress) change(ctx context.Context, o operator.Command, action operator.Action, asked publisherCommand, change func(*tx, *publisherRow, *publisherChange, int64) error) (subscription.Publisher, error) {
	a := &store.Change{Command: o, Action: action, Target: operator.PublisherTarget(asked.SubscriptionName), Before: asked, Asked: asked}
	return perform(ctx, pr, a, func(t *tx, now int64) (subscription.Publisher, error) {
		p, err := t.changed(a, asked.SubscriptionName, change, now)
		if err != nil {
			return subscription.Publisher{}, err
		}
		return t.view(p, now)
	})
}

// changed is the part shared by all actions on a subscription. The subscription's holder detects an
// action by the number of actions.
func (t *tx) changed(a *store.Change, name operator.SubscriptionName, change func(*tx, *publisherRow, *publisherChange, int64) error, now int64) (*publisherRow, error) {
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

// Pause stops a subscription until it is resumed; its holder notices after the batch in flight, and
// delivers nothing appended later. It returns event.ErrConflict if already paused,
// event.ErrNotFound if missing.
func (pr *Progress) Pause(ctx context.Context, o operator.Command, name operator.SubscriptionName) (subscription.Publisher, error) {
	return pr.change(ctx, o, operator.ActionPublisherPause, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Pausable() {
			return event.Conflict("publisher %s is already paused, by %s since %s ago%s", name, p.pausedBy,
				event.Age(sqldb.At(now).Sub(sqldb.At(p.pausedAt.Int64))), t.lastAction(name, now))
		}
		if err := p.pause(t, o, now); err != nil {
			return err
		}
		return pr.core.RequireReason(o, 0)
	})
}

// Resume lets a paused or failed subscription continue at once, with its error count reset. It
// returns event.ErrConflict if there is nothing to resume, event.ErrNotFound if missing. Of two
// concurrent callers one succeeds.
func (pr *Progress) Resume(ctx context.Context, o operator.Command, name operator.SubscriptionName) (subscription.Publisher, error) {
	return pr.change(ctx, o, operator.ActionPublisherResume, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Resumable() {
			return event.Conflict("publisher %s is active and has no errors, so there is nothing to resume%s", name, t.lastAction(name, now))
		}
		if err := p.resume(t, o); err != nil {
			return err
		}
		return pr.core.RequireReason(o, 0)
	})
}

// Reset clears the errors of a subscription, so that it is retried at once unless paused; a pause
// stays. It returns event.ErrConflict without errors, event.ErrNotFound if missing.
func (pr *Progress) Reset(ctx context.Context, o operator.Command, name operator.SubscriptionName) (subscription.Publisher, error) {
	return pr.change(ctx, o, operator.ActionPublisherReset, publisherCommand{SubscriptionName: name}, func(t *tx, p *publisherRow, _ *publisherChange, now int64) error {
		if !p.view(now).Resettable() {
			return event.Conflict("publisher %s is %s and has no errors, so there is nothing to reset%s", name, p.status, t.lastAction(name, now))
		}
		p.clearErrors()
		return pr.core.RequireReason(o, 0)
	})
}

// SkipEvent lets a subscription continue after the event that could not be delivered, which is then
// never delivered. Any other position is event.ErrConflict. A reason is required. If the last
// error blames the destination the command must be confirmed, since no other event would get
// through either.
func (pr *Progress) SkipEvent(ctx context.Context, o operator.Command, name operator.SubscriptionName, position int64) (subscription.Publisher, error) {
	asked := publisherCommand{SubscriptionName: name, Position: &position}
	return pr.change(ctx, o, operator.ActionPublisherSkip, asked, func(t *tx, p *publisherRow, came *publisherChange, now int64) error {
		e, err := t.blockingEvent(p, position, now)
		if err != nil {
			return err
		}
		came.Skip = e
		if strings.TrimSpace(o.Reason) == "" {
			return event.Invalid("reason", "event %d of campaign %q would never be delivered to publisher %s; skipping it requires a reason", e.Seq, e.CampaignID, name)
		}
		if err := operator.ActionPublisherSkip.Confirm(o.Confirm, operator.Reach{Pair: name, Blames: p.kind()}); err != nil {
			return err
		}
		p.moveTo(position)
		return nil
	})
}

// blockingEvent returns the event that a subscription could not deliver, if it has the given
// position.
func (t *tx) blockingEvent(p *publisherRow, position, now int64) (*event.EventRef, error) {
	if !p.view(now).Hindered() {
		return nil, event.Conflict("no event is blocking publisher %s: it has had no error since its last delivery, move or reset%s", p.SubscriptionName, t.lastAction(p.SubscriptionName, now))
	}
	e, err := t.eventRef(p.errorPosition)
	if err == nil && e == nil {
		err = fmt.Errorf("the last error of publisher %s is at position %d, where there is no event", p.SubscriptionName, p.errorPosition)
	}
	if err != nil {
		return nil, err
	}
	if position != p.errorPosition {
		return nil, event.Conflict("the event at position %d is not blocking publisher %s; the one at position %d is: event %d (%s) of campaign %q%s",
			position, p.SubscriptionName, e.Position, e.Seq, e.EventType, e.CampaignID, t.lastAction(p.SubscriptionName, now))
	}
	return e, nil
}

// moveTo takes the subscription from its holder and sets its position. Its errors concerned the
// next event and are cleared, except that the destination said it is gone.
func (p *publisherRow) moveTo(position int64) {
	p.revoke()
	p.position = position
	if p.stopped {
		p.errorPosition = 0
		return
	}
	p.clearErrors()
}

// lastAction describes the last action on a subscription, for a refusal; empty if there was none.
func (t *tx) lastAction(name operator.SubscriptionName, now int64) string {
	return t.LastActionOn(operator.PublisherTarget(name), operator.PublishersTarget(name.Publisher), now)
}

const saveTestTaken = `
update publisher_progress
set test_taken = $3
where topic = $1
  and publisher = $2
  and error_count > 0
  and error_kind <> 'event'`

// Test lets send deliver a made-up event to the destination of a subscription, and records the outcome and what
// it says of the errors of the subscription. A missing one is event.ErrNotFound, and nothing is sent. If the
// command's idempotency key was used for an earlier test of the subscription, nothing is sent either, and its
// outcome is that one's.
func (pr *Progress) Test(ctx context.Context, o operator.Command, name operator.SubscriptionName, send func(context.Context) (subscription.TestDelivery, error)) (subscription.TestDelivery, error) {
	asked := publisherCommand{SubscriptionName: name}
	a := &store.Change{Command: o, Action: operator.ActionPublisherTest, Target: operator.PublisherTarget(name), Before: asked, Asked: asked}
	exists := func(t *store.Tx) error {
		_, err := pr.in(t).publisher(name)
		return err
	}
	return store.PerformOutside(ctx, pr.core, a, exists, send, func(t *store.Tx, d subscription.TestDelivery, _ int64) error {
		if err := exists(t); err != nil {
			return err
		}
		_, err := t.Exec(saveTestTaken, name.Topic, name.Publisher, sqldb.Truth(d.OK))
		return sqldb.Wrapf(err, "record what the test of publisher %s shows", name)
	})
}
