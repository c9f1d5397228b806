package alerts_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestWorker_tellsOfAProblemItsGrowthAndItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	f.dead(0)
	f.pass(time.Minute)
	f.dead(3)
	f.pass(6 * time.Minute)
	must.Need(t, w.kinds() == "firing", "sent %q", w.kinds())
	m := w.got[0]
	if m.Title != "3 rows are dead" || m.Count != 3 || m.Rule != "dead_rows" || m.Build != "v8" || m.Projection != "campaigns" || m.ProjectionVersion != "abc" ||
		m.RunbookURL != "https://ops.example/docs/operating#dead-heads-grow" || m.ConsoleURL != "https://ops.example/failures#" || m.Since == nil || m.Todo == "" {
		t.Errorf("sent %+v", m)
	}
	must.Hold(t, !strings.Contains(w.bodies[0], "hunter2") && strings.Contains(m.Error, "refused"), "sent the error %q", m.Error)
	h := w.heads[0]
	must.Hold(t, h.Get("Webhook-Id") == m.ID && strings.HasPrefix(h.Get("Webhook-Signature"), "v1,") && h.Get("User-Agent") == "outboxweb/v9", "headers %v", h)
	f.dead(5)
	f.pass(time.Minute)
	must.Need(t, w.kinds() == "firing reminder" && w.got[1].Before != nil && *w.got[1].Before == 3 && w.got[1].Count == 5, "sent %q: %+v", w.kinds(), w.got[len(w.got)-1])
	f.dead(6)
	f.step()
	f.dead(0)
	f.pass(5 * time.Minute)
	said := strings.Join(w.got[2].Lines(f.Clock.Now()), "; ")
	must.Hold(t, strings.Contains(said, "Changed: 6 before it was over, 5 in the last message"), "at the end it says %q", said)
	if m := w.got[2]; w.kinds() != "firing reminder resolved" || !strings.HasPrefix(m.Title, "Resolved after 7 min: no row is dead") || m.Count != 0 || *m.Ended != 6 || *m.Before != 5 {
		t.Fatalf("sent %q: %+v", w.kinds(), w.got[len(w.got)-1])
	}
	v, err := f.View(f.Ctx)
	must.Need(t, err == nil && len(v.Messages) == 3 && v.Messages[0].Status == "sent" && v.Receivers[0].SentAt != nil && v.Receivers[0].Waiting == 0 && v.Evaluator == "w-1", "view %+v, %v", v, err)
	shown := v.Receivers[0].Destination
	must.Hold(t, !strings.Contains(shown, "hook?") && !strings.Contains(shown, "s3cret"), "shows %q", shown)
}

// What another process found, and told, is known to the next one.
func TestWorker_goesOnWithWhatAnotherProcessTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := strings.TrimSuffix(hook(w), "}") + `, rules: {dead_rows: off}}`
	f := open(t, config)
	f.dead(25)
	f.pass(6 * time.Minute)
	f.dead(0)
	f.step()
	two := around(f.Beside(), "w-2", config)
	two.dead(0)
	f.Clock.Advance(2 * time.Minute) // the lease of the first expires
	two.step()
	two.dead(30)
	two.pass(time.Minute)
	must.Need(t, w.kinds() == "firing", "sent %q while it came and went", w.kinds())
	two.dead(40)
	two.step()
	two.dead(0)
	two.pass(5 * time.Minute)
	if last := w.got[len(w.got)-1]; w.kinds() != "firing reminder resolved" || *last.Ended != 40 || w.got[1].Title != "Still: 40 of 40 campaigns are blocked by a permanently failed event" || *w.got[1].Before != 25 {
		t.Errorf("sent %q: %+v", w.kinds(), w.got)
	}
}

// A number begins to be too high when it is exceeded, not when the first of what it counts came to be.
func TestWorker_beginsWhenANumberIsExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {dead_rows: {over: 2}, blocked_campaigns: off}}`)
	dead := func(n int64) {
		f.dead(n)
		f.facts.Groups.Groups = []outbox.ErrorGroup{{Fingerprint: "x", Dead: n, Example: "x", FirstAt: new(f.Clock.Now().Add(-3 * time.Hour))}}
	}
	dead(2)
	f.pass(10 * time.Minute)
	exceeded := f.Clock.Now()
	dead(3)
	f.step()
	f.pass(10 * time.Minute)
	must.Need(t, w.kinds() == "firing" && w.got[0].Since.Sub(exceeded).Abs() <= time.Minute, "sent %q: since %v, want about %v", w.kinds(), w.got[0].Since, exceeded)
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
	must.Equal(t, w.kinds(), "", "beside the first it sent")
	must.OK(t, two.EndLeases(two.Ctx, "w-1"))
	two.step()
	must.Equal(t, must.Get(two.View(two.Ctx)).Or(t).Evaluator, "w-2", "the evaluator")
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
	must.Hold(t, w.kinds() == "summary" && len(w.got[0].Messages) == 50 && w.got[0].Title == "50 messages at once: 50 open, 0 resolved" && w.got[0].Urgent, "sent %q: %+v", w.kinds(), w.got)
}

func TestWorker_keepsTheLatestForAReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answer(http.StatusServiceUnavailable)
	f := open(t, hook(w))
	f.dead(3)
	f.pass(70 * time.Minute)
	v := must.Get(f.View(f.Ctx)).Or(t)
	r := v.Receivers[0]
	must.Hold(t, r.Failures >= 5 && r.Failures <= 20 && r.RetryAt != nil && r.Waiting == 1 && strings.Contains(r.LastError, "503") && !strings.Contains(r.LastError, "hunter2"), "receiver %+v", r)
	f.dead(0)
	f.pass(6 * time.Minute)
	w.answer(0)
	f.pass(6 * time.Minute)
	must.Equal(t, w.kinds(), "resolved", "sent")
}
