package publishing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// spoken is a log that is read while it is written.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

// says reports whether one line has all the words.
func (s *spoken) says(words ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
line:
	for line := range strings.Lines(s.text.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue line
			}
		}
		return true
	}
	return false
}

// overheard is a relay to one receiver with an event to deliver, and what it logs.
func overheard(f *fixture, id string) (publishing.RelayConfig, destination.Subscription, *spoken) {
	f.appendAll(noted("c-1"))
	r, sub := receivers{"one": {}}, subscriptionOf("everything", "one", everyEvent)
	c, log := r.config(f, id, sub), new(spoken)
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	return c, sub, log
}

// A publisher whose holder was killed is taken over with a line in the log and a count; one that was
// released is not.
func TestRelay_tellsThatItTookAPublisherOver(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	c, sub, log := overheard(f, "heir")
	if err := f.progress.Register(f.Ctx, []outbox.PublisherDefinition{sub.Definition()}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.progress.Claim(f.Ctx, "killed 7", sub.SubscriptionName, time.Millisecond); !ok || err != nil {
		t.Fatal(ok, err)
	}
	takeovers := func() float64 {
		return counted(t, c.Metrics.PublisherTakenOver.WithLabelValues(sub.Topic, sub.Publisher))
	}
	stop := deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 1)
	if !log.says("level=WARN", "took over a publisher", "publisher=one", `from="killed 7"`, "lease_over_for=") || takeovers() != 1 {
		t.Errorf("%g takeovers, and the log is:\n%s", takeovers(), &log.text)
	}
	stop()
	f.appendAll(noted("c-1"))
	deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 2)
	if takeovers() != 1 {
		t.Errorf("%g takeovers, though the publisher was released", takeovers())
	}
}

// A holder that has lost its publisher says what happened.
func TestRelay_saysHowItLostAPublisher(t *testing.T) {
	t.Parallel()
	for says, happen := range map[string]func(*fixture, outbox.SubscriptionName) error{
		"the journal went back to an earlier state": func(f *fixture, _ outbox.SubscriptionName) error {
			_, err := f.JournalDB.Exec(`update publisher_progress set lease_epoch = lease_epoch - 1, position = 0`)
			return err
		},
		"another process took the publisher over": func(f *fixture, _ outbox.SubscriptionName) error {
			_, err := f.JournalDB.Exec(`update publisher_progress set lease_epoch = lease_epoch + 1, lease_owner = 'other'`)
			return err
		},
		"an operator moved the publisher": func(f *fixture, name outbox.SubscriptionName) error {
			_, err := f.progress.Seek(f.Ctx, ana("once more"), name, outbox.SeekTarget{Beginning: true}, nil)
			return err
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			f := open(t, live)
			c, sub, log := overheard(f, "one")
			deliver(t, f, c)
			f.mustStandAt(t, sub.SubscriptionName, 1)
			if err := happen(f, sub.SubscriptionName); err != nil {
				t.Fatal(err)
			}
			storetest.Eventually(t, "it says "+says, func() bool { return log.says(says) })
		})
	}
}

// A destination that goes away between two events is asked when the second one fails, and before it is
// tried again after a resume.
func TestRelay_asksForHealthWhenADeliveryFails(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	f.appendAll(noted("c-1"))
	var away atomic.Bool
	var calls atomic.Int64
	sub := customSubscription(t, destination.Functions{
		Deliver: func(_ context.Context, events []*destination.Event) (int, error) {
			if calls.Add(1); away.Load() {
				return 0, errors.New("no route")
			}
			return len(events), nil
		},
		Healthy: func(context.Context) error {
			if away.Load() {
				return errors.New("the line is cut")
			}
			return nil
		},
	})
	sub.Pause, sub.MaxErrors = outbox.Retry{Base: time.Hour, Max: time.Hour}, 10
	c := receivers{}.config(f, "one", sub)
	c.Open = nil
	var relay *publishing.Relay
	deliver(t, f, c, func(r *publishing.Relay) { relay = r })
	f.mustStandAt(t, sub.SubscriptionName, 1)
	away.Store(true)
	f.appendAll(noted("c-1"))
	storetest.Eventually(t, "an error", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount == 1 })
	if p := f.publisher(sub.SubscriptionName); p.ErrorKind != outbox.DestinationError || !strings.Contains(p.LastError, "the line is cut") || !strings.Contains(p.LastError, "no route") || p.Healthy == nil || *p.Healthy {
		t.Errorf("the first failure is told as %+v", p)
	}
	before := calls.Load()
	if _, err := f.progress.Resume(t.Context(), ana("try"), sub.SubscriptionName); err != nil {
		t.Fatal(err)
	}
	relay.Wake()
	storetest.Eventually(t, "an error after the resume", func() bool { return f.publisher(sub.SubscriptionName).ErrorCount == 1 })
	if after := calls.Load(); after != before {
		t.Errorf("%d deliveries were tried after the resume, though the publisher is not healthy", after-before)
	}
}
