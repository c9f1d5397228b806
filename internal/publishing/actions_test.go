package publishing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func script(reason string) operator.Command {
	return operator.Command{By: operator.Operator{Name: "cron", Via: "api"}, Reason: reason}
}

func failedSubscription(f *fixture) {
	f.types("c", "scene.a", "scene.b", "scene.c").newSubscription(archive, scenes, 1)
	f.failing(archive, 2, operator.EventError)
}

func activeSubscription(f *fixture) {
	f.types("c", "scene.a", "scene.b", "scene.c").newSubscription(archive, scenes, 2)
}

func withReason(o operator.Command) operator.Command {
	if o.Reason == "" {
		o.Reason = "it is known"
	}
	return o
}

var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.beside() }, All: []storetest.Kind[*fixture]{
	{Action: "publisher_pause", Scene: activeSubscription,
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.progress.Pause(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).Paused == nil }},
	{Action: "publisher_resume", Scene: failedSubscription,
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.progress.Resume(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_pause_all", Scene: activeSubscription,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.progress.PauseAll(f.Ctx, o, archive.Publisher)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Paused == nil }},
	{Action: "publisher_resume_all", Scene: failedSubscription,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.progress.ResumeAll(f.Ctx, o, archive.Publisher)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_reset", Scene: failedSubscription,
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.progress.Reset(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_seek", Scene: activeSubscription,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.progress.Seek(f.Ctx, o, archive, subscription.SeekTarget{Beginning: true}, nil)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Position == 2 }},
	{Action: "publisher_skip", Scene: failedSubscription,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.progress.SkipEvent(f.Ctx, withReason(o), archive, 2)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Position == 1 }},
	{Action: "publisher_test", Scene: activeSubscription,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.progress.Test(f.Ctx, o, archive, sending(subscription.TestDelivery{SubscriptionName: archive, ID: "t", OK: true}))
		}},
}}

// A name is paused in all topics at once, with one record that lists them; what was paused before
// stays as it was, and another name too.
func TestPauseAll_pausesANameInEveryTopic(t *testing.T) {
	f := own(t)
	f.types("c", "scene.a")
	name := func(topic, publisher string) operator.SubscriptionName {
		return operator.SubscriptionName{Topic: topic, Publisher: publisher}
	}
	one, two, before, other := name("a", "hook"), name("b", "hook"), name("c", "hook"), name("a", "log")
	for _, n := range []operator.SubscriptionName{one, two, before, other} {
		f.newSubscription(n, scenes, 0)
	}
	must.Get(f.progress.Pause(f.Ctx, ana("again"), before)).Or(t)
	got, err := f.progress.PauseAll(f.Ctx, script("maintenance"), "hook")
	want := subscription.PublishersChange{Publisher: "hook", Changed: []operator.SubscriptionName{one, two}, Unchanged: []operator.SubscriptionName{before}}
	must.Hold(t, err == nil && cmp.Equal(got, want), "%+v, %v", got, err)
	p := f.publisher(two).Paused
	must.Hold(t, p != nil && p.By == "cron" && p.Reason == "maintenance" && f.publisher(before).Paused.By == "ana" && f.publisher(other).Paused == nil, "paused: %+v", p)
	records, err := f.AuditLogOf(f.Ctx, 10, operator.PublishersTarget("hook"))
	must.Hold(t, err == nil && len(records) == 1 && (strings.Contains(string(records[0].After), `{"topic": "b", "publisher": "hook", "was": {"status": "active"`) || strings.Contains(string(records[0].After), `{"topic":"b","publisher":"hook","was":{"status":"active"`)), "%v: %+v", err, records)
	refused(t, storetest.No(f.progress.PauseAll(f.Ctx, ana("again"), "hook")), event.ErrConflict, "last action: pause all by cron")
	refused(t, storetest.No(f.progress.Pause(f.Ctx, ana("again"), one)), event.ErrConflict, "last action: pause all by cron")
	refused(t, storetest.No(f.progress.PauseAll(f.Ctx, ana("again"), "hooks")), event.ErrNotFound)
	got, err = f.progress.ResumeAll(f.Ctx, ana("again"), "hook")
	must.Hold(t, err == nil && len(got.Changed) == 3, "resumed %+v, %v", got, err)
	refused(t, storetest.No(f.progress.ResumeAll(f.Ctx, ana("again"), "hook")), event.ErrConflict)
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, operator.Action.OnPublisher)
}

// facts are the parts of a subscription's row that actions change.
func (f *fixture) facts(name operator.SubscriptionName) string {
	var status, lastError, owner, paused string
	var position, delivered, errors, errorPosition, stopped, acts, epoch int64
	var retry *int64
	err := f.JournalDB.QueryRow(`
select status, position, delivered_position, error_count, last_error, error_position, retry_at, stopped, acts, lease_owner, lease_epoch, paused_by
from publisher_progress where topic = $1 and publisher = $2`, name.Topic, name.Publisher).
		Scan(&status, &position, &delivered, &errors, &lastError, &errorPosition, &retry, &stopped, &acts, &owner, &epoch, &paused)
	must.OK(f.TB, err)
	return fmt.Sprintf("%s at %d/%d errors %d %q at %d retry %v stopped %d acts %d lease %q %d paused %q",
		status, position, delivered, errors, lastError, errorPosition, retry != nil, stopped, acts, owner, epoch, paused)
}

func (f *fixture) isNow(name operator.SubscriptionName, want string) {
	must.Equal(f.TB, f.facts(name), want, "the pair")
}

func TestActions_wakeWorkersAndRefreshWhatIsShared(t *testing.T) {
	f := own(t)
	activeSubscription(f)
	woken := 0
	f.OnWork(func() { woken++ })
	must.Get(f.progress.Publishers(f.Ctx)).Or(t)
	must.Get(f.progress.Pause(f.Ctx, ana("it is broken"), archive)).Or(t)
	must.Equal(t, must.Get(f.progress.Publishers(f.Ctx)).Or(t)[0].Status, subscription.PublisherPaused, "what is shared is of before the act")
	must.Get(f.progress.Resume(f.Ctx, ana(""), archive)).Or(t)
	must.Equal(t, woken, 2, "workers were woken", "times")
	for _, err := range []error{
		storetest.No(f.progress.SkipEvent(f.Ctx, ana("x"), operator.SubscriptionName{}, 1)),
		storetest.No(f.progress.PreviewSeek(f.Ctx, operator.SubscriptionName{}, subscription.SeekTarget{Head: true})),
		storetest.No(f.progress.Test(f.Ctx, ana(""), operator.SubscriptionName{}, nil)),
	} {
		refused(t, err, event.ErrNotFound, "there is no publisher")
	}
}

// An idempotency key belongs to one action with its parameters.
func TestActions_keysAreOfOneSubscriptionAndItsParameters(t *testing.T) {
	f := own(t)
	activeSubscription(f)
	other := f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: "other"}, scenes, 2)
	o := script("once")
	o.IdempotencyKey = "k"
	first := must.Get(f.progress.Seek(f.Ctx, o, archive, toPosition(1), nil)).Or(t)
	f.Unchanged(func() {
		must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, archive, toPosition(1), nil)).Or(t), first, "the repeat")
		refused(t, storetest.No(f.progress.Seek(f.Ctx, o, archive, toPosition(0), nil)), event.ErrConflict, "with different content: publisher_seek of publisher scenes/archive")
		refused(t, storetest.No(f.progress.Seek(f.Ctx, o, other, toPosition(1), nil)), event.ErrConflict, "with different content")
		refused(t, storetest.No(f.progress.Pause(f.Ctx, o, archive)), event.ErrConflict, "another action: publisher_seek of publisher scenes/archive")
	})
}

func TestActions_listsThoseOnOneSubscription(t *testing.T) {
	f := own(t)
	activeSubscription(f)
	other := f.newSubscription(operator.SubscriptionName{Topic: "scenes", Publisher: "other"}, scenes, 2)
	must.Get(f.progress.Pause(f.Ctx, ana("mine"), archive)).Or(t)
	must.Get(f.progress.Pause(f.Ctx, ana("not mine"), other)).Or(t)
	must.Get(f.progress.Resume(f.Ctx, ana("mine"), archive)).Or(t)
	f.Drain()
	f.AppendN("a", 1)
	acts, err := f.AuditLogOf(f.Ctx, 10, operator.PublisherTarget(archive))
	must.Hold(t, err == nil && len(acts) == 2 && acts[0].Action == "publisher_resume" && acts[1].Reason == "mine", "acts %+v, %v", acts, err)
	after := string(acts[0].After)
	must.Hold(t, strings.Contains(after, `"was":{"status":"paused"`) && strings.Contains(after, `"is":{"status":"active"`), "the record has %s", after)
	_, err = f.RetryRow(f.Ctx, ana(""), "a", 1)
	r := refused(t, err, event.ErrConflict)
	must.Hold(t, !strings.Contains(r.Error(), "publisher"), "a refusal about a row tells of a publisher: %s", r)
}

// sending is a test event with an outcome.
func sending(d subscription.TestDelivery) func(context.Context) (subscription.TestDelivery, error) {
	return func(context.Context) (subscription.TestDelivery, error) { return d, nil }
}

func TestTest_leavesTheSubscriptionAsItIs(t *testing.T) {
	f := own(t)
	failedSubscription(f)
	before := f.facts(archive)
	o := ana("is it back?")
	o.IdempotencyKey = "k"
	sent := subscription.TestDelivery{SubscriptionName: archive, ID: "t-1", Seconds: 0.5, Error: "refused"}
	must.Equal(t, must.Get(f.progress.Test(f.Ctx, o, archive, sending(sent))).Or(t), sent, "the test")
	f.isNow(archive, before)
	must.Equal(t, must.Get(f.progress.Test(f.Ctx, o, archive, nil)).Or(t), sent, "the repeat, which sends nothing")
	acts := f.DoneActions()
	must.Hold(t, len(acts) == 1 && strings.Contains(string(acts[0].After), `"error":"refused"`), "acts %+v", acts)
	strict := f.beside(func(s *store.Options) { s.ReasonFrom = 1 })
	refused(t, storetest.No(strict.progress.Test(f.Ctx, ana(""), archive, nil)), event.ErrInvalid, "requires a reason")
	refused(t, storetest.No(f.beside(storetest.ReadOnly).progress.Test(f.Ctx, ana(""), archive, nil)), event.ErrReadOnly)
}

func TestActions_needAReasonWhereEveryActDoes(t *testing.T) {
	f := own(t, func(o *store.Options) { o.ReasonFrom = 1 })
	failedSubscription(f)
	f.Unchanged(func() {
		for _, a := range kinds.All {
			if a.Action == "publisher_skip" {
				continue
			}
			_, err := a.Do(f, ana(""))
			must.Equal(t, refused(t, err, event.ErrInvalid, "requires a reason").Field, "reason", a.Action, "the refusal is about")
		}
	})
}

// A pause by another process is noticed after the batch in flight, however rarely the holder checks
// for it, also with a large backlog.
func TestRelay_aPauseElsewhereHoldsAfterTheBatchInFlight(t *testing.T) {
	f := own(t, live)
	elsewhere := f.beside(live)
	f.MustAppend(notes("c-1", 50)...)
	r, sub := everythingToOne()
	sub.BatchSize = 10
	r["one"].answer = func(_ context.Context, events []*destination.Event) (int, error) {
		if events[0].Position == 11 {
			must.Get(elsewhere.progress.Pause(context.Background(), ana("mended"), sub.SubscriptionName)).Or(t)
		}
		return len(events), nil
	}
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, f, c)
	must.Eventually(t, "the pair is given back", func() bool {
		return f.standing(sub.SubscriptionName).status == "paused" && f.standing(sub.SubscriptionName).owner == ""
	})
	must.Equal(t, r["one"].got(), upTo(20), "it got")
}

// Events appended after a pause are not delivered, even if the holder has not been notified of the
// pause yet.
func TestRelay_nothingAppendedAfterAPauseIsDelivered(t *testing.T) {
	f := own(t, live)
	elsewhere := f.beside(live)
	r, sub := everythingToOne()
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	f.MustAppend(noted("c-1"))
	deliver(t, f, c)
	must.Eventually(t, "the first event is delivered", func() bool { return f.standing(sub.SubscriptionName).position == 1 })
	must.Get(elsewhere.progress.Pause(t.Context(), ana("mended"), sub.SubscriptionName)).Or(t)
	f.MustAppend(noted("c-1"))
	must.Eventually(t, "the pair is given back", func() bool { return f.standing(sub.SubscriptionName).owner == "" })
	must.Equal(t, r["one"].got(), upTo(1), "it got")
}

// Stopping waits neither for a call, which is cut off and no error of the destination, nor for a database that is down.
func TestRelay_stopsAtOnce(t *testing.T) {
	t.Parallel()
	const inACall, away = "in a call", "while a position cannot be saved"
	for name, answer := range map[string]func(ctx context.Context, f *fixture, called func()) (int, error){
		inACall: func(ctx context.Context, _ *fixture, called func()) (int, error) {
			called()
			<-ctx.Done()
			return 0, ctx.Err()
		},
		away: func(_ context.Context, f *fixture, called func()) (int, error) {
			f.Exec(`alter table publisher_progress rename to away`)
			called()
			return 1, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := own(t, live)
			f.MustAppend(noted("c-1"))
			called, sub := make(chan struct{}), subscriptionOf("everything", "one", everyEvent)
			c := receivers{"one": {answer: func(ctx context.Context, _ []*destination.Event) (int, error) {
				return answer(ctx, f, sync.OnceFunc(func() { close(called) }))
			}}}.config(f, "one", sub)
			c.Lease = 2 * must.Patience // its expiry would cancel the call or end the retries too
			stop := deliver(t, f, c)
			<-called
			began := time.Now()
			stop()
			took := time.Since(began)
			must.Hold(t, took <= must.Patience, "it took %s to stop", took)
			if name == away {
				f.Exec(`alter table away rename to publisher_progress`)
			}
			at := f.standing(sub.SubscriptionName)
			must.Hold(t, at.status == "active" && at.position == 0 && at.errors == 0 && (at.owner == "" || name == away), "the pair is %+v", at)
		})
	}
}

// failing makes a subscription that waits an hour until it is retried, and whose destination
// accepts everything after its first error.
func failing(t *testing.T, f *fixture) (destination.Subscription, *receiver, publishing.RelayConfig) {
	f.MustAppend(notes("c-1", 3)...)
	var calls atomic.Int64
	r, sub := answering(func(_ context.Context, events []*destination.Event) (int, error) {
		if calls.Add(1) == 1 {
			return 0, errors.New("connection refused")
		}
		return len(events), nil
	})
	sub.MaxErrors, sub.FailedRetry = 1, time.Hour
	c := r.config(f, "one", sub)
	c.Lease = time.Hour // so that nothing is noticed by renewing it
	return sub, r["one"], c
}

// Actions of other processes are noticed at the next check, also by a waiting subscription.
func TestRelay_aSubscriptionThatWaitsIsActedOnElsewhere(t *testing.T) {
	type given struct {
		act func(*fixture, operator.SubscriptionName) error
		got []int64
	}
	storetest.Each(t, own, map[string]given{
		"resumed": {func(f *fixture, name operator.SubscriptionName) error {
			return storetest.No(f.progress.Resume(f.Ctx, ana("mended"), name))
		}, upTo(3)},
		"moved": {func(f *fixture, name operator.SubscriptionName) error {
			return storetest.No(f.progress.Seek(f.Ctx, operator.Command{By: ana("").By, Reason: "they were wrong", Confirm: "skip 1 events"}, name, toPosition(2), nil))
		}, []int64{3}},
	}, func(t *testing.T, f *fixture, c given) {
		sub, r, config := failing(t, f)
		deliver(t, f, config)
		must.Eventually(t, "the pair has failed", func() bool { return f.standing(sub.SubscriptionName).status == "failed" })
		must.OK(t, c.act(f.beside(live), sub.SubscriptionName))
		f.mustStandAt(t, sub.SubscriptionName, 3)
		must.Equal(t, r.got(), c.got, "it got")
	}, live)
}

func TestRelay_renewsTheLeaseOfAnIdleSubscription(t *testing.T) {
	f := own(t)
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.PollInterval = time.Hour
	c := receivers{"one": {}}.config(f, "one", sub)
	c.Lease = lease / 3
	deliver(t, f, c)
	for range 3 {
		must.Eventually(t, "the lease is renewed", func() bool {
			held := f.publisher(sub.SubscriptionName).Lease
			return held != nil && held.ExpiresAt.Equal(f.Clock.Now().Add(c.Lease))
		})
		f.Clock.Advance(c.Lease / 2)
	}
	must.Equal(t, f.state(sub.SubscriptionName).Epoch, 1, "it was taken", "times")
}

// The reply to a save may be lost although the save succeeded. The subscription continues at once
// from its stored position, and nothing is delivered again.
func TestPostgresRelay_goesOnWhenItNeverLearnsThatAPositionIsSaved(t *testing.T) {
	t.Parallel()
	s, p := dbtest.Server().Severer(t), dbtest.New(t)
	p.Journal, p.Projections = s.Through(p.Journal), s.Through(p.Projections)
	f := on(storetest.OpenBoth(t, p, storetest.NewClock(), live))
	f.MustAppend(notes("c-1", 30)...)
	var once sync.Once
	r, sub := answering(func(_ context.Context, events []*destination.Event) (int, error) {
		once.Do(s.Arm)
		return len(events), nil
	})
	sub.BatchSize = 10
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 30)
	must.Equal(t, s.Severed(), 1, "commits were left without an answer")
	must.Equal(t, r["one"].got(), upTo(30), "it got")
}

// A failed subscription may find that its topic no longer selects the event, after a configuration
// change.
func TestRelay_restsWhenTheEventThatFailedIsNotSelectedAnyMore(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	f.MustAppend(notes("c-1", 3)...)
	r, sub := everythingToOne()
	sub.PollInterval = time.Second
	f.newSubscription(sub.SubscriptionName, sub.Match, 0)
	f.failing(sub.SubscriptionName, 1, operator.DestinationError)
	s.Advance(time.Hour) // it may be tried again
	sub.Match = subscription.Match{EventTypes: []string{"never"}}
	deliver(t, f, s.on(r.config(f, "one", sub)))
	w := s.next(t)
	must.Need(t, w.long == sub.PollInterval, "it waits %s, want %s", w.long, sub.PollInterval)
	f.mustStandAt(t, sub.SubscriptionName, 3)
}

// A subscription whose topic selects little waits in two parts, since its position is saved in
// between.
func TestRelay_aWakeUpIsNotLostWhileAPositionIsSaved(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	f.MustAppend(noted("c-1"))
	r := receivers{"one": {}}
	sub := subscriptionOf("opened", "one", subscription.Match{EventTypes: []string{"opened"}})
	sub.PollInterval = time.Hour
	deliver(t, f, s.on(r.config(f, "one", sub)))
	w := s.next(t)
	must.Need(t, w.long == sub.PollInterval, "after the first poll, which saves the position, it waits %s, want %s", w.long, sub.PollInterval)
	f.MustAppend(noted("c-1"))
	w = s.next(t)
	must.Need(t, w.long <= time.Second, "until the position may be saved again it waits %s", w.long)
	s.Advance(time.Second) // the wake-up comes when the position is due to be saved anyway
	f.MustAppend(opened("c-1"))
	must.Eventually(t, "the event arrives", func() bool { return len(r["one"].got()) == 1 })
}

// A single failed read of the journal is retried after a moment, and not at the next poll.
func TestRelay_readsAgainSoonWhenTheJournalCouldNotBeRead(t *testing.T) {
	f := own(t, live)
	r, sub := everythingToOne()
	sub.PollInterval = time.Hour
	f.MustAppend(noted("c-1"))
	failures := 1
	deliver(t, f, r.config(f, "one", sub), func(p *publishing.Relay) {
		p.BeforeReads(func() error {
			if failures--; failures >= 0 {
				return event.ErrBusy
			}
			return nil
		})
	})
	f.mustStandAt(t, sub.SubscriptionName, 1)
}

// A position that cannot be saved is saved later, without its batch being delivered again; the
// retries do not overload a database that is down.
func TestRelay_savesAPositionWhenTheDatabaseIsBack(t *testing.T) {
	f := own(t)
	s := newSteps(f.Clock)
	f.MustAppend(notes("c-1", 3)...)
	r, sub := answering(func(_ context.Context, events []*destination.Event) (int, error) {
		f.Exec(`alter table publisher_progress rename to away`)
		return len(events), nil
	})
	sub.PollInterval = time.Hour
	deliver(t, f, s.on(r.config(f, "one", sub)))
	const ms = time.Millisecond
	s.passes(t, 100*ms, 200*ms, 400*ms, 800*ms, 1000*ms)
	w := s.next(t)
	must.Equal(t, w.long, 1000*ms, "the wait at last")
	f.Exec(`alter table away rename to publisher_progress`)
	s.pass(w)
	f.mustStandAt(t, sub.SubscriptionName, 3)
	must.Equal(t, r["one"].got(), upTo(3), "it got")
}
