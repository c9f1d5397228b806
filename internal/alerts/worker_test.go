package alerts_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestWorker_tellsOfAProblemOnceAnHourAndOfItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	f.dead(0)
	f.pass(time.Minute)
	f.dead(3)
	f.pass(6 * time.Minute)
	if w.kinds() != "firing" {
		t.Fatalf("sent %q", w.kinds())
	}
	m := w.got[0]
	if m.Title != "3 rows are dead" || m.Count != 3 || m.Rule != "dead_rows" || m.Build != "v8" || m.Projection != "campaigns" || m.ProjectionVersion != "abc" ||
		m.RunbookURL != "https://ops.example/docs/operating#dead-heads-grow" || m.ConsoleURL != "https://ops.example/failures#" || m.Since == nil || m.Todo == "" {
		t.Errorf("sent %+v", m)
	}
	if strings.Contains(w.bodies[0], "hunter2") || !strings.Contains(m.Error, "refused") {
		t.Errorf("sent the error %q", m.Error)
	}
	if h := w.heads[0]; h.Get("Webhook-Id") != m.ID || !strings.HasPrefix(h.Get("Webhook-Signature"), "v1,") || h.Get("User-Agent") != "outboxweb/v9" {
		t.Errorf("headers %v", h)
	}
	f.dead(5)
	f.pass(time.Hour)
	if w.kinds() != "firing reminder" || w.got[1].Before == nil || *w.got[1].Before != 3 || w.got[1].Count != 5 {
		t.Fatalf("sent %q: %+v", w.kinds(), w.got[len(w.got)-1])
	}
	f.dead(8)
	f.step()
	f.dead(0)
	f.pass(time.Minute)
	if said := strings.Join(w.got[2].Lines(f.Clock.Now()), "; "); !strings.Contains(said, "Changed: 8 before it was over, 5 in the last message") {
		t.Errorf("at the end it says %q", said)
	}
	if m := w.got[2]; w.kinds() != "firing reminder resolved" || !strings.HasPrefix(m.Title, "Resolved after 1 h 6 min: no row is dead") || m.Count != 0 || *m.Ended != 8 || *m.Before != 5 {
		t.Fatalf("sent %q: %+v", w.kinds(), w.got[len(w.got)-1])
	}
	v, err := f.View(f.Ctx)
	if err != nil || len(v.Messages) != 3 || v.Messages[0].Status != "sent" || v.Receivers[0].SentAt == nil || v.Receivers[0].Waiting != 0 || v.Evaluator != "w-1" {
		t.Fatalf("view %+v, %v", v, err)
	}
	if shown := v.Receivers[0].Destination; strings.Contains(shown, "hook?") || strings.Contains(shown, "s3cret") {
		t.Errorf("shows %q", shown)
	}
}

// What receivers were told last is true: a new incident is told at once after the end of one, the third
// of a cause within an hour says that it comes and goes, and is over when it has been over for ten
// minutes, also when another process evaluates. Another cause does not come and go.
func TestWorker_tellsWhatComesBackWithinTheHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := strings.TrimSuffix(hook(w), "}") + `, rules: {dead_rows: off, blocked_campaigns: {for: 0s}}}`
	f := open(t, config)
	title := func(i int, want string) {
		t.Helper()
		if len(w.got) != i+1 || w.got[i].Title != want {
			t.Fatalf("sent %q, the last %+v; want %q", w.kinds(), w.got[len(w.got)-1], want)
		}
	}
	over := func(f *fixture) { f.dead(0); f.pass(time.Minute) }
	f.blocked("no such table", 25)
	f.step()
	title(0, "25 campaigns are blocked by a permanently failed event")
	over(f)
	f.blocked("no such table", 60)
	f.step()
	title(2, "Again: 60 campaigns are blocked by a permanently failed event")
	f.blocked("no such table", 120) // the rule is urgent
	f.step()
	title(3, "Still: 120 campaigns are blocked by a permanently failed event")
	over(f)
	f.blocked("seat is taken", 50)
	f.step()
	title(5, "50 campaigns are blocked by a permanently failed event")
	over(f)
	f.blocked("no such table", 24)
	f.step()
	title(7, "Again, 3 times within an hour: 24 campaigns are blocked by a permanently failed event")
	if said := strings.Join(w.got[7].Lines(f.Clock.Now()), "; "); !strings.Contains(said, "It comes and goes: that it is over is told when it has been over for 10 min") || !w.got[7].FlapsUntil.Equal(f.Clock.Now().Add(10*time.Minute)) {
		t.Errorf("it says %q until %v", said, w.got[7].FlapsUntil)
	}
	ended := f.Clock.Now()
	over(f)
	two := around(f.Beside(), "w-2", config)
	f.Clock.Advance(2 * time.Minute) // the lease of the first expires
	two.dead(0)
	two.step()
	v, err := two.View(two.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := v.Rules[0].Alerts[0]
	if len(w.got) != 8 || a.Status != outbox.AlertFiring || a.EndedAt == nil || a.HeldBecause != outbox.AlertHeldFlaps || a.HeldUntil == nil || !a.HeldUntil.Equal(ended.Add(10*time.Minute)) {
		t.Fatalf("sent %q, and holds back: %+v", w.kinds(), a)
	}
	two.blocked("no such table", 12)
	two.facts.Groups = append(two.facts.Groups, outbox.ErrorGroup{Fingerprint: "disk I/O", Example: "disk I/O error", Heads: 1})
	two.step()
	if m := w.got[len(w.got)-1]; len(w.got) != 9 || m.Title != "Another cause: 12 campaigns are blocked by a permanently failed event, with 2 different errors" || m.Error != "disk I/O error" || *m.Before != 24 {
		t.Fatalf("sent %q: %+v", w.kinds(), m)
	}
	ended = two.Clock.Now()
	over(two)
	two.pass(10 * time.Minute)
	if kinds := w.kinds(); kinds != "firing resolved firing reminder resolved firing resolved firing firing resolved" || !w.got[9].EndedAt.Equal(ended) {
		t.Errorf("after ten minutes it sent %q: %+v", kinds, w.got[len(w.got)-1])
	}
}

// A number begins to be too high when it is exceeded, not when the first of what it counts came to be.
func TestWorker_beginsWhenANumberIsExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {dead_rows: {over: 2}, blocked_campaigns: off}}`)
	dead := func(n int64) {
		f.dead(n)
		f.facts.Groups = []outbox.ErrorGroup{{Fingerprint: "x", Dead: n, Example: "x", FirstAt: new(f.Clock.Now().Add(-3 * time.Hour))}}
	}
	dead(2)
	f.pass(10 * time.Minute)
	exceeded := f.Clock.Now()
	dead(3)
	f.step()
	f.pass(10 * time.Minute)
	if w.kinds() != "firing" || w.got[0].Since.Sub(exceeded).Abs() > time.Minute {
		t.Fatalf("sent %q: since %v, want about %v", w.kinds(), w.got[0].Since, exceeded)
	}
}

// After a crash the next start evaluates at once.
func TestWorker_goesOnForOneThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := open(t, hook(w))
	one.dead(0)
	one.step()
	two := around(one.Beside(), "w-2", hook(w))
	two.dead(3)
	two.step()
	if w.kinds() != "" {
		t.Errorf("beside the first it sent %q", w.kinds())
	}
	if err := two.EndLeases(two.Ctx, "w-1"); err != nil {
		t.Fatal(err)
	}
	two.step()
	if v, err := two.View(two.Ctx); err != nil || v.Evaluator != "w-2" {
		t.Errorf("the evaluator is %q, %v", v.Evaluator, err)
	}
}

// Many causes at once become one message, which is as urgent as they are.
func TestWorker_sumsUpManyCausesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {publisher: {for: 0, urgent: true}}}`)
	f.facts.Moved = true
	for i := range 50 {
		f.facts.Publishers = append(f.facts.Publishers, outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "t", Publisher: fmt.Sprint("p", i)}, Status: outbox.PublisherFailed, ErrorCount: 8, ErrorKind: outbox.DestinationError})
	}
	f.pass(time.Minute)
	if w.kinds() != "summary" || len(w.got[0].Messages) != 50 || w.got[0].Title != "50 messages at once: 50 open, 0 resolved" || !w.got[0].Urgent {
		t.Errorf("sent %q: %+v", w.kinds(), w.got)
	}
}

func TestWorker_keepsTheLatestForAReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answer(http.StatusServiceUnavailable)
	f := open(t, hook(w))
	f.dead(3)
	f.pass(70 * time.Minute)
	v, err := f.View(f.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := v.Receivers[0]
	if r.Failures < 5 || r.Failures > 20 || r.RetryAt == nil || r.Waiting != 1 || !strings.Contains(r.LastError, "503") || strings.Contains(r.LastError, "hunter2") {
		t.Errorf("receiver %+v", r)
	}
	f.dead(0)
	f.pass(time.Minute)
	w.answer(0)
	f.pass(6 * time.Minute)
	if w.kinds() != "resolved" {
		t.Errorf("sent %q, want only how it ended", w.kinds())
	}
}

func TestWorker_sumsUpAfterAQuietTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, quiet: {time_zone: UTC, times: ["06:00-09:00"]}}`) // the clock begins at 7
	f.dead(3)
	f.facts.Summary.Campaigns.Drifted, f.facts.Summary.Campaigns.Mismatched = 1, 1
	f.pass(30 * time.Minute)
	if w.kinds() != "" {
		t.Fatalf("sent %q in the quiet time", w.kinds())
	}
	f.dead(12) // more than 9 blocked campaigns are urgent
	f.pass(10 * time.Minute)
	if w.kinds() != "firing" || w.got[0].Rule != "blocked_campaigns" || !w.got[0].Urgent {
		t.Fatalf("sent %q: %+v", w.kinds(), w.got)
	}
	f.pass(90 * time.Minute)
	if w.kinds() != "firing reminder summary" {
		t.Fatalf("sent %q", w.kinds())
	}
	for _, m := range w.got {
		if m.Kind == outbox.AlertSummary && (len(m.Messages) != 2 || m.Title != "2 messages were held back: 1 open, 1 resolved") {
			t.Errorf("summary %+v", m)
		}
	}
}
