package publishing_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// large is a journal of n events so large that the store returns few of them at a time. It counts
// the reads.
func large(n int, reads *atomic.Int64) func(context.Context, int64, int) ([]event.Event, error) {
	payload := bytes.Repeat([]byte(" "), 256<<10)
	return func(_ context.Context, after int64, limit int) (events []event.Event, err error) {
		reads.Add(1)
		for p := after + 1; p <= int64(n) && len(events) < min(limit, 32); p++ {
			events = append(events, event.Event{Position: p, Payload: payload})
		}
		return events, nil
	}
}

// A process that begins in the middle of a block does not read the large events before it bit by
// bit.
func TestFeed_beginsInTheMiddleOfLargeEvents(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	feed := publishing.NewFeed(large(1000, &reads))
	for position := int64(900); position < 1000; {
		events, end, more, err := feed.After(t.Context(), position)
		must.Need(t, err == nil && more && end >= position && (len(events) <= 0 || events[0] == position+1), "after %d: %v up to %d, more %v, %v", position, events, end, more, err)
		position = end
	}
	n := reads.Load()
	must.Hold(t, n <= 6, "100 events were had in %d reads", n)
	events, _, _, err := feed.After(t.Context(), 10)
	must.Hold(t, err == nil && len(events) != 0 && events[0] == 11, "what comes before is read all the same: got %v, %v", events, err)
}

// A subscription that waited for another one's read uses its result, but not if the read failed. If it is cut off
// before the positions of those that wait, none of them is told that there is nothing more.
func TestFeed_aReadThatFailedOrWasCutOffIsNobodysAnswer(t *testing.T) {
	t.Parallel()
	for range 50 {
		var reads, cut atomic.Int64
		inReadOfAnother(t, func(context.Context, int64, int) ([]event.Event, error) {
			if reads.Add(1) == 1 {
				return nil, errors.New("cut off")
			}
			return []event.Event{{Position: 1}}, nil
		}, 0, func(events []int64, _ bool, err error) {
			must.Hold(t, err != nil || len(events) != 0, "an event was there before the call, and it was told that there is none")
		})
		inReadOfAnother(t, large(300, &cut), 100, func(events []int64, more bool, err error) {
			must.Hold(t, err == nil && more, "with 200 events to come it got %d, more %v, %v", len(events), more, err)
		})
	}
}

// inReadOfAnother lets several callers ask a feed for events after a position while another
// caller's read, which finds nothing, is in progress.
func inReadOfAnother(tb testing.TB, read func(context.Context, int64, int) ([]event.Event, error), position int64, judge func(events []int64, more bool, err error)) {
	const waiting = 8
	begun, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	feed := publishing.NewFeed(func(ctx context.Context, after int64, limit int) (events []event.Event, err error) {
		mine := false
		first.Do(func() {
			mine = true
			close(begun)
			<-release
		})
		if mine {
			return nil, nil
		}
		return read(ctx, after, limit)
	})
	var callers sync.WaitGroup
	callers.Go(func() { _, _, _, _ = feed.After(tb.Context(), position) })
	<-begun
	var entered atomic.Int64
	for range waiting {
		callers.Go(func() {
			entered.Add(1)
			events, _, more, err := feed.After(tb.Context(), position)
			judge(events, more, err)
		})
	}
	for entered.Load() < waiting {
		runtime.Gosched()
	}
	close(release)
	callers.Wait()
}

// An event larger than a block's cache does not evict those read with it before they were used.
func TestFeed_skipsNothingBeforeAHugeEvent(t *testing.T) {
	t.Parallel()
	feed := publishing.NewFeed(func(_ context.Context, after int64, _ int) (events []event.Event, err error) {
		for p := after + 1; p <= 3; p++ {
			events = append(events, event.Event{Position: p, Payload: make([]byte, 1+int(p/2)*(20<<20))})
			if p == 2 {
				break
			}
		}
		return events, nil
	})
	must.Equal(t, readAll(t, feed), []int64{1, 2, 3}, "of events 1 to 3 it told")
}

// A long gap in the positions is skipped in one step.
func TestFeed_crossesAHoleInOneRead(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	feed := publishing.NewFeed(func(_ context.Context, after int64, _ int) (events []event.Event, err error) {
		reads.Add(1)
		for _, p := range []int64{1, 2, 300_500, 300_501} {
			if p > after {
				events = append(events, event.Event{Position: p})
			}
		}
		return events, nil
	})
	got := readAll(t, feed)
	must.Hold(t, slices.Equal(got, []int64{1, 2, 300_500, 300_501}) && reads.Load() <= 3, "it told %v in %d reads", got, reads.Load())
}

// What the feed keeps is bounded in bytes, whatever the size of the events.
func TestFeed_keepsLittleOfLargeEvents(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	feed := publishing.NewFeed(large(9000, &reads))
	for position := int64(0); position < 9000; {
		var err error
		_, position, _, err = feed.After(t.Context(), position)
		must.Need(t, err == nil, "%v", err)
	}
	kept := feed.Kept()
	must.Hold(t, kept <= 64<<20, "%d bytes are kept", kept)
}

func readAll(t *testing.T, feed publishing.Feed) (got []int64) {
	for position, more := int64(0), true; more; {
		events, end, again, err := feed.After(t.Context(), position)
		must.OK(t, err)
		got, position, more = append(got, events...), end, again
	}
	return got
}

var published = flag.Int("published", 0, "events that concurrent appenders write while they are published; 0 is 2,000, in a short run 1,000, in a soak 40,000")

// Positions are allocated in one order and become visible in another. The receiver nevertheless
// gets every event, in the order of positions.
func TestRelay_skipsNothingOfConcurrentAppends(t *testing.T) {
	f, r := own(t, live), receivers{"tight": {}}
	sub := subscriptionOf("everything", "tight", everyEvent)
	sub.PollInterval = time.Millisecond
	deliver(t, f, r.config(f, "one", sub))
	each := cmp.Or(*published, size.Of(1_000, 2_000, 40_000)) / 8
	var appenders sync.WaitGroup
	for i := range 8 {
		appenders.Go(func() { f.appendWithRefusals(t, fmt.Sprintf("c-%d", i), each) })
	}
	appenders.Wait()
	want := storetest.Column[int64](t, f.JournalDB, `select position from events order by position`)
	must.Need(t, len(want) >= 8*each, "only %d events were appended", len(want))
	f.mustStandAt(t, sub.SubscriptionName, want[len(want)-1])
	must.Same(t, r["tight"].got(), want, "what was delivered")
}

// appendWithRefusals appends n events, a few at a time, and in between some
// that are refused.
func (f *fixture) appendWithRefusals(tb testing.TB, campaign string, n int) {
	for left, i := n, 0; left > 0; i++ {
		events := notes(campaign, min(left, 1+i%20))
		if i%3 == 0 {
			refused := append(slices.Clone(events), noted(campaign))
			refused[len(refused)-1].Seq = 1 << 40
			if _, err := f.Append(context.Background(), store.Append{Events: refused}); !errors.Is(err, event.ErrConflict) {
				tb.Errorf("append to %s with a wrong seq: %v", campaign, err)
				return
			}
		}
		if _, err := f.Append(context.Background(), store.Append{Events: events}); err != nil {
			tb.Errorf("append to %s: %v", campaign, err)
			return
		}
		left -= len(events)
	}
}
