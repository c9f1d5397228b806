package alerts_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

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
		f.facts = outbox.Facts{Moved: true, Publishers: []outbox.Publisher{p}}
		f.pass(30 * time.Second)
	}
	began := f.Clock.Now().Add(-10 * time.Second)
	p.LastErrorAt = &began
	state(outbox.PublisherFailed, 8, outbox.DestinationError, 5)
	must.Need(t, w.kinds() == "firing" && w.got[0].Since.Equal(began) && w.got[0].Todo == "Fix the destination, test it, then resume the publisher.", "at the first error: sent %+v", w.got)
	delivered := f.Clock.Now()
	rejected := delivered.Add(time.Second)
	p.LastPublishedAt, p.LastErrorAt = &delivered, &rejected
	f.Clock.Advance(15 * time.Second)
	state(outbox.PublisherActive, 3, outbox.EventError, 7) // it delivered two events, and is stuck again
	v := must.Get(f.View(f.Ctx)).Or(t)
	i := slices.IndexFunc(v.Rules, func(r outbox.AlertRuleState) bool { return r.Name == "publisher" })
	if a := v.Rules[i].Alerts[0]; w.kinds() != "firing" || !a.Since.Equal(rejected) || !strings.HasSuffix(a.Cause.Sentence, "3 errors in a row; its destination rejects event 7 of campaign c-5") {
		t.Fatalf("while it is retried: sent %q, shows %+v", w.kinds(), a)
	}
	p.LastErrorAt = new(f.Clock.Now())
	state(outbox.PublisherFailed, 8, outbox.EventError, 7)
	f.Clock.Advance(outbox.AlertAgain)
	f.step()
	if m := w.got[len(w.got)-1]; w.kinds() != "firing reminder" || m.Title != "Still: Publisher orders/erp has failed after 8 errors; its destination rejects event 7 of campaign c-5" || !m.Since.Equal(rejected) ||
		!strings.HasPrefix(m.Todo, "Have the receiver fixed for this event, or skip the event.") || m.RunbookURL != "https://ops.example/docs/operating#one-event-is-rejected" {
		t.Errorf("a day later: sent %q, %+v", w.kinds(), m)
	}
	state(outbox.PublisherActive, 0, outbox.EventError, 0)
	must.Hold(t, w.kinds() == "firing reminder resolved" && strings.HasSuffix(w.got[2].Title, ": publisher orders/erp delivers again"), "at the end: sent %+v", w.got)
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
				f.facts = outbox.Facts{Moved: true, Publishers: []outbox.Publisher{p}}
				f.pass(30 * time.Second)
			}
			before := f.Clock.Now().Add(-time.Hour)
			p.LastPublishedAt = &before
			state(outbox.PublisherFailed, 4)
			state(outbox.PublisherActive, 0) // resumed; the first call has not ended
			state(outbox.PublisherActive, 1)
			state(outbox.PublisherFailed, 4)
			state(outbox.PublisherActive, 0)
			must.Need(t, w.kinds() == "firing", "without a delivery it sent %+v", w.got)
			end.change(&p, f.Clock.Now())
			state(p.Status, 0)
			must.Hold(t, w.kinds() == "firing resolved" && strings.HasSuffix(w.got[1].Title, end.want), "at the end it sent %+v", w.got)
		})
	}
}

// While the projections cannot be read, a quarantine neither begins nor ends.
func TestWorker_endsAQuarantineOnlyWhenItKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, strings.TrimSuffix(hook(w), "}")+`, rules: {quarantine: {for: 0}}}`)
	for _, held := range [][]outbox.HeldProjection{{{Projection: "badges", Quarantined: 1}}, nil, {}} {
		f.facts = outbox.Facts{Moved: true, Summary: outbox.Summary{Held: held}}
		f.pass(30 * time.Second)
		if got, want := w.kinds(), map[bool]string{true: "firing", false: "firing resolved"}[held == nil || len(held) > 0]; got != want {
			t.Fatalf("with %v it sent %q", held, got)
		}
	}
	if m := w.got[0]; m.Rule != "quarantine" || m.Cause != "badges" || m.RunbookURL != "https://ops.example/docs/operating#a-projection-is-quarantined" || !strings.HasSuffix(w.got[1].Title, "projection badges is not quarantined in any campaign") {
		t.Errorf("sent %+v", w.got)
	}
}

// Failed runs of a kind are one trouble, until one completes.
func TestWorker_tellsOfFailedRunsByTheirKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := open(t, hook(w))
	failed := outbox.Run{ID: 7, Kind: outbox.RunRebuild, Status: outbox.RunFailed, FinishedAt: new(f.Clock.Now())}
	f.facts = outbox.Facts{Moved: true, Runs: []outbox.Run{failed}}
	f.pass(time.Minute)
	next := failed
	next.ID = 9
	f.facts.Runs = []outbox.Run{next, failed}
	f.pass(time.Minute)
	must.Need(t, w.kinds() == "firing" && w.got[0].Title == "Run 7 (rebuild) has failed", "sent %+v", w.got)
	f.Clock.Advance(outbox.AlertAgain)
	f.pass(time.Minute)
	f.facts.Runs = nil
	f.pass(time.Minute)
	must.Hold(t, w.kinds() == "firing reminder resolved" && w.got[1].Title == "Still: Run 9 (rebuild) has failed" && strings.Contains(w.got[2].Title, "the failed rebuild run was resumed or repeated"), "sent %+v", w.got)
}

// A silent instance is over when it is back, was stopped, or is not listed any
// more; one that was silent long before is not told.
func TestWorker_tellsOfASilentInstanceUntilItIsOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		silent time.Duration // before it is first found
		end    func(*fixture)
		want   string
	}{
		{"it is back", 2 * time.Minute, func(f *fixture) { f.facts.Summary.Instances[0].LastSeen = f.Clock.Now().Add(time.Hour) }, "no longer silent or stalled"},
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
			f.pass(3 * time.Minute)
			must.Hold(t, c.want == "" || w.kinds() == "firing resolved" && strings.Contains(w.got[1].Title, c.want), "at the end it sent %+v", w.got)
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
	f.facts = outbox.Facts{Moved: true, Sources: []outbox.IntakeSource{read, shop}}
	f.pass(5 * time.Minute)
	must.Need(t, w.kinds() == "firing", "sent %q before anything changed", w.kinds())
	if m := w.got[0]; m.Rule != "rejected_rows" || m.Cause != "shop" || m.Count != 2 || m.Title != "2 rows of source shop are rejected, and each blocks its campaign" ||
		m.RunbookURL != "https://ops.example/docs/intake#rejected-rows" || m.ConsoleURL != "https://ops.example/intake/shop#" {
		t.Errorf("sent %+v", m)
	}
	f.facts.Sources[0].Lease, f.facts.Sources[0].Error, f.facts.Sources[1].Rejected = nil, "connection refused", 0
	f.pass(3 * time.Minute)
	must.Need(t, w.kinds() == "firing resolved firing" && strings.Contains(w.got[1].Title, "source shop has no rejected rows"), "sent %q: %+v", w.kinds(), w.got)
	if m := w.got[2]; m.Rule != "source" || m.Cause != "billing" || m.Title != "Source billing cannot be read" || m.Error != "connection refused" || m.RunbookURL != "https://ops.example/docs/intake#a-source-is-not-read" {
		t.Errorf("sent %+v", m)
	}
	f.facts.Sources[0] = read
	f.pass(2 * time.Minute)
	must.Hold(t, w.kinds() == "firing resolved firing resolved" && strings.Contains(w.got[3].Title, "source billing is read again"), "at the end it sent %+v", w.got[len(w.got)-1])
}
