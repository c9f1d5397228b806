package worker

import (
	"context"
	"sync"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// stretch is consecutive loaded events of one campaign.
type stretch struct {
	events []event.Event // in order of seq
	// unsound is the index of the first event that must not be applied because it is not what was
	// appended; len(events) when all are sound.
	unsound int
	reason  string
	// partial is true when further events were requested but left out because of their size.
	partial bool
}

func inspectLoaded(l store.Loaded) stretch {
	sound, reason := event.Inspect(l.Events)
	return stretch{events: l.Events, unsound: sound, reason: reason, partial: l.Partial}
}

// ahead keeps events read ahead of the next wave, which uses or drops them: they take memory, and the
// longer they lie, the longer a journal that is changed by hand goes unseen. Events never change, so
// reading them early is safe, and they are inspected before use like any other. Skips do change and
// are not part of these events, so they serve only claims of campaigns without skips.
type ahead struct {
	mu        sync.Mutex
	stretches map[string]stretch
	lineage   int64 // of the journal when they were read
}

// take returns the events first to last of a campaign if they were read ahead under the lineage, or as
// many of them as fit.
func (a *ahead) take(c outbox.Claim, lineage int64) (stretch, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lineage != lineage {
		return stretch{}, false
	}
	s, ok := a.stretches[c.CampaignID]
	n := int(c.Last - c.First + 1)
	if !ok || len(s.events) == 0 || s.events[0].Seq != c.First {
		return stretch{}, false
	}
	if s.partial && n > len(s.events) {
		delete(a.stretches, c.CampaignID)
		return s, true
	}
	if n > len(s.events) || s.events[n-1].Seq != c.Last {
		return stretch{}, false
	}
	delete(a.stretches, c.CampaignID)
	return stretch{events: s.events[:n], unsound: min(s.unsound, n), reason: s.reason}, true
}

func (a *ahead) put(stretches map[string]stretch, lineage int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stretches, a.lineage = stretches, lineage
}

// load fills in the events of each part and returns the audit-only event types.
func (w *Worker) load(ctx context.Context, parts []*part) (auditOnly map[string]bool, err error) {
	var missing []*part
	var ranges []store.Range
	for _, p := range parts {
		if p.claim.Unskipped {
			var ok bool
			if p.stretch, ok = w.ahead.take(p.claim, w.Store.Lineage()); ok {
				continue
			}
		}
		missing, ranges = append(missing, p), append(ranges, p.claim.Range())
	}
	w.ahead.put(nil, 0)
	loaded, auditOnly, err := w.Store.Load(ctx, ranges, w.BatchBytes/2)
	if err != nil {
		return nil, err
	}
	for i, p := range missing {
		p.stretch = inspectLoaded(loaded[i])
	}
	return auditOnly, nil
}

// lookAhead reads, while a full wave is applied, the events of the next one. It does so only
// when the wave has all due campaigns: otherwise another loop has a wave of its own to overlap
// with. The returned function waits until reading has ended.
func (w *Worker) lookAhead(ctx context.Context, claims []outbox.Claim) (wait func()) {
	if rowsOf(claims) < int64(w.BatchSize) || len(claims) >= outbox.WaveShares {
		return func() {}
	}
	next := make([]store.Range, len(claims))
	for i, c := range claims {
		next[i] = store.Range{CampaignID: c.CampaignID, First: c.Last + 1, Last: c.Last + (c.Last - c.First + 1), Unskipped: true}
	}
	lineage := w.Store.Lineage()
	var reading sync.WaitGroup
	reading.Go(func() {
		loaded, _, err := w.Store.Load(ctx, next, w.BatchBytes/2)
		if err != nil {
			return // the wave that needs them loads them, or reports the error
		}
		stretches := make(map[string]stretch, len(next))
		for i, c := range next {
			if len(loaded[i].Events) > 0 {
				stretches[c.CampaignID] = inspectLoaded(loaded[i])
			}
		}
		w.ahead.put(stretches, lineage)
	})
	return reading.Wait
}

func rowsOf(claims []outbox.Claim) int64 {
	rows := int64(0)
	for _, c := range claims {
		rows += c.Last - c.First + 1
	}
	return rows
}
