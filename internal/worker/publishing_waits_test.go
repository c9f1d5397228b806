package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/publish"
	"outboxweb/internal/publishing"
	"outboxweb/internal/worker"
)

// A pair that had failed may find that its topic selects the event no more,
// since somebody has changed the configuration.
func TestPublishing_restsWhenTheEventThatFailedIsNotSelectedAnyMore(t *testing.T) {
	t.Parallel()
	s := newSteps()
	b := open(t, define(t, ledger), at(s.clock))
	b.mustAppend(t, notes("c-1", 3)...)
	r := receivers{"one": {}}
	pair := pairOf("everything", "one", everyEvent)
	pair.PollInterval = time.Second
	mustFail(t, b, pair.Definition(), 1)
	s.advance(time.Hour) // it may be tried again
	pair.Match = outbox.Match{EventTypes: []string{"never"}}
	deliver(t, b, s.on(r.config(b, "one", pair)))
	if w := s.next(t); w.long != pair.PollInterval {
		t.Fatalf("it waits %s, want %s", w.long, pair.PollInterval)
	}
	b.mustStandAt(t, pair.PairName, 3)
}

// mustFail makes a pair that could not deliver the event at a position.
func mustFail(tb testing.TB, b *bench, d outbox.PublisherDefinition, position int64) {
	tb.Helper()
	if err := b.RegisterPublishers(tb.Context(), []outbox.PublisherDefinition{d}); err != nil {
		tb.Fatal(err)
	}
	lease, ok, err := b.ClaimPublisher(tb.Context(), "before", d.PairName, leaseTime)
	if err != nil || !ok {
		tb.Fatalf("claim: %v %v", ok, err)
	}
	f := publishing.Failure{Kind: outbox.DestinationError, Message: "connection refused", Position: position, Pause: outbox.Retry{Base: time.Second, Max: time.Minute}, FailedRetry: time.Minute}
	_, err = b.FailPublisher(tb.Context(), lease, f)
	if err = errors.Join(err, b.ReleasePublisher(tb.Context(), lease)); err != nil {
		tb.Fatal(err)
	}
}

// A pair whose topic selects little waits in two parts, since its position is
// saved in between.
func TestPublishing_aWakeUpIsNotLostWhileAPositionIsSaved(t *testing.T) {
	t.Parallel()
	s := newSteps()
	b := open(t, define(t, ledger), at(s.clock))
	b.mustAppend(t, noted("c-1"))
	r := receivers{"one": {}}
	pair := pairOf("opened", "one", outbox.Match{EventTypes: []string{"opened"}})
	pair.PollInterval = time.Hour
	deliver(t, b, s.on(r.config(b, "one", pair)))
	if w := s.next(t); w.long != pair.PollInterval {
		t.Fatalf("after the first poll, which saves the position, it waits %s, want %s", w.long, pair.PollInterval)
	}
	b.mustAppend(t, noted("c-1"))
	if w := s.next(t); w.long > time.Second {
		t.Fatalf("until the position may be saved again it waits %s", w.long)
	}
	s.advance(time.Second) // the wake-up comes when it is to be saved anyway
	b.mustAppend(t, opened("c-1", 1))
	eventually(t, "the event arrives", func() bool { return len(r["one"].got()) == 1 })
}

// That the journal cannot be read for once costs a moment, and not the time until
// the next poll.
func TestPublishing_readsAgainSoonWhenTheJournalCouldNotBeRead(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger))
	r := receivers{"one": {}}
	pair := pairOf("everything", "one", everyEvent)
	pair.PollInterval = time.Hour
	b.mustAppend(t, noted("c-1"))
	failures := 1
	deliver(t, b, r.config(b, "one", pair), func(p *worker.Publishing) {
		p.BeforeReads(func() error {
			if failures--; failures >= 0 {
				return outbox.ErrBusy
			}
			return nil
		})
	})
	b.mustStandAt(t, pair.PairName, 1)
}

// A position that cannot be saved is saved later, without its batch being
// delivered again; the tries do not crowd a database that is away.
func TestPublishing_savesAPositionWhenTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	s := newSteps()
	b := open(t, define(t, ledger), at(s.clock))
	b.mustAppend(t, notes("c-1", 3)...)
	r := receivers{"one": {answer: func(_ context.Context, events []*publish.Event) (int, error) {
		mustExec(t, b.journal, `alter table publisher_progress rename to away`)
		return len(events), nil
	}}}
	pair := pairOf("everything", "one", everyEvent)
	pair.PollInterval = time.Hour
	deliver(t, b, s.on(r.config(b, "one", pair)))
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		w := s.next(t)
		if want *= time.Millisecond; w.long != want {
			t.Errorf("wait %d is %s, want %s", i+1, w.long, want)
		}
		if i == 5 {
			mustExec(t, b.journal, `alter table away rename to publisher_progress`)
		}
		s.pass(w)
	}
	b.mustStandAt(t, pair.PairName, 3)
	if got := r["one"].got(); !slices.Equal(got, upTo(3)) {
		t.Errorf("it got %v", got)
	}
}
