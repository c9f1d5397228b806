package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// refusalsInFull is how many refusals of one action, per identity and minute, get a record
// each. Further refusals are counted in one summary record, so that repeated requests cannot
// fill the audit log.
const refusalsInFull = 10

// refusalCounts counts the refusals of the current minute. It is safe for concurrent use; the
// zero value is ready. A killed process loses the counts that have no record yet.
type refusalCounts struct {
	mu     sync.Mutex
	of     map[refusalKind]*refusalCount
	timer  *time.Timer // fires when the counts must be written
	write  func()
	closed bool
}

// refusalKind is the key that refusals are counted by.
type refusalKind struct {
	auth   operator.Auth
	name   string
	action operator.Action
	minute int64
}

// compare orders summary records: by minute, action and identity.
func (k refusalKind) compare(other refusalKind) int {
	return cmp.Or(cmp.Compare(k.minute, other.minute), cmp.Compare(k.action, other.action),
		cmp.Compare(k.auth, other.auth), cmp.Compare(k.name, other.name))
}

type refusalCount struct {
	record atomic.Int64 // the last full record
	full   int          // refusals with a record, written or under way
	more   int64        // refusals without one
	last   *Change
	why    string // reason of the last one
}

// summedRefusals is the content of a summary record.
type summedRefusals struct {
	Refused int64 `json:"refused"`
}

// count counts a refusal. counted is true when it gets no record of its own.
func (c *refusalCounts) count(a *Change, refusal string, now int64) (like *refusalCount, counted bool) {
	kind := refusalKind{a.Command.By.Auth, a.Command.By.Name, a.Action, now / time.Minute.Microseconds()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[refusalKind]*refusalCount)
	}
	like = c.of[kind]
	if like == nil {
		like = new(refusalCount)
		c.of[kind] = like
		c.schedule()
	}
	if like.full < refusalsInFull {
		like.full++
		return like, false
	}
	like.more++
	like.last, like.why = a, refusal
	return like, true
}

// schedule starts the timer that writes the counts after a minute, unless it is running.
func (c *refusalCounts) schedule() {
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(time.Minute, c.write)
	}
}

// drain removes and returns the counts of the minutes that are over.
func (c *refusalCounts) drain(now int64) map[refusalKind]*refusalCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	over := make(map[refusalKind]*refusalCount)
	for kind, count := range c.of {
		if kind.minute < now/time.Minute.Microseconds() {
			over[kind] = count
			delete(c.of, kind)
		}
	}
	if len(c.of) > 0 {
		c.schedule()
	}
	return over
}

// close stops the timer.
func (c *refusalCounts) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

// SumRefusals writes the summary records of the minutes that are over. It runs by itself within
// two minutes, and when the store is closed.
func (s *Store) SumRefusals(ctx context.Context) { s.sumRefusals(ctx, s.Now()) }

// sumRefusals writes the summary records of the minutes that are over until one cannot be
// written. That count and those after it are lost, as single records would have been.
func (s *Store) sumRefusals(ctx context.Context, now int64) {
	over := s.refusals.drain(now)
	for _, kind := range slices.SortedFunc(maps.Keys(over), refusalKind.compare) {
		count := over[kind]
		if count.more == 0 {
			continue
		}
		sum := &Change{Command: count.last.Command, Action: kind.action, After: summedRefusals{count.more}, summed: true}
		sum.Command.Reason, sum.Command.RequestID = "", ""
		from := sqldb.At(kind.minute * time.Minute.Microseconds())
		_, err := s.writeRefusal(ctx, sum, fmt.Sprintf("refused %s in the minute from %s UTC; the last: %s",
			event.Count(count.more, "more time", "more times"), from.Format("2006-01-02 15:04"), count.why))
		if err != nil {
			return
		}
	}
}
