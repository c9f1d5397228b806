package alerts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// world is a receiver outside: a real HTTP server that notes what it gets.
type world struct {
	*httptest.Server
	mu     sync.Mutex
	got    []outbox.AlertMessage
	heads  []http.Header
	bodies []string
	status int // of its answers; 0 means 200
}

func newWorld(t *testing.T) *world {
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.status != 0 {
			http.Error(rw, "down, password=hunter2hunter2", w.status)
			return
		}
		var m outbox.AlertMessage
		_ = json.Unmarshal(body, &m)
		w.got, w.heads, w.bodies = append(w.got, m), append(w.heads, r.Header), append(w.bodies, string(body))
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *world) answer(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// kinds are the kinds of the messages so far.
func (w *world) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kinds []string
	for _, m := range w.got {
		kinds = append(kinds, string(m.Kind))
	}
	return strings.Join(kinds, " ")
}

func parse(tb testing.TB, text string) (alerts.Settings, error) {
	tb.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		tb.Fatal(err)
	}
	env := map[string]string{"HOOK": "s3cret-hook", "PASS": "p@ss word", "WHSEC": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq="}
	return alerts.Parse(document.Content[0], func(name string) (string, bool) {
		value, set := env[name]
		return value, set
	})
}

// fixture is a store, and a worker whose facts the test sets.
type fixture struct {
	*storetest.Fixture
	*alerts.Alerts
	worker *alerts.Worker
	facts  outbox.AlertFacts
}

func around(f *storetest.Fixture, id, config string) *fixture {
	f.TB.Helper()
	settings, err := parse(f.TB, config)
	if err != nil {
		f.TB.Fatal(err)
	}
	x := &fixture{Fixture: f}
	x.Alerts = alerts.New(f.Store, alerts.Options{Settings: settings, Version: "v9", Hide: redact.Builtin().Text,
		Link: func(page, anchor string) string { return "https://ops.example/" + page + "#" + anchor }})
	x.worker = alerts.NewWorker(alerts.WorkerConfig{Alerts: x.Alerts, ID: id, Facts: func(context.Context) (outbox.AlertFacts, error) { return x.facts, nil }})
	return x
}

func open(t *testing.T, config string) *fixture { return around(storetest.Open(t), "w-1", config) }

// dead sets how many rows are dead, with an error that has a secret.
func (f *fixture) dead(n int64) {
	f.facts = outbox.AlertFacts{Moved: true, Summary: outbox.Summary{Counts: outbox.Counts{Dead: n}, Campaigns: outbox.CampaignCounts{Total: 40}},
		Groups: []outbox.ErrorGroup{{Fingerprint: "refused", Dead: n, Heads: n, Example: "refused: password=hunter2hunter2", Tried: []outbox.Tried{{Build: "v8", Projection: "campaigns", ProjectionVersion: "abc"}}}}}
	f.facts.Summary.Worker.Running = true
	if n > 0 {
		f.facts.Summary.Campaigns.Blocked = n
	}
}

// pass lets time pass, in steps of the evaluation.
func (f *fixture) pass(d time.Duration) {
	f.TB.Helper()
	for ; d > 0; d -= 15 * time.Second {
		f.step()
		f.Clock.Advance(15 * time.Second)
	}
	f.step()
}

func (f *fixture) step() {
	f.TB.Helper()
	if _, err := f.worker.Step(f.Ctx); err != nil {
		f.TB.Fatal(err)
	}
}

func hook(w *world) string {
	return `{receivers: {hook: {url: "` + w.URL + `/alerts?key=${HOOK}", secret: "${WHSEC}", allow_private: true}}, to: [hook]}`
}

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

// blocked sets how many campaigns an error blocks.
func (f *fixture) blocked(by string, n int64) {
	f.dead(n)
	f.facts.Groups[0].Fingerprint, f.facts.Groups[0].Example = by, by
}

// What receivers were told last is true: a new incident is told at once after the end of one, the third
// within an hour says that it comes and goes, and its end is held back, also when another process
// evaluates.
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
	first := *w.got[1].EndedAt
	f.blocked("no such table", 60)
	f.step()
	title(2, "Again: 60 campaigns are blocked by a permanently failed event")
	f.blocked("no such table", 120) // the rule is urgent
	f.step()
	title(3, "Still: 120 campaigns are blocked by a permanently failed event")
	over(f)
	f.blocked("seat is taken", 50)
	f.step()
	title(5, "Again, the third time within an hour: 50 campaigns are blocked by a permanently failed event")
	if said := strings.Join(w.got[5].Lines(f.Clock.Now()), "; "); !strings.Contains(said, "It comes and goes: no message says before "+first.Add(time.Hour).Format("15:04 UTC")+" that it is over") {
		t.Errorf("it says %q", said)
	}
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
	if len(w.got) != 6 || a.Status != outbox.AlertFiring || a.EndedAt == nil || a.HeldBecause != outbox.AlertHeldFlaps || a.HeldUntil == nil || !a.HeldUntil.Equal(first.Add(time.Hour)) {
		t.Fatalf("sent %q, and holds back: %+v", w.kinds(), a)
	}
	two.blocked("seat is taken", 12)
	two.facts.Groups = append(two.facts.Groups, outbox.ErrorGroup{Fingerprint: "disk I/O", Example: "disk I/O error", Heads: 1})
	two.step()
	if m := w.got[len(w.got)-1]; len(w.got) != 7 || m.Title != "Another cause: 12 campaigns are blocked by a permanently failed event, with 2 different errors" || m.Error != "disk I/O error" || *m.Before != 50 {
		t.Fatalf("sent %q: %+v", w.kinds(), m)
	}
	two.dead(0)
	two.pass(time.Hour)
	if kinds := w.kinds(); kinds != "firing resolved firing reminder resolved firing firing resolved" || !w.got[7].EndedAt.Before(first.Add(10*time.Minute)) {
		t.Errorf("after the hour it sent %q: %+v", kinds, w.got[len(w.got)-1])
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

// A publisher that failed and is retried has not recovered until it delivers without an error. Since is
// when it began, not when it was found; an error after a delivery begins anew. What to do depends on what
// is at fault.
func TestWorker_tellsThatAPublisherRecoveredWhenItDelivers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {publisher: {for: 0}}}`)
	p := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "orders", Publisher: "erp"}, UpdatedAt: f.Clock.Now().Add(time.Hour)}
	state := func(status outbox.PublisherStatus, errors int, kind outbox.DeliveryErrorKind, position int64) {
		p.Status, p.ErrorCount, p.ErrorKind, p.ErrorPosition, p.ErrorEvent = status, errors, kind, position, &outbox.EventRef{CampaignID: "c-5", Seq: position}
		f.facts = outbox.AlertFacts{Moved: true, Publishers: []outbox.Publisher{p}}
		f.pass(30 * time.Second)
	}
	began := f.Clock.Now().Add(-10 * time.Second)
	p.LastErrorAt = &began
	state(outbox.PublisherFailed, 8, outbox.DestinationError, 5)
	if w.kinds() != "firing" || !w.got[0].Since.Equal(began) || w.got[0].Todo != "Fix the destination, test it, then resume the publisher." {
		t.Fatalf("at the first error: sent %+v", w.got)
	}
	delivered := f.Clock.Now()
	rejected := delivered.Add(time.Second)
	p.LastPublishedAt, p.LastErrorAt = &delivered, &rejected
	f.Clock.Advance(15 * time.Second)
	state(outbox.PublisherActive, 3, outbox.EventError, 7) // it delivered two events, and is stuck again
	v, err := f.View(f.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(v.Rules, func(r outbox.AlertRuleState) bool { return r.Name == "publisher" })
	if a := v.Rules[i].Alerts[0]; w.kinds() != "firing" || !a.Since.Equal(rejected) || !strings.HasSuffix(a.Cause.Sentence, "3 errors in a row; its destination rejects event 7 of campaign c-5") {
		t.Fatalf("while it is retried: sent %q, shows %+v", w.kinds(), a)
	}
	p.LastErrorAt = new(f.Clock.Now())
	state(outbox.PublisherFailed, 8, outbox.EventError, 7)
	if w.kinds() != "firing firing" {
		t.Fatalf("at the other error: sent %q", w.kinds())
	}
	if m := w.got[1]; m.Title != "Another cause: Publisher orders/erp has failed after 8 errors; its destination rejects event 7 of campaign c-5" || !m.Since.Equal(rejected) ||
		!strings.HasPrefix(m.Todo, "Have the receiver fixed for this event, or skip the event.") || m.RunbookURL != "https://ops.example/docs/operating#one-event-is-rejected" {
		t.Errorf("at the other error: sent %+v", m)
	}
	state(outbox.PublisherActive, 0, outbox.EventError, 0)
	if w.kinds() != "firing firing resolved" || !strings.HasSuffix(w.got[2].Title, ": publisher orders/erp delivers again") {
		t.Errorf("at the end: sent %+v", w.got)
	}
}

// An operator who clears a publisher's errors has not made it deliver: it recovers with a delivery, or when
// nothing is left to deliver.
func TestWorker_endsAResumedPublisherWhenItDelivers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		change func(*outbox.Publisher, time.Time)
		want   string
	}{
		"it delivers":           {func(p *outbox.Publisher, now time.Time) { p.LastPublishedAt = &now }, "publisher all/hook delivers again"},
		"its position is moved": {func(p *outbox.Publisher, _ time.Time) { p.LagEvents = 0 }, "publisher all/hook has nothing left to deliver, after an operator's action"},
		"it is paused":          {func(p *outbox.Publisher, _ time.Time) { p.Status = outbox.PublisherPaused }, "publisher all/hook was paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {publisher: {for: 0}}}`)
			p := outbox.Publisher{SubscriptionName: outbox.SubscriptionName{Topic: "all", Publisher: "hook"}, LagEvents: 300}
			state := func(status outbox.PublisherStatus, errors int) {
				p.Status, p.ErrorCount, p.ErrorKind, p.LastErrorAt = status, errors, "", nil
				if errors > 0 {
					p.ErrorKind, p.LastErrorAt = outbox.DestinationError, new(f.Clock.Now())
				}
				f.facts = outbox.AlertFacts{Moved: true, Publishers: []outbox.Publisher{p}}
				f.pass(30 * time.Second)
			}
			before := f.Clock.Now().Add(-time.Hour)
			p.LastPublishedAt = &before
			state(outbox.PublisherFailed, 4)
			state(outbox.PublisherActive, 0) // resumed; the first call has not ended
			state(outbox.PublisherActive, 1)
			state(outbox.PublisherFailed, 4)
			state(outbox.PublisherActive, 0)
			if w.kinds() != "firing" {
				t.Fatalf("without a delivery it sent %+v", w.got)
			}
			end.change(&p, f.Clock.Now())
			state(p.Status, 0)
			if w.kinds() != "firing resolved" || !strings.HasSuffix(w.got[1].Title, end.want) {
				t.Errorf("at the end it sent %+v", w.got)
			}
		})
	}
}

// While the projections cannot be read, a quarantine neither begins nor ends.
func TestWorker_endsAQuarantineOnlyWhenItKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {quarantine: {for: 0}}}`)
	for _, held := range [][]outbox.HeldProjection{{{Projection: "badges", Quarantined: 1}}, nil, {}} {
		f.facts = outbox.AlertFacts{Moved: true, Summary: outbox.Summary{Held: held}}
		f.pass(30 * time.Second)
		if got, want := w.kinds(), map[bool]string{true: "firing", false: "firing resolved"}[held == nil || len(held) > 0]; got != want {
			t.Fatalf("with %v it sent %q", held, got)
		}
	}
	if m := w.got[0]; m.Rule != "quarantine" || m.Cause != "badges" || m.RunbookURL != "https://ops.example/docs/operating#a-projection-is-quarantined" || !strings.HasSuffix(w.got[1].Title, "projection badges is not quarantined in any campaign") {
		t.Errorf("sent %+v", w.got)
	}
}

// A failed run is told once; another of its kind is another cause.
func TestWorker_tellsOfEachFailedRunOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	failed := outbox.Run{ID: 7, Kind: outbox.RunRebuild, FinishedAt: new(f.Clock.Now())}
	f.facts = outbox.AlertFacts{Moved: true, FailedRuns: []outbox.Run{failed}}
	for range 3 {
		f.pass(time.Minute)
		f.Clock.Advance(time.Hour)
	}
	if w.kinds() != "firing" || w.got[0].Title != "Run 7 (rebuild) has failed" {
		t.Fatalf("sent %+v", w.got)
	}
	next := failed
	next.ID = 9
	f.facts.FailedRuns = []outbox.Run{next, failed}
	f.pass(time.Minute)
	f.facts.FailedRuns = nil
	f.pass(time.Minute)
	if w.kinds() != "firing firing resolved" || w.got[1].Title != "Another cause: Run 9 (rebuild) has failed" || !strings.Contains(w.got[2].Title, "the failed rebuild run was resumed, or a later one completed") {
		t.Errorf("sent %+v", w.got)
	}
}

// A silent instance is told once. It is over when it is back, was stopped, or is not listed any
// more; one that was silent long before is not told.
func TestWorker_tellsOfASilentInstanceUntilItIsOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		silent time.Duration // before it is first found
		end    func(*fixture)
		want   string
	}{
		{"it is back", 2 * time.Minute, func(f *fixture) { f.facts.Summary.Instances[0].LastSeen = f.Clock.Now().Add(time.Minute) }, "no longer silent or stalled"},
		{"it was stopped", 2 * time.Minute, func(f *fixture) { at := f.Clock.Now(); f.facts.Summary.Instances[0].StoppedAt = &at }, "was stopped"},
		{"it is forgotten", 2 * time.Minute, func(f *fixture) { f.facts.Summary.Instances = nil }, "is forgotten"},
		{"it was silent before", 61 * time.Minute, func(*fixture) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := open(t, hook(w))
			f.facts.Moved = true
			f.facts.Summary.Instances = []outbox.InstanceState{{ID: "w-9", BeatEvery: 5 * time.Second, LastSeen: f.Clock.Now().Add(-c.silent)}}
			f.pass(5 * time.Minute)
			for range 3 {
				f.Clock.Advance(time.Hour)
				f.step()
			}
			if got := w.kinds(); got != map[bool]string{true: "", false: "firing"}[c.want == ""] {
				t.Fatalf("after three hours it sent %q", got)
			}
			c.end(f)
			f.step()
			if c.want != "" && (w.kinds() != "firing resolved" || !strings.Contains(w.got[1].Title, c.want)) {
				t.Errorf("at the end it sent %+v", w.got)
			}
		})
	}
}

// Each source is told by itself: what is rejected, and that it is not read.
func TestWorker_tellsOfEachSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	read := outbox.IntakeSource{Name: "billing", Configured: true, Lease: &outbox.Lease{Owner: "w-1", ExpiresAt: f.Clock.Now().Add(24 * time.Hour)}}
	shop := read
	shop.Name, shop.Rejected = "shop", 2
	f.facts = outbox.AlertFacts{Moved: true, Sources: []outbox.IntakeSource{read, shop}}
	f.pass(50 * time.Minute)
	if w.kinds() != "firing" {
		t.Fatalf("sent %q in the first hour", w.kinds())
	}
	if m := w.got[0]; m.Rule != "rejected_rows" || m.Cause != "shop" || m.Count != 2 || m.Title != "2 rows of source shop are rejected; later rows of the same campaigns wait" ||
		m.RunbookURL != "https://ops.example/docs/intake#rejected-rows" || m.ConsoleURL != "https://ops.example/intake#" {
		t.Errorf("sent %+v", m)
	}
	f.facts.Sources[0].Lease, f.facts.Sources[0].Error, f.facts.Sources[1].Rejected = nil, "connection refused", 0
	f.pass(3 * time.Minute)
	if w.kinds() != "firing resolved firing" || !strings.Contains(w.got[1].Title, "source shop has no rejected rows") {
		t.Fatalf("sent %q: %+v", w.kinds(), w.got)
	}
	if m := w.got[2]; m.Rule != "source" || m.Cause != "billing" || m.Title != "Source billing cannot be read" || m.Error != "connection refused" || m.RunbookURL != "https://ops.example/docs/intake#a-source-is-not-read" {
		t.Errorf("sent %+v", m)
	}
	f.facts.Sources[0] = read
	f.step()
	if w.kinds() != "firing resolved firing resolved" || !strings.Contains(w.got[3].Title, "source billing is read again") {
		t.Errorf("at the end it sent %+v", w.got[len(w.got)-1])
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
	f.facts.Summary.Campaigns.Drifted = 1
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

func TestMute_holdsBackUntilItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	if _, err := f.Mute(f.Ctx, storetest.Ana("deploying"), "all", "1h"); err != nil {
		t.Fatal(err)
	}
	f.dead(3)
	f.pass(30 * time.Minute)
	if v, _ := f.View(f.Ctx); w.kinds() != "" || v.Rules[0].MutedUntil == nil || v.Rules[0].Status() != outbox.AlertFiring {
		t.Fatalf("sent %q, %+v", w.kinds(), v.Rules[0])
	}
	if _, err := f.Unmute(f.Ctx, storetest.Ana("done"), "all"); err != nil {
		t.Fatal(err)
	}
	f.step()
	if w.kinds() != "firing" {
		t.Errorf("sent %q after the mute", w.kinds())
	}
	if _, err := f.Mute(f.Ctx, storetest.Ana(""), "dead_rows", "8h"); err != nil {
		t.Fatal(err)
	}
	f.dead(0)
	f.pass(time.Minute)
	if w.kinds() != "firing" {
		t.Errorf("sent %q in the mute", w.kinds())
	}
	f.pass(time.Minute)
	f.Clock.Advance(8 * time.Hour)
	f.pass(time.Minute)
	if w.kinds() != "firing resolved" {
		t.Errorf("sent %q after the mute", w.kinds())
	}
	_, err := f.Unmute(f.Ctx, storetest.Ana(""), "dead_rows")
	storetest.Refused(t, err, outbox.ErrConflict, "rule dead_rows is not muted")
	_, err = f.Mute(f.Ctx, storetest.Ana(""), "nothing", "1h")
	storetest.Refused(t, err, outbox.ErrNotFound, "no alert rule")
}

func TestTest_sendsAMarkedMessageAndRecordsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	o := storetest.Ana("trying")
	o.IdempotencyKey = "k-1"
	for range 2 {
		if d, err := f.Test(f.Ctx, o, "hook"); err != nil || !d.OK {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if w.kinds() != "test" || !strings.Contains(w.got[0].Title, "Test message, sent by ana") {
		t.Errorf("sent %q", w.bodies)
	}
	w.answer(500)
	d, err := f.Test(f.Ctx, storetest.Ana(""), "hook")
	if err != nil || d.OK || !strings.Contains(d.Error, "500") || strings.Contains(d.Error, "hunter2") {
		t.Errorf("%+v, %v", d, err)
	}
	_, err = f.Test(f.Ctx, storetest.Ana(""), "none")
	storetest.Refused(t, err, outbox.ErrNotFound, `no receiver "none"`)
	acts, err := f.AuditLogOf(f.Ctx, 10, outbox.AlertReceiverTarget("hook"))
	if err != nil || len(acts) != 2 || acts[0].Action != outbox.ActionAlertTest {
		t.Errorf("%+v, %v", acts, err)
	}
}

func TestWorker_doesNothingWhileAnotherHasTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := open(t, hook(w))
	two := around(one.Beside(), "w-2", hook(w))
	for _, f := range []*fixture{one, two} {
		f.dead(3)
	}
	for range 28 {
		one.step()
		two.step()
		one.Clock.Advance(15 * time.Second)
	}
	if w.kinds() != "firing" {
		t.Errorf("sent %q", w.kinds())
	}
	for range 8 { // the first is gone
		two.Clock.Advance(15 * time.Second)
		two.step()
	}
	two.dead(0)
	two.step()
	if v, err := two.View(two.Ctx); err != nil || v.Evaluator != "w-2" || w.kinds() != "firing resolved" {
		t.Errorf("sent %q, by %+v, %v", w.kinds(), v.Evaluator, err)
	}
}

// childReceiver is the URL to which a process started by a test sends; childJournal and
// childProjections are its databases.
const childReceiver, childJournal, childProjections = "OUTBOXWEB_TEST_RECEIVER", "OUTBOXWEB_TEST_JOURNAL", "OUTBOXWEB_TEST_PROJECTIONS"

// sendAndDie evaluates rules that fire until its parent kills it, which it does when it gets the
// message.
func sendAndDie(url string) int {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(`{receivers: {hook: {url: "`+url+`", allow_private: true}}, to: [hook], rules: {dead_rows: {for: 0}}}`), &document); err != nil {
		panic(err)
	}
	settings, err := alerts.Parse(document.Content[0], os.LookupEnv)
	if err != nil {
		panic(err)
	}
	st, err := store.Open(context.Background(), store.Options{Journal: os.Getenv(childJournal), Projections: os.Getenv(childProjections)})
	if err != nil {
		panic(err)
	}
	facts := outbox.AlertFacts{Summary: outbox.Summary{Counts: outbox.Counts{Dead: 1}}}
	w := alerts.NewWorker(alerts.WorkerConfig{Alerts: alerts.New(st, alerts.Options{Settings: settings}), ID: fmt.Sprint("p-", os.Getpid()),
		Facts: func(context.Context) (outbox.AlertFacts, error) { return facts, nil }, Every: 10 * time.Millisecond})
	w.Run(context.Background())
	return 0
}

// child starts a process that evaluates on the fixture's databases.
func child(t *testing.T, f *storetest.Fixture, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childReceiver+"="+url, childJournal+"="+f.Pair.Journal, childProjections+"="+f.Pair.Projections)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// A process that is killed between sending a message and recording that sends it again, as the same
// one.
func TestWorker_sendsAgainAfterAKill(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ids, proceed := make(chan string, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m outbox.AlertMessage
		_ = json.NewDecoder(r.Body).Decode(&m)
		ids <- m.ID
		<-proceed
	}))
	defer server.Close()
	first := child(t, f, server.URL)
	sent := <-ids
	_ = first.Process.Kill()
	_, _ = first.Process.Wait()
	close(proceed)
	f.Exec(`update alert_evaluator set lease_expires_at = 0`) // as if a minute had passed
	child(t, f, server.URL)
	if again := <-ids; again != sent {
		t.Errorf("sent %q after the kill, and %q before", again, sent)
	}
	await(t, func() bool { return f.Number(`select count(*) from alert_messages where status = 'sent'`) == 1 })
	if n := f.Number(`select count(*) from alert_messages`); n != 1 {
		t.Errorf("%d messages, want the one", n)
	}
}

// Two processes on one server send a message once.
func TestPostgresWorkers_sendOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	w := newWorld(t)
	child(t, f, w.URL)
	child(t, f, w.URL)
	await(t, func() bool { return w.kinds() != "" })
	await(t, func() bool { return f.Number(`select lease_epoch from alert_evaluator where evaluated_at > 0`) > 0 })
	evaluated := f.Number(`select evaluated_at from alert_evaluator`)
	await(t, func() bool { return f.Number(`select evaluated_at from alert_evaluator`) > evaluated+1_000_000 })
	if w.kinds() != "firing" {
		t.Errorf("sent %q", w.kinds())
	}
}

func await(t *testing.T, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); !met(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s")
		}
	}
}

func TestParse_namesTheLineOfTheMistake(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		line       int
	}{
		{"{}", "there is no receiver", 1},
		{"to: []", "the list is empty", 1},
		{"to: [ops]", `no receiver "ops"`, 1},
		{"to: [\"gopher://x\"]", "unknown scheme gopher:", 1},
		{"to: [\"http://h/x\"]", "needs allow_private", 1},
		{"to: [\"slack+http://h/x\"]", "slack+https:// otherwise", 1},
		{"to: [\"smtps://h\"]", "describe it under receivers", 1},
		{"to: [\"https://h/${NO}\"]", "the variable NO is not set", 1},
		{"to: [\"https://h/x\"]\nrules:\n  dead_rows: {over: -1}", "must be from 0", 3},
		{"to: [\"https://h/x\"]\nrules:\n  dead_rows: {for: -1s}", "must be from 10ms", 3},
		{"to: [\"https://h/x\"]\nrules:\n  dead: {over: 1}", "what must be dead_rows", 3},
		{"to: [\"https://h/x\"]\nrules:\n  publisher: {over: 1}", "has no threshold", 3},
		{"to: [\"https://h/x\"]\nrules:\n  all: {what: drift}", "all means every rule", 3},
		{"to: [\"https://h/x\"]\nrules:\n  pager: off", "must be off, for one of the rules", 3},
		{"to: [\"https://h/x\"]\nquiet: {time_zone: Mars, times: [\"22:00-07:00\"]}", "Mars", 2},
		{"to: [\"https://h/x\"]\nquiet: {times: [\"22:00-07:00\"]}", "need both keys", 2},
		{"receivers:\n  m: {url: \"smtps://h\", from: a@b.c}", "e-mail needs from: ADDRESS and to", 2},
		{"receivers:\n  m: {url: \"smtps://h\", from: nobody, to: [x@y.z]}", "is not an e-mail address", 2},
		{"receivers:\n  m: {url: \"https://h\", from: a@b.c}", "from is a key of e-mail", 2},
		{"receivers:\n  m: {url: \"ntfy+https://h/t\", secret: \"${WHSEC}\"}", "only webhooks are signed", 2},
		{"receivers:\n  m: {url: \"https://h/x\"}", "rule dead_rows has no receiver", 1},
	} {
		_, err := parse(t, c.text)
		refusal, ok := errors.AsType[*outbox.Refusal](err)
		if !ok || refusal.Line != c.line || !strings.Contains(refusal.Detail, c.want) || strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%q is refused with %v, want line %d: %s", c.text, err, c.line, c.want)
		}
	}
}

func TestParse_takesOneAddressAlone(t *testing.T) {
	t.Parallel()
	s, err := parse(t, `to: ["slack+https://hooks.slack.com/services/T/B/literal", "https://h/x", "https://i/y", "https://h/x"]`)
	if err != nil || len(s.Rules) != len(outbox.AlertRules()) || len(s.Receivers) != 3 || strings.Join(s.Rules[0].To, " ") != "slack webhook webhook-2" {
		t.Fatalf("%+v, %v", s, err)
	}
	if shown := s.Receivers[0].Shown; shown != "slack+https://hooks.slack.com/…" {
		t.Errorf("shows %q", shown)
	}
	s, err = parse(t, `{to: ["https://h/x"], rules: {drift: off, instance: false, oldest_row: {over: 1h, for: 0}, pager: {what: dead_rows, over: 100, urgent: true}}}`)
	if err != nil || len(s.Rules) != 10 || s.Rules[2].OverAge != time.Hour || s.Rules[2].For != 0 || s.Rules[9].Name != "pager" || s.Rules[9].Over != 100 || !s.Rules[9].Urgent || len(s.Rules[9].To) != 1 {
		t.Errorf("%+v, %v", s.Rules, err)
	}
}

// The examples in the documentation and on the page are valid configurations.
func TestParse_readsTheDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)\n```yaml\nalerts:(.*?)\n```\n").FindAllStringSubmatch(string(text), -1)
	if len(examples) != 2 {
		t.Fatalf("%d examples were found", len(examples))
	}
	for _, example := range examples {
		var document yaml.Node
		if err := yaml.Unmarshal([]byte(example[1]), &document); err != nil {
			t.Fatal(err)
		}
		s, err := alerts.Parse(document.Content[0], func(string) (string, bool) { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq=", true })
		if err != nil || len(s.Receivers) == 0 {
			t.Errorf("%v in\n%s", err, example[1])
		}
	}
}
