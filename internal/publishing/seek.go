package publishing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Seek moves a subscription's position, whatever its status, which does not change. A batch in
// flight cannot move the position any more, though it may still be delivered. Errors of the
// formerly next event are cleared. seen is what the operator was shown; if many more events would
// be repeated or skipped, Seek returns event.ErrConflict; nil skips the comparison.
//
// A seek that skips events requires a reason and a confirmation. It returns event.ErrInvalid for a
// position beyond the head, event.ErrConflict for the current position, event.ErrNotFound for a
// missing subscription. On PostgreSQL it waits for appends in progress, so that none of their
// events is skipped without being counted; if one takes long, it returns event.ErrBusy.
func (pr *Progress) Seek(ctx context.Context, o operator.Command, name operator.SubscriptionName, target subscription.SeekTarget, seen *operator.Seek) (operator.Seek, error) {
	asked := seekCommand(name, target)
	a := &store.Change{Command: o, Action: operator.ActionPublisherSeek, Target: operator.PublisherTarget(name), Before: asked, Asked: asked}
	if err := pr.core.Admit(o); err != nil {
		return operator.Seek{}, pr.core.Refused(ctx, a, err)
	}
	head, err := pr.core.Position(ctx)
	if err != nil {
		return operator.Seek{}, err
	}
	return perform(ctx, pr, a, func(t *tx, now int64) (seek operator.Seek, err error) {
		_, err = t.changed(a, name, func(t *tx, p *publisherRow, came *publisherChange, now int64) error {
			if seek, err = t.seek(p, target, head); err != nil {
				return err
			}
			if seek.From == seek.To {
				return event.Conflict("publisher %s is already at position %d%s", name, seek.To, t.lastAction(name, now))
			}
			if err := pr.requireSeek(t, o, seek, seen, now); err != nil {
				return err
			}
			p.moveTo(seek.To)
			came.Seek = &seek
			return nil
		}, now)
		return seek, err
	})
}

// PreviewSeek returns what Seek would do now. It changes nothing.
func (pr *Progress) PreviewSeek(ctx context.Context, name operator.SubscriptionName, target subscription.SeekTarget) (seek operator.Seek, err error) {
	err = pr.read(ctx, func(t *tx) error {
		p, err := t.publisher(name)
		if err != nil {
			return err
		}
		head, err := t.HeadPosition()
		if err != nil {
			return err
		}
		seek, err = t.seek(p, target, head)
		return err
	})
	return seek, err
}

func seekCommand(name operator.SubscriptionName, target subscription.SeekTarget) publisherCommand {
	asked := publisherCommand{SubscriptionName: name, Position: target.Position}
	switch {
	case target.Head:
		asked.To = "head"
	case target.Beginning:
		asked.To = "beginning"
	case !target.Time.IsZero():
		asked.Time = target.Time.UTC().Format(time.RFC3339Nano)
	}
	return asked
}

// requireSeek refuses a seek without a required reason or confirmation.
func (pr *Progress) requireSeek(t *tx, o operator.Command, seek operator.Seek, seen *operator.Seek, now int64) error {
	if seen != nil && (!operator.GrownAlike(seen.Skips, seek.Skips) || !operator.GrownAlike(seen.Repeats, seek.Repeats) || seek.Capped && !seen.Capped) {
		return event.Conflict("publisher %s has changed since this page was loaded: the seek would now repeat %s and skip %s events, not %s and %s%s", seek.SubscriptionName,
			event.AtLeast(seek.Repeats, seek.Capped), event.AtLeast(seek.Skips, seek.Capped), event.AtLeast(seen.Repeats, seen.Capped), event.AtLeast(seen.Skips, seen.Capped), t.lastAction(seek.SubscriptionName, now))
	}
	if seek.Skips == 0 {
		return pr.core.RequireReason(o, 0)
	}
	if strings.TrimSpace(o.Reason) == "" {
		return event.Invalid("reason", "this skips %s, which publisher %s then never delivers; a reason is required", seek.SkipsText(), seek.SubscriptionName)
	}
	return operator.ActionPublisherSeek.Confirm(o.Confirm, operator.Reach{Seek: seek})
}

// seek returns the effect of moving a subscription to the target. No further event may become
// visible up to head.
func (t *tx) seek(p *publisherRow, target subscription.SeekTarget, head int64) (operator.Seek, error) {
	to, err := t.targetPosition(target, head)
	if err != nil {
		return operator.Seek{}, err
	}
	if target.Head {
		to = max(to, p.position) // which may have advanced since the head was read
	}
	seek := operator.Seek{SubscriptionName: p.SubscriptionName, From: p.position, To: to}
	if to > p.position {
		seek.Skips, seek.Capped, err = t.countSelected(p.match, p.position, to)
	} else {
		seek.Repeats, seek.Capped, err = t.countSelected(p.match, to, p.position)
	}
	return seek, sqldb.Wrapf(err, "count what a seek of publisher %s is about", p.SubscriptionName)
}

// targetPosition returns the position after which a subscription continues.
func (t *tx) targetPosition(target subscription.SeekTarget, head int64) (int64, error) {
	switch position := target.Position; {
	case target.Head:
		return head, nil
	case target.Beginning:
		return 0, nil
	case position == nil && target.Time.IsZero():
		return 0, event.Invalid("position", "say where the publisher should continue: at a position, a time, the head or the beginning")
	case position == nil:
		return t.positionBefore(target.Time, head)
	case *position < 0:
		return 0, event.Invalid("position", "a position is 0 or more, not %d", *position)
	case *position > head:
		return 0, event.Invalid("position", "position %d is beyond the head of the journal, which is at %d", *position, head)
	default:
		return *position, nil
	}
}

// positionBefore returns the position before the first event recorded at or after a time, or head
// if there is none. It is a binary search: if the clocks of writers disagree, the event is one of
// those around the time.
func (t *tx) positionBefore(when time.Time, head int64) (int64, error) {
	low, high := int64(0), head // invariant: the event, if any, is after low; events after high were recorded later
	for low < high {
		middle := low + (high-low)/2
		position, recorded, found, err := t.firstFrom(middle + 1)
		switch {
		case err != nil:
			return 0, fmt.Errorf("look for the event of a time: %w", err)
		case !found || recorded >= when.UnixMicro():
			high = middle
		default:
			low = min(position, head)
		}
	}
	return low, nil
}

// countSelected counts the events after a position up to another that a match selects. capped means
// that not all of them were examined.
func (t *tx) countSelected(m subscription.Match, after, upTo int64) (n int64, capped bool, err error) {
	if m.All() {
		_, err = t.One([]any{&n}, countEvents, after+1, upTo, t.looks.seek+1)
		return min(n, t.looks.seek), n > t.looks.seek, err
	}
	looked := int64(0)
	err = t.envelopes(after, upTo, func(e *event.Event) bool {
		if looked == t.looks.seek {
			capped = true
			return false
		}
		looked++
		if m.Matches(e) {
			n++
		}
		return true
	})
	return n, capped, err
}
