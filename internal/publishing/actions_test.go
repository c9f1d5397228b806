package publishing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func script(reason string) outbox.Command {
	return outbox.Command{By: outbox.Operator{Name: "cron", Via: "api"}, Reason: reason}
}

func failedSubscription(f *fixture) {
	f.types("c", "scene.a", "scene.b", "scene.c")
	f.newSubscription(archive, scenes, 1)
	f.failing(archive, 2, outbox.EventError)
}

func activeSubscription(f *fixture) {
	f.types("c", "scene.a", "scene.b", "scene.c")
	f.newSubscription(archive, scenes, 2)
}

func withReason(o outbox.Command) outbox.Command {
	if o.Reason == "" {
		o.Reason = "it is known"
	}
	return o
}

var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.beside() }, All: []storetest.Kind[*fixture]{
	{Action: "publisher_pause", Scene: activeSubscription,
		Do:     func(f *fixture, o outbox.Command) (any, error) { return f.progress.Pause(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).Paused == nil }},
	{Action: "publisher_resume", Scene: failedSubscription,
		Do:     func(f *fixture, o outbox.Command) (any, error) { return f.progress.Resume(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_pause_all", Scene: activeSubscription,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.progress.PauseAll(f.Ctx, o, archive.Publisher)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Paused == nil }},
	{Action: "publisher_resume_all", Scene: failedSubscription,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.progress.ResumeAll(f.Ctx, o, archive.Publisher)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_reset", Scene: failedSubscription,
		Do:     func(f *fixture, o outbox.Command) (any, error) { return f.progress.Reset(f.Ctx, o, archive) },
		Undone: func(f *fixture) bool { return f.publisher(archive).ErrorCount == 10 }},
	{Action: "publisher_seek", Scene: activeSubscription,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.progress.Seek(f.Ctx, o, archive, outbox.SeekTarget{Beginning: true}, nil)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Position == 2 }},
	{Action: "publisher_skip", Scene: failedSubscription,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return f.progress.SkipEvent(f.Ctx, withReason(o), archive, 2)
		},
		Undone: func(f *fixture) bool { return f.publisher(archive).Position == 1 }},
	{Action: "publisher_test", Scene: activeSubscription,
		Do: func(f *fixture, o outbox.Command) (any, error) {
			return nil, f.progress.RecordTestDelivery(f.Ctx, o, outbox.TestDelivery{SubscriptionName: archive, ID: "t", OK: true})
		}},
}}

// A name is paused in all topics at once, with one record that lists them; what was paused before
// stays as it was, and another name too.
func TestPauseAll_pausesANameInEveryTopic(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.types("c", "scene.a")
	name := func(topic, publisher string) outbox.SubscriptionName {
		return outbox.SubscriptionName{Topic: topic, Publisher: publisher}
	}
	one, two, before, other := name("a", "hook"), name("b", "hook"), name("c", "hook"), name("a", "log")
	for _, n := range []outbox.SubscriptionName{one, two, before, other} {
		f.newSubscription(n, scenes, 0)
	}
	must.Get(f.progress.Pause(f.Ctx, ana("again"), before)).Or(t)
	got, err := f.progress.PauseAll(f.Ctx, script("maintenance"), "hook")
	want := outbox.PublishersChange{Publisher: "hook", Changed: []outbox.SubscriptionName{one, two}, Unchanged: []outbox.SubscriptionName{before}}
	must.Hold(t, err == nil && cmp.Equal(got, want), "%+v, %v", got, err)
	p := f.publisher(two).Paused
	must.Hold(t, p != nil && p.By == "cron" && p.Reason == "maintenance" && f.publisher(before).Paused.By == "ana" && f.publisher(other).Paused == nil, "paused: %+v", p)
	records, err := f.AuditLogOf(f.Ctx, 10, outbox.PublishersTarget("hook"))
	if err != nil || len(records) != 1 || !strings.Contains(string(records[0].After), `{"topic": "b", "publisher": "hook", "was": {"status": "active"`) && !strings.Contains(string(records[0].After), `{"topic":"b","publisher":"hook","was":{"status":"active"`) {
		t.Errorf("%v: %+v", err, records)
	}
	_, err = f.progress.PauseAll(f.Ctx, ana("again"), "hook")
	must.Hold(t, errors.Is(err, outbox.ErrConflict) && strings.Contains(err.Error(), "last action: pause all by cron"), "again: %v", err)
	_, err = f.progress.Pause(f.Ctx, ana("again"), one)
	must.Hold(t, errors.Is(err, outbox.ErrConflict) && strings.Contains(err.Error(), "last action: pause all by cron"), "one of them: %v", err)
	_, err = f.progress.PauseAll(f.Ctx, ana("again"), "hooks")
	must.Hold(t, errors.Is(err, outbox.ErrNotFound), "an unknown name: %v", err)
	got, err = f.progress.ResumeAll(f.Ctx, ana("again"), "hook")
	must.Hold(t, err == nil && len(got.Changed) == 3, "resumed %+v, %v", got, err)
	_, err = f.progress.ResumeAll(f.Ctx, ana("again"), "hook")
	must.Hold(t, errors.Is(err, outbox.ErrConflict), "resumed again: %v", err)
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, outbox.Action.OnPublisher)
}

// facts are the parts of a subscription's row that actions change.
func (f *fixture) facts(name outbox.SubscriptionName) string {
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

func (f *fixture) isNow(name outbox.SubscriptionName, want string) {
	must.Equal(f.TB, f.facts(name), want, "the pair")
}

func TestActions_wakeWorkersAndRefreshWhatIsShared(t *testing.T) {
	t.Parallel()
	f := open(t)
	activeSubscription(f)
	woken := 0
	f.OnWork(func() { woken++ })
	must.Get(f.progress.Publishers(f.Ctx)).Or(t)
	must.Get(f.progress.Pause(f.Ctx, ana("it is broken"), archive)).Or(t)
	must.Equal(t, must.Get(f.progress.Publishers(f.Ctx)).Or(t)[0].Status, outbox.PublisherPaused, "what is shared is of before the act")
	must.Get(f.progress.Resume(f.Ctx, ana(""), archive)).Or(t)
	must.Equal(t, woken, 2, "workers were woken", "times")
	for _, act := range []func() error{
		func() error {
			_, err := f.progress.SkipEvent(f.Ctx, ana("x"), outbox.SubscriptionName{}, 1)
			return err
		},
		func() error {
			_, err := f.progress.PreviewSeek(f.Ctx, outbox.SubscriptionName{}, outbox.SeekTarget{Head: true})
			return err
		},
		func() error { return f.progress.RecordTestDelivery(f.Ctx, ana(""), outbox.TestDelivery{}) },
		func() error { _, err := f.progress.AdmitTest(f.Ctx, ana(""), outbox.SubscriptionName{}); return err },
	} {
		refused(t, act(), outbox.ErrNotFound, "there is no publisher")
	}
}

func TestResume_ofManyAtOnceExactlyOneWins(t *testing.T) {
	t.Parallel()
	f := open(t)
	failedSubscription(f)
	storetest.OneWins(t, []*fixture{f, f.beside()}, func(f *fixture) error {
		return storetest.No(f.progress.Resume(f.Ctx, ana(""), archive))
	})
	must.Equal(t, len(f.DoneActions()), 1, "records")
}

// An idempotency key belongs to one action with its parameters.
func TestActions_keysAreOfOneSubscriptionAndItsParameters(t *testing.T) {
	t.Parallel()
	f := open(t)
	activeSubscription(f)
	other := f.newSubscription(outbox.SubscriptionName{Topic: "scenes", Publisher: "other"}, scenes, 2)
	o := script("once")
	o.IdempotencyKey = "k"
	to := func(n int64) outbox.SeekTarget { return outbox.SeekTarget{Position: &n} }
	first := must.Get(f.progress.Seek(f.Ctx, o, archive, to(1), nil)).Or(t)
	f.Unchanged(func() {
		must.Equal(t, must.Get(f.progress.Seek(f.Ctx, o, archive, to(1), nil)).Or(t), first, "the repeat")
		_, err := f.progress.Seek(f.Ctx, o, archive, to(0), nil)
		refused(t, err, outbox.ErrConflict, "with different content: publisher_seek of publisher scenes/archive")
		_, err = f.progress.Seek(f.Ctx, o, other, to(1), nil)
		refused(t, err, outbox.ErrConflict, "with different content")
		_, err = f.progress.Pause(f.Ctx, o, archive)
		refused(t, err, outbox.ErrConflict, "another action: publisher_seek of publisher scenes/archive")
	})
}

func TestActions_listsThoseOnOneSubscription(t *testing.T) {
	t.Parallel()
	f := open(t)
	activeSubscription(f)
	other := f.newSubscription(outbox.SubscriptionName{Topic: "scenes", Publisher: "other"}, scenes, 2)
	for _, act := range []func() (outbox.Publisher, error){
		func() (outbox.Publisher, error) { return f.progress.Pause(f.Ctx, ana("mine"), archive) },
		func() (outbox.Publisher, error) { return f.progress.Pause(f.Ctx, ana("not mine"), other) },
		func() (outbox.Publisher, error) { return f.progress.Resume(f.Ctx, ana("mine"), archive) },
	} {
		must.Get(act()).Or(t)
	}
	f.Drain()
	f.AppendN("a", 1)
	acts, err := f.AuditLogOf(f.Ctx, 10, outbox.PublisherTarget(archive))
	must.Hold(t, err == nil && len(acts) == 2 && acts[0].Action == "publisher_resume" && acts[1].Reason == "mine", "acts %+v, %v", acts, err)
	after := string(acts[0].After)
	must.Hold(t, strings.Contains(after, `"was":{"status":"paused"`) && strings.Contains(after, `"is":{"status":"active"`), "the record has %s", after)
	_, err = f.RetryRow(f.Ctx, ana(""), "a", 1)
	r := refused(t, err, outbox.ErrConflict)
	must.Hold(t, !strings.Contains(r.Error(), "publisher"), "a refusal about a row tells of a publisher: %s", r)
}

func TestRecordTestDelivery_leavesTheSubscriptionAsItIs(t *testing.T) {
	t.Parallel()
	f := open(t)
	failedSubscription(f)
	before := f.facts(archive)
	o := ana("is it back?")
	o.IdempotencyKey = "k"
	if done, err := f.progress.AdmitTest(f.Ctx, o, archive); err != nil || done != nil {
		t.Fatalf("%+v, %v", done, err)
	}
	sent := outbox.TestDelivery{SubscriptionName: archive, ID: "t-1", Seconds: 0.5, Error: "refused"}
	must.OK(t, f.progress.RecordTestDelivery(f.Ctx, o, sent))
	f.isNow(archive, before)
	if done, err := f.progress.AdmitTest(f.Ctx, o, archive); err != nil || done == nil || *done != sent {
		t.Errorf("the repeat is %+v, %v", done, err)
	}
	acts := f.DoneActions()
	must.Hold(t, len(acts) == 1 && strings.Contains(string(acts[0].After), `"error":"refused"`), "acts %+v", acts)
	strict := f.beside(func(s *store.Options) { s.ReasonFrom = 1 })
	_, err := strict.progress.AdmitTest(f.Ctx, ana(""), archive)
	refused(t, err, outbox.ErrInvalid, "requires a reason")
	_, err = f.beside(storetest.ReadOnly).progress.AdmitTest(f.Ctx, ana(""), archive)
	refused(t, err, outbox.ErrReadOnly)
}

func TestActions_needAReasonWhereEveryActDoes(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	failedSubscription(f)
	f.Unchanged(func() {
		for _, a := range kinds.All {
			if a.Action == "publisher_skip" {
				continue
			}
			_, err := a.Do(f, ana(""))
			must.Equal(t, refused(t, err, outbox.ErrInvalid, "requires a reason").Field, "reason", a.Action, "the refusal is about")
		}
	})
}
