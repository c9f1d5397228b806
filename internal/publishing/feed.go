package publishing

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// feed reads the journal by position for all subscriptions of a process. It caches recent reads in
// blocks of positions, so that subscriptions at about the same position share one read. It is safe
// for concurrent use.
type feed struct {
	read    func(ctx context.Context, after int64, limit int) ([]event.Event, error)
	onRead  func()
	lineage func() int64 // of the journal; see store.Store.Lineage
	source  string

	mu     sync.Mutex
	blocks map[int64]*block // by number
	uses   int64
	under  int64 // the lineage that the blocks are of
}

const (
	blockLength = 1000    // positions
	blockBytes  = 8 << 20 // a larger block drops its first events before the next read
	feedBlocks  = 16
	feedBytes   = 48 << 20 // of all blocks, approximately
	// muchRead is the minimum size of a read that the store cut off because of its size.
	muchRead = 4 << 20
)

// block holds blockLength positions, from number × blockLength + 1 on.
type block struct {
	number int64
	used   int64        // feed.uses at the last use; guarded by feed.mu
	bytes  atomic.Int64 // of the cached events
	begun  atomic.Int64 // reads

	mu      sync.Mutex // also held during a read
	events  []*destination.Event
	from    int64     // events up to here were dropped
	failed  bool      // the last read failed
	more    bool      // the last read was cut off, or reached the block's end
	settled int64     // everything up to here is read
	beyond  int64     // there are no events from the block's last position up to here
	read    time.Time // when it was last extended
}

// page is events that follow a position.
type page struct {
	events []*destination.Event
	end    int64     // no other events up to here
	more   bool      // more may be ready after it
	read   time.Time // when the last of them was read, or later
}

func newFeed(read func(context.Context, int64, int) ([]event.Event, error), onRead func()) *feed {
	return &feed{read: read, onRead: onRead, lineage: func() int64 { return 0 }, blocks: map[int64]*block{}}
}

// after returns events after a position: some of those in the journal at the time of the call, or
// none if there are none.
func (f *feed) after(ctx context.Context, position int64) (page, error) {
	b := f.block(position / blockLength)
	begun := b.begun.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return page{}, err
	}
	switch {
	case position < b.from:
		return f.apart(ctx, position)
	case b.settled > position:
		return b.page(position, true), nil
	case b.begun.Load() > begun && !b.failed: // another caller's read, begun after this call
		return b.page(position, b.more), nil
	}
	if err := f.extend(ctx, b); err != nil {
		return page{}, err
	}
	if b.more && b.settled < position {
		b.begin(position)
	}
	return b.page(position, b.more), nil
}

// block finds a block or adds an empty one, and evicts the least recently used.
func (f *feed) block(number int64) *block {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.uses++
	if under := f.lineage(); under != f.under {
		f.under, f.blocks = under, map[int64]*block{}
	}
	b := f.blocks[number]
	if b == nil {
		start := number * blockLength
		b = &block{number: number, from: start, settled: start}
		f.blocks[number] = b
	}
	b.used = f.uses
	for f.crowded() {
		oldest := b
		for _, other := range f.blocks {
			if other.used < oldest.used {
				oldest = other
			}
		}
		delete(f.blocks, oldest.number)
	}
	return b
}

func (f *feed) crowded() bool {
	bytes := int64(0)
	for _, b := range f.blocks {
		bytes += b.bytes.Load()
	}
	return len(f.blocks) > 1 && (len(f.blocks) > feedBlocks || bytes > feedBytes)
}

// extend reads events from the end of the block, and records whether there may be more. The caller
// holds b.mu.
func (f *feed) extend(ctx context.Context, b *block) error {
	b.begun.Add(1)
	b.trim()
	f.onRead()
	last := (b.number + 1) * blockLength
	events, err := f.read(ctx, b.settled, int(last-b.settled))
	b.failed, b.more, b.read = err != nil, true, time.Now()
	if b.failed {
		return err
	}
	read := 0
	for _, e := range events {
		if e.Position > last {
			b.settled, b.beyond = last, e.Position-1
			return nil
		}
		b.add(destination.NewEvent(e, f.source))
		read += eventBytes(&e)
	}
	b.more = b.settled == last || read >= muchRead
	return nil
}

// begin drops a block's events up to a position, since the events before it are too large to read
// on the way there.
func (b *block) begin(position int64) {
	b.events, b.from, b.settled = nil, position, position
	b.bytes.Store(0)
}

// add appends the next event.
func (b *block) add(e *destination.Event) {
	b.events = append(b.events, e)
	b.settled = e.Position
	b.bytes.Add(int64(eventBytes(&e.Event)))
}

// trim drops the first events of a block that has grown too large. Those of the last read stay
// until the next one, since its caller has not seen them yet.
func (b *block) trim() {
	size, forgotten := b.bytes.Load(), 0
	for size > blockBytes {
		size -= int64(eventBytes(&b.events[forgotten].Event))
		b.from = b.events[forgotten].Position
		forgotten++
	}
	if forgotten > 0 {
		b.events = slices.Clone(b.events[forgotten:]) // returned pages reference the old ones
		b.bytes.Store(size)
	}
}

func eventBytes(e *event.Event) int {
	const envelope = 500
	return envelope + len(e.Payload) + len(e.Metadata) + len(e.Tags)
}

// page returns the block's events after a position. The caller holds b.mu.
func (b *block) page(position int64, more bool) page {
	i, _ := slices.BinarySearchFunc(b.events, position+1, func(e *destination.Event, p int64) int { return int(e.Position - p) })
	return page{events: b.events[i:len(b.events):len(b.events)], end: max(position, b.settled, b.beyond), more: more, read: b.read}
}

// apart reads a few events for a single subscription.
func (f *feed) apart(ctx context.Context, position int64) (page, error) {
	f.onRead()
	events, err := f.read(ctx, position, destination.DefaultBatchSize)
	p := page{end: position, more: len(events) > 0, read: time.Now()}
	for _, e := range events {
		p.events, p.end = append(p.events, destination.NewEvent(e, f.source)), e.Position
	}
	return p, err
}
