package store

import (
	"cmp"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// clocks is what a process knows about the offsets of other processes' clocks from its own. It
// learns from heartbeats alone: a heartbeat was written before it was read, and one that the
// previous read did not see was written since. The zero value is ready for use.
type clocks struct {
	mu sync.Mutex
	of map[string]*clockBounds
}

// ClockTolerance is how far, in microseconds, the clocks of instances may differ without any
// correction.
const ClockTolerance = 1_000_000

// clockBounds bounds how far an instance's clock is ahead of this process's, in microseconds.
type clockBounds struct {
	seen        int64 // the instance's last heartbeat, by its own clock
	looked      int64 // when this process began its last read
	least, most int64
	signs       int   // heartbeats that least and most are from
	kept        int64 // what the heartbeats before them showed
}

// clocksTrusted is how many heartbeats must show that a clock is behind, since a single one may
// have been slow to write. After clocksKept heartbeats the bounds start over, since a clock may
// be corrected by less than the distance between them.
const (
	clocksTrusted = 3
	clocksKept    = 15
)

// correct learns from instances read between two moments, and sets how far their clocks are
// ahead where that exceeds the tolerance. It converts their last heartbeat to this process's
// clock.
func (k *clocks) correct(all []campaign.InstanceState, began, ended int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = make(map[string]*clockBounds)
	}
	here := make(map[string]bool, len(all))
	for n := range all {
		i := &all[n]
		if i.LastSeen.IsZero() {
			continue
		}
		here[i.ID] = true
		ahead := k.observe(i.ID, i.LastSeen.UnixMicro(), began, ended).ahead()
		i.ClockAhead = time.Duration(ahead) * time.Microsecond
		i.LastSeen = i.LastSeen.Add(-i.ClockAhead)
	}
	for id, b := range k.of {
		if !here[id] && began-b.looked > time.Hour.Microseconds() {
			delete(k.of, id)
		}
	}
}

func (k *clocks) observe(id string, seen, began, ended int64) *clockBounds {
	b := k.of[id]
	switch {
	case b == nil:
		b = &clockBounds{seen: seen, least: seen - ended, most: sqldb.FarFuture}
		k.of[id] = b
	case seen != b.seen:
		least, most := seen-ended, seen-b.looked
		switch {
		case least > b.most || most < b.least: // the clock was adjusted
			*b = clockBounds{least: least, most: most}
		case b.signs >= clocksKept:
			*b = clockBounds{least: least, most: most, kept: b.bounded()}
		}
		b.seen, b.least, b.most, b.signs = seen, max(b.least, least), min(b.most, most), b.signs+1
	}
	b.looked = began
	return b
}

// ahead is 0 for a clock that may be right.
func (b *clockBounds) ahead() int64 { return cmp.Or(b.bounded(), b.kept) }

func (b *clockBounds) bounded() int64 {
	switch {
	case b.least > ClockTolerance:
		return b.least
	case b.most < -ClockTolerance && b.signs >= clocksTrusted:
		return b.most
	}
	return 0
}
