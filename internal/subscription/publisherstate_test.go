package subscription

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestPublisherWhy_saysWhatHoldsItUp(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *time.Time {
		at := now.Add(d)
		return &at
	}
	held, ended := &campaign.Lease{Owner: "w-1", ExpiresAt: *in(20 * time.Second)}, &campaign.Lease{Owner: "w-1", ExpiresAt: *in(-2 * time.Minute)}
	long, killed := *in(-time.Hour), &campaign.InstanceState{ID: "w-1", LastSeen: *in(-10 * time.Second), Process: campaign.ProcessGone}
	for _, c := range []struct {
		name  string
		p     Publisher
		state PublisherState
		why   string
	}{
		{"well", Publisher{Lease: held}, PublisherIsActive, "Up to date: no event of its topic waits"},
		{"behind", Publisher{Lease: held, LagEvents: 3}, PublisherIsActive, "Delivering waiting events"},
		{"lag unknown", Publisher{Lease: held, LagCapped: true}, PublisherIsActive, "Scanning the journal: no event of its topic found so far"},
		{"behind by more than was counted", Publisher{Lease: held, LagCapped: true, LagEvents: 3}, PublisherIsActive, "Delivering waiting events"},
		{"errors overcome", Publisher{Lease: held, LastError: "x"}, PublisherIsActive, "Up to date: no event of its topic waits"},
		{"paused", Publisher{Status: PublisherPaused, Paused: &campaign.Pause{By: "ana", At: *in(-3 * time.Minute), Reason: "quiet"}, ErrorCount: 2}, PublisherIsPaused, "Paused by ana 3 min ago: quiet"},
		{"paused without a reason", Publisher{Status: PublisherPaused, Paused: &campaign.Pause{By: "ana", At: *in(-3 * time.Minute)}}, PublisherIsPaused, "Paused by ana 3 min ago"},
		{"one error", Publisher{Lease: held, ErrorCount: 1, RetryAt: in(14 * time.Second)}, PublisherIsRetrying, "The last attempt failed; next attempt in 14 s"},
		{"errors", Publisher{Lease: held, ErrorCount: 4, RetryAt: in(-time.Second)}, PublisherIsRetrying, "The last 4 attempts failed; retrying now"},
		{"failed", Publisher{Status: PublisherFailed, Lease: held, ErrorCount: 10, RetryAt: in(5 * time.Minute)}, PublisherIsFailed, "Failed after 10 errors in a row; next attempt in 5 min"},
		{"failed and nobody there", Publisher{Status: PublisherFailed, ErrorCount: 10, RetryAt: in(5 * time.Minute), UpdatedAt: long}, PublisherIsFailed, "Failed after 10 errors in a row; next attempt in 5 min, once a server holds its lease"},
		{"gone", Publisher{Status: PublisherFailed, Stopped: true, ErrorCount: 1}, PublisherIsStopped, "Stopped: the destination is gone; resume the publisher when it is back"},
		{"given back just now", Publisher{UpdatedAt: *in(-time.Second)}, PublisherIsActive, "No lease; a server with this publisher in its configuration takes over within seconds"},
		{"errors, given back just now", Publisher{UpdatedAt: *in(-time.Second), ErrorCount: 1}, PublisherIsRetrying, "The last attempt failed; retrying now, once a server holds its lease"},
		{"in no configuration", Publisher{UpdatedAt: long}, PublisherIsNotHeld, "No lease: no running server has this publisher in its configuration"},
		{"errors, and in no configuration", Publisher{UpdatedAt: long, ErrorCount: 1}, PublisherIsNotHeld, "No lease: no running server has this publisher in its configuration"},
		{"its process was killed", Publisher{UpdatedAt: now, Lease: held, Holder: killed}, PublisherIsNotHeld, "Its process w-1 crashed or was killed: last seen at work 10 s ago, and its process is gone; another server with this publisher in its configuration takes over in 20 s"},
		{"its process was killed at a failure", Publisher{Status: PublisherFailed, Lease: held, Holder: killed, ErrorCount: 10, RetryAt: in(5 * time.Minute)}, PublisherIsFailed, "Failed after 10 errors in a row; next attempt in 5 min, once a server holds its lease"},
		{"left by one that was killed", Publisher{UpdatedAt: now, Lease: ended, Holder: killed}, PublisherIsNotHeld, "The lease of w-1 expired 2 min ago, and no running server has this publisher in its configuration"},
		{"left by one that was killed, and a server has started", Publisher{UpdatedAt: long, Lease: &campaign.Lease{Owner: "w-1", ExpiresAt: *in(-time.Second)}, Holder: killed}, PublisherIsActive, "No lease; a server with this publisher in its configuration takes over within seconds"},
		{"left", Publisher{UpdatedAt: long, Lease: ended}, PublisherIsNotHeld, "The lease of w-1 expired 2 min ago, and no running server has this publisher in its configuration"},
	} {
		if c.p.Status == "" {
			c.p.Status = PublisherActive
		}
		must.Equal(t, c.p.State(now), c.state, c.name)
		must.Equal(t, c.p.Why(now), c.why, c.name)
	}
}

func TestSortPublishers_bringsTroubleFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := &campaign.Lease{ExpiresAt: now.Add(time.Minute)}
	name := func(text string) operator.SubscriptionName {
		return operator.SubscriptionName{Topic: text, Publisher: "p"}
	}
	all := []Publisher{
		{SubscriptionName: name("f"), Lease: held}, {SubscriptionName: name("e"), Lease: held}, {SubscriptionName: name("d"), Status: PublisherPaused}, {SubscriptionName: name("c")},
		{SubscriptionName: name("b2"), Lease: held, ErrorCount: 1}, {SubscriptionName: name("b"), Lease: held, ErrorCount: 1}, {SubscriptionName: name("a2"), Status: PublisherFailed}, {SubscriptionName: name("z"), Status: PublisherFailed, Stopped: true},
	}
	SortPublishers(all, now)
	var order []string
	for _, p := range all {
		order = append(order, p.Topic)
	}
	must.Equal(t, strings.Join(order, " "), "z a2 b b2 c d e f", "sorted")
}

func TestPublisher_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []operator.Action
	}{
		{"a publisher", Publisher{Status: PublisherActive}.Actions(false), []operator.Action{operator.ActionPublisherPause, operator.ActionPublisherSeek}},
		{"a paused publisher that can be tested", Publisher{Status: PublisherPaused}.Actions(true), []operator.Action{operator.ActionPublisherResume, operator.ActionPublisherSeek, operator.ActionPublisherTest}},
		{"a publisher that fails at an event", Publisher{Status: PublisherActive, ErrorCount: 2, ErrorPosition: 4, Position: 3, ErrorEvent: &event.EventRef{}}.Actions(false),
			[]operator.Action{operator.ActionPublisherPause, operator.ActionPublisherResume, operator.ActionPublisherReset, operator.ActionPublisherSeek, operator.ActionPublisherSkip}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
}

func TestPublisher_whatMayBeDone(t *testing.T) {
	t.Parallel()
	event := &event.EventRef{Position: 4}
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"a publisher waits for an event", Publisher{ErrorCount: 1, Position: 3, ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, true},
		{"a publisher has passed the event", Publisher{ErrorCount: 1, Position: 4, ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, false},
		{"a publisher has no errors", Publisher{ErrorPosition: 4, ErrorEvent: event}.BlockingEvent() == event, false},
		{"a failed publisher without errors is resumed", Publisher{Status: PublisherFailed}.Resumable(), true},
		{"a sound publisher is resumed", Publisher{Status: PublisherActive}.Resumable(), false},
		{"a paused publisher with an error is reset", Publisher{Status: PublisherPaused, LastError: "refused"}.Resettable(), true},
		{"a paused publisher is reset", Publisher{Status: PublisherPaused}.Resettable(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
