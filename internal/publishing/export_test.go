package publishing

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/event"
)

// BeforeReads calls happen before each read of the journal, which fails with its error. It must be
// called before Run.
func (r *Relay) BeforeReads(happen func() error) {
	read := r.feed.read
	r.feed.read = func(ctx context.Context, after int64, limit int) ([]event.Event, error) {
		if err := happen(); err != nil {
			return nil, err
		}
		return read(ctx, after, limit)
	}
}

// Feed reads the journal for several subscriptions.
type Feed struct{ *feed }

// NewFeed makes a Feed that reads with read.
func NewFeed(read func(ctx context.Context, after int64, limit int) ([]event.Event, error)) Feed {
	return Feed{newFeed(read, func() {})}
}

// After reads events after a position, as a subscription does: their positions, up to where there
// are no others, and whether there may be more.
func (f Feed) After(ctx context.Context, position int64) (positions []int64, end int64, more bool, err error) {
	p, err := f.after(ctx, position)
	for _, e := range p.events {
		positions = append(positions, e.Position)
	}
	return positions, p.end, p.more, err
}

// Kept is how many bytes of events the feed caches.
func (f Feed) Kept() (bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.blocks {
		bytes += b.bytes.Load()
	}
	return bytes
}

// LookAtATenth makes a process count a tenth of what it would otherwise.
func (pr *Progress) LookAtATenth() {
	k := &pr.looks
	k.window, k.together, k.least, k.seek = k.window/10, k.together/10, k.least/10, k.seek/10
}

// Die makes the process leave everything as it is, like a killed one: no subscription is released.
// Its Run must be ended by its context.
func (r *Relay) Die() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.held {
		d.lost(event.ErrLeaseLost)
	}
}
