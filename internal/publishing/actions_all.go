package publishing

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// publishersCommand is the parameters of an action on a publisher's name in its audit record.
type publishersCommand struct {
	Publisher string `json:"publisher"`
}

// publishersFacts is the outcome of such an action in its audit record.
type publishersFacts struct {
	subscription.PublishersChange
	Publishers []namedChange `json:"publishers"`
}

type namedChange struct {
	operator.SubscriptionName
	publisherChange
}

// PauseAll pauses the subscriptions of a publisher's name in all topics, in one transaction with one
// audit record. It returns event.ErrConflict if all of them are paused already, event.ErrNotFound
// if there is none.
func (pr *Progress) PauseAll(ctx context.Context, o operator.Command, name string) (subscription.PublishersChange, error) {
	return pr.changeAll(ctx, o, operator.ActionPublisherPauseAll, name, "is paused already in every topic", subscription.Publisher.Pausable, func(t *tx, p *publisherRow, now int64) error { return p.pause(t, o, now) })
}

// ResumeAll lets the paused and failing subscriptions of a publisher's name continue, as PauseAll
// pauses them. It returns event.ErrConflict if there is nothing to resume, event.ErrNotFound if
// there is none.
func (pr *Progress) ResumeAll(ctx context.Context, o operator.Command, name string) (subscription.PublishersChange, error) {
	return pr.changeAll(ctx, o, operator.ActionPublisherResumeAll, name, "is active and has no errors in every topic", subscription.Publisher.Resumable, func(t *tx, p *publisherRow, _ int64) error { return p.resume(t, o) })
}

func (pr *Progress) changeAll(ctx context.Context, o operator.Command, action operator.Action, name, already string, possible func(subscription.Publisher) bool, change func(*tx, *publisherRow, int64) error) (subscription.PublishersChange, error) {
	asked := publishersCommand{name}
	a := &store.Change{Command: o, Action: action, Target: operator.PublishersTarget(name), Before: asked, Asked: asked}
	return perform(ctx, pr, a, func(t *tx, now int64) (done subscription.PublishersChange, err error) {
		rows, err := sqldb.All(t, scanPublisherRow, selectPublishersNamed+t.ForUpdate, name)
		switch {
		case err != nil:
			return done, fmt.Errorf("read publishers %s: %w", name, err)
		case len(rows) == 0:
			return done, event.NotFound("no topic has a publisher %s", name)
		}
		facts := publishersFacts{PublishersChange: subscription.PublishersChange{Publisher: name, Changed: []operator.SubscriptionName{}, Unchanged: []operator.SubscriptionName{}}}
		for _, p := range rows {
			if !possible(p.view(now)) {
				facts.Unchanged = append(facts.Unchanged, p.SubscriptionName)
				continue
			}
			one := namedChange{SubscriptionName: p.SubscriptionName, publisherChange: publisherChange{Was: p.facts()}}
			if err := change(t, p, now); err != nil {
				return done, err
			}
			p.actions++ // its holder detects an action by their number
			if err := t.save(p, now); err != nil {
				return done, err
			}
			one.Is = p.facts()
			facts.Changed, facts.Publishers = append(facts.Changed, p.SubscriptionName), append(facts.Publishers, one)
		}
		if len(facts.Changed) == 0 {
			return done, event.Conflict("publisher %s %s%s", name, already, t.LastActionOn(operator.PublishersTarget(name), "", now))
		}
		a.After = facts
		return facts.PublishersChange, pr.core.RequireReason(o, 0)
	})
}
