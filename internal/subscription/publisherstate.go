package subscription

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// PublisherState is a subscription's state in a word: its status, refined.
type PublisherState string

// The states of a subscription.
const (
	PublisherIsStopped  PublisherState = "stopped"  // failed, and not retried automatically
	PublisherIsFailed   PublisherState = "failed"   // retried rarely
	PublisherIsRetrying PublisherState = "retrying" // after errors, but fewer than make it fail
	PublisherIsNotHeld  PublisherState = "not held" // by any process, so it makes no progress
	PublisherIsPaused   PublisherState = "paused"   // by an operator
	PublisherIsActive   PublisherState = "active"
)

// publisherStates lists every state, the most urgent first.
var publisherStates = []PublisherState{PublisherIsStopped, PublisherIsFailed, PublisherIsRetrying, PublisherIsNotHeld, PublisherIsPaused, PublisherIsActive}

// FunctionDestination begins the Destination of subscriptions that a Go function delivers. The type
// of the publisher follows, unless it is just a function.
const FunctionDestination = "go:"

// takenWithin is how long a subscription may be without a holder, after an action that takes it
// from its holder or after its first registration, before that is reported.
const takenWithin = 15 * time.Second

// State is the subscription's state. It compares the clocks of its holder and the reader.
func (p Publisher) State(now time.Time) PublisherState {
	switch {
	case p.Status == PublisherPaused:
		return PublisherIsPaused
	case p.Status == PublisherFailed && p.Stopped:
		return PublisherIsStopped
	case p.Status == PublisherFailed:
		return PublisherIsFailed
	case !p.Leased(now) && p.leftAlone(now):
		return PublisherIsNotHeld
	case p.ErrorCount > 0:
		return PublisherIsRetrying
	default:
		return PublisherIsActive
	}
}

// leftAlone reports whether nobody takes a subscription that is not leased: for too long, or as long as
// the lease of a process that is gone has not expired.
func (p Publisher) leftAlone(now time.Time) bool {
	since, gone := p.UpdatedAt, p.HolderGone(now)
	if l := p.Lease; l != nil && (gone || l.ExpiresAt.After(since)) {
		since = l.ExpiresAt
	}
	return gone && since.After(now) || now.Sub(since) > takenWithin
}

// Leased reports whether a process holds the subscription, so that it can make progress.
func (p Publisher) Leased(now time.Time) bool {
	return p.Lease != nil && p.Lease.ExpiresAt.After(now) && !p.HolderGone(now)
}

// HolderGone reports whether the process that has the lease is known to have ended without releasing it.
func (p Publisher) HolderGone(now time.Time) bool {
	return p.Holder != nil && p.Holder.State(now) == campaign.InstanceCrashed
}

// LeasedBy says which process has the lease: nobody without one.
func (p Publisher) LeasedBy(now time.Time) string {
	switch {
	case p.Lease == nil:
		return "nobody"
	case p.HolderGone(now):
		return p.Lease.Owner + ", crashed or killed"
	case !p.Leased(now):
		return p.Lease.Owner + ", expired " + event.Age(now.Sub(p.Lease.ExpiresAt)) + " ago"
	}
	return p.Lease.Owner
}

// ByFunction reports whether a Go function delivers for the subscription.
func (p Publisher) ByFunction() bool { return strings.HasPrefix(p.Destination, FunctionDestination) }

// DestinationText says where the subscription's events go.
func (p Publisher) DestinationText() string {
	switch {
	case p.Destination == FunctionDestination:
		return "a function of this service"
	case p.ByFunction():
		return strings.TrimPrefix(p.Destination, FunctionDestination)
	}
	return p.Destination
}

// Hindered reports whether the subscription is blocked by an event that it could not deliver.
func (p Publisher) Hindered() bool { return p.ErrorCount > 0 && p.ErrorPosition > p.Position }

// BlockingEvent is the event that the subscription could not deliver and is waiting for; nil if
// there is none.
func (p Publisher) BlockingEvent() *event.EventRef {
	if !p.Hindered() {
		return nil
	}
	return p.ErrorEvent
}

// Blame says in a sentence what caused the last error.
func (p Publisher) Blame() string {
	switch {
	case p.Stopped:
		return "The destination is gone; no event is at fault."
	case p.HangingSince != nil:
		return "A call does not return. Any event of its batch may be at fault, or its destination."
	case p.ErrorKind == operator.UnknownError:
		return "It is not known whether this event or its destination is at fault: send a test event to find out. Later events wait for this one."
	case p.TestTaken != nil && *p.TestTaken && p.ErrorKind == operator.EventError:
		return "A test event was taken, and this event is refused. Later events wait for it."
	case p.TestTaken != nil && !*p.TestTaken:
		return "A test event was not taken either: the destination is at fault, unless it takes no test events."
	case p.TestTaken != nil && *p.TestTaken && p.ErrorKind == operator.DestinationError:
		return "A test event was taken since: the destination was away for a time, or answers so to this event only."
	case p.ErrorKind == operator.EventError && p.ByFunction():
		return "The function fails at this event. Later events wait for it."
	case p.ByFunction():
		return "The function says that it is not healthy. Nothing is delivered until it is."
	case p.ErrorKind == operator.EventError:
		return "The destination rejects this event. Later events wait for it."
	}
	return "The destination is unreachable, overloaded or misconfigured, as far as its answer says."
}

// Why says in one sentence why the subscription does or does not make progress.
func (p Publisher) Why(now time.Time) string {
	switch p.State(now) {
	case PublisherIsPaused:
		return p.whyPaused(now)
	case PublisherIsStopped:
		return "Stopped: the destination is gone; resume the publisher when it is back"
	case PublisherIsFailed:
		return p.unlessHeld(now, fmt.Sprintf("Failed after %s in a row; %s", event.Count(int64(p.ErrorCount), "error", "errors"), p.nextTry(now)))
	case PublisherIsNotHeld:
		return p.whyNotHeld(now)
	case PublisherIsRetrying:
		return p.unlessHeld(now, fmt.Sprintf("The last %s failed; %s", deliveries(p.ErrorCount), p.nextTry(now)))
	}
	switch {
	case !p.Leased(now):
		return "No lease; a server with this publisher in its configuration takes over within seconds"
	case p.LagUnknown():
		return "Scanning the journal: no event of its topic found so far"
	case p.LagEvents > 0:
		return "Delivering waiting events"
	default:
		return "Up to date: no event of its topic waits"
	}
}

func (p Publisher) whyPaused(now time.Time) string {
	if p.Paused == nil {
		return "Paused"
	}
	why := fmt.Sprintf("Paused by %s %s ago", p.Paused.By, event.Age(now.Sub(p.Paused.At)))
	if p.Paused.Reason != "" {
		why += ": " + p.Paused.Reason
	}
	return why
}

func (p Publisher) whyNotHeld(now time.Time) string {
	if p.Lease == nil {
		return "No lease: no running server has this publisher in its configuration"
	}
	if left := p.Lease.ExpiresAt.Sub(now); left > 0 {
		return fmt.Sprintf("Its process %s %s; another server with this publisher in its configuration takes over in %s", p.Lease.Owner, p.Holder.Condition(now), event.Age(left))
	}
	return fmt.Sprintf("The lease of %s expired %s ago, and no running server has this publisher in its configuration", p.Lease.Owner, event.Age(now.Sub(p.Lease.ExpiresAt)))
}

// unlessHeld adds to a sentence about the next try that no process is there to make it.
func (p Publisher) unlessHeld(now time.Time, sentence string) string {
	if p.Leased(now) {
		return sentence
	}
	return sentence + ", once a server holds its lease"
}

func (p Publisher) nextTry(now time.Time) string {
	if p.RetryAt == nil || !p.RetryAt.After(now) {
		return "retrying now"
	}
	return "next attempt in " + event.Age(p.RetryAt.Sub(now))
}

func deliveries(n int) string {
	if n == 1 {
		return "attempt"
	}
	return event.Number(int64(n)) + " attempts"
}

// SortPublishers sorts subscriptions that need attention first, then by name.
func SortPublishers(all []Publisher, now time.Time) {
	slices.SortFunc(all, func(a, b Publisher) int {
		return cmp.Or(
			cmp.Compare(slices.Index(publisherStates, a.State(now)), slices.Index(publisherStates, b.State(now))),
			cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Publisher, b.Publisher))
	})
}

// PublisherFilter is a page of the publishers, by name or with those first that need attention.
type PublisherFilter struct {
	ByState bool   `json:"-"`
	Cursor  string `json:"cursor" validate:"cursor"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// Key is a unique text of a publisher in the order of f. A space is below every character of a name.
func (f PublisherFilter) Key(p Publisher, now time.Time) string {
	rank := 0
	if f.ByState {
		rank = slices.Index(publisherStates, p.State(now))
	}
	return strconv.Itoa(rank) + " " + p.Topic + " " + p.Publisher
}

// PublishersCalm says how far subscriptions without trouble are. Those that deliver nothing, as paused ones and
// those without a server, are counted only among all.
func PublishersCalm(list []Publisher, now time.Time) string {
	total, n, behind := len(list), 0, 0
	for _, p := range list {
		state := p.State(now)
		if state == PublisherIsPaused || state == PublisherIsNotHeld {
			continue
		}
		if n++; !delivered(p) {
			behind++
		}
	}
	who := fmt.Sprintf("%s of %s publishers are ", event.Number(int64(n)), event.Number(int64(total)))
	switch {
	case n == 0:
		return "No publisher is delivering."
	case n == total:
		who = "All " + event.Number(int64(n)) + " publishers are "
	case n == 1:
		who = "1 of " + event.Number(int64(total)) + " publishers is "
	}
	switch {
	case total == 1 && behind == 1:
		return "The only publisher is delivering waiting events."
	case total == 1:
		return "The only publisher is up to date."
	case behind > 0:
		return who + "delivering; events wait for " + event.Number(int64(behind)) + " of them."
	}
	return who + "up to date."
}

// backlog continues a sentence about a publisher that delivers nothing; empty if no event is known to wait.
func (p Publisher) backlog() string {
	atLeast := ""
	if p.LagCapped {
		atLeast = "at least "
	}
	if p.LagEvents == 0 {
		return ""
	}
	return "; " + atLeast + event.Count(p.LagEvents, "event waits", "events wait") + " for it"
}

// delivered reports whether the subscription has no known backlog.
func delivered(p Publisher) bool { return p.LagEvents == 0 && !p.LagCapped }

// Actions returns the actions on the publisher; tests says whether this process can send it a test
// event.
func (p Publisher) Actions(tests bool) []operator.Action {
	var all []operator.Action
	add := func(possible bool, a operator.Action) {
		if possible {
			all = append(all, a)
		}
	}
	add(p.Pausable(), operator.ActionPublisherPause)
	add(p.Resumable(), operator.ActionPublisherResume)
	add(p.Resettable(), operator.ActionPublisherReset)
	add(true, operator.ActionPublisherSeek)
	add(tests, operator.ActionPublisherTest)
	add(p.BlockingEvent() != nil, operator.ActionPublisherSkip)
	return all
}

// Pausable, Resumable and Resettable report which actions a publisher takes.
func (p Publisher) Pausable() bool { return p.Status != PublisherPaused }

func (p Publisher) Resumable() bool { return p.Status != PublisherActive || p.ErrorCount > 0 }

func (p Publisher) Resettable() bool {
	return p.ErrorCount > 0 || p.LastError != "" || p.Status == PublisherFailed
}

// PauseOrResume is the one that the publisher takes, or resume if it takes both.
func (p Publisher) PauseOrResume() operator.Action {
	if p.Resumable() {
		return operator.ActionPublisherResume
	}
	return operator.ActionPublisherPause
}
