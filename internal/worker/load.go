package worker

import (
	"context"
	"fmt"
	"sync"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// stretch is consecutive events of one campaign as they were loaded.
type stretch struct {
	events []outbox.Event // in order of seq
	// unsound is the index of the first event that must not be applied
	// because it is not what was appended, len(events) when all are sound.
	unsound int
	reason  string
}

// inspect verifies that events are the ones that were appended: contents
// against their hashes, and each hash chained to the one before. The content of
// one that is skipped does not matter.
func inspect(events []outbox.Event) stretch {
	for i := range events {
		e := &events[i]
		switch {
		case e.Skipped == nil && e.ContentHash() != e.EventHash:
			return stretch{events, i, fmt.Sprintf("event %d is not the one that was appended: its content no longer matches its hash", e.Seq)}
		case i > 0 && e.Seq == events[i-1].Seq+1 && outbox.NextChainHash(events[i-1].ChainHash, e.Seq, e.EventHash) != e.ChainHash:
			return stretch{events, i, fmt.Sprintf("event %d does not continue the chain of hashes of its campaign", e.Seq)}
		}
	}
	return stretch{events: events, unsound: len(events)}
}

// ahead keeps the events that come after those of the latest full wave.
// Events never change, so that what was read early is as good as what is read
// late; and it is inspected before use like any other. Skips come and go: the
// events say nothing of them, and serve only claims that know of none.
type ahead struct {
	mu        sync.Mutex
	stretches map[string]stretch
}

// take returns the events first to last of a campaign if all of them were
// read ahead.
func (a *ahead) take(c store.Claim) (stretch, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.stretches[c.CampaignID]
	n := int(c.Last - c.First + 1)
	if !ok || n > len(s.events) || s.events[0].Seq != c.First || s.events[n-1].Seq != c.Last {
		return stretch{}, false
	}
	delete(a.stretches, c.CampaignID)
	return stretch{s.events[:n], min(s.unsound, n), s.reason}, true
}

func (a *ahead) put(stretches map[string]stretch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stretches = stretches
}

// load fills in the events of each part and returns the event types that are
// only journalled.
func (w *Worker) load(ctx context.Context, parts []*part) (auditOnly map[string]bool, err error) {
	var missing []*part
	var claims []store.Claim
	for _, p := range parts {
		if p.claim.Unskipped {
			var ok bool
			if p.stretch, ok = w.ahead.take(p.claim); ok {
				continue
			}
		}
		missing, claims = append(missing, p), append(claims, p.claim)
	}
	events, auditOnly, err := w.Store.Load(ctx, claims)
	if err != nil {
		return nil, err
	}
	for i, p := range missing {
		p.stretch = inspect(events[i])
	}
	return auditOnly, nil
}

// lookAhead reads, while a full wave is applied, the events that the next one
// will ask for. It does so only when the wave has all campaigns that are due:
// with more of them another loop has its own to overlap with. The returned
// function waits for the end of it.
func (w *Worker) lookAhead(ctx context.Context, claims []store.Claim) (wait func()) {
	if rowsOf(claims) < int64(w.BatchSize) || len(claims) >= store.WaveShares {
		return func() {}
	}
	next := make([]store.Claim, len(claims))
	for i, c := range claims {
		next[i] = store.Claim{CampaignID: c.CampaignID, First: c.Last + 1, Last: c.Last + (c.Last - c.First + 1), Unskipped: true}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		events, _, err := w.Store.Load(ctx, next)
		if err != nil {
			return // the wave that needs them will load them, or say why not
		}
		stretches := make(map[string]stretch, len(next))
		for i, c := range next {
			if len(events[i]) > 0 {
				stretches[c.CampaignID] = inspect(events[i])
			}
		}
		w.ahead.put(stretches)
	})
	return reading.Wait
}

func rowsOf(claims []store.Claim) int64 {
	rows := int64(0)
	for _, c := range claims {
		rows += c.Last - c.First + 1
	}
	return rows
}
