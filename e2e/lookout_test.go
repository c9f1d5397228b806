package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// lookout reads the databases again and again, directly, as the readers of read models do. A campaign
// whose history has a gap or fewer rows than before, and a publisher that goes back, are errors.
type lookout struct {
	stop    context.CancelFunc
	looking sync.WaitGroup

	looks int
	wrong []string
}

func startLookout(t *testing.T, d databases) *lookout {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &lookout{stop: stop}
	histories, publishers := map[string]int64{}, map[string]int64{}
	projections, journal := openReader(t, d.projections()), openReader(t, d.journal())
	w.looking.Go(func() {
		for ctx.Err() == nil && len(w.wrong) < 10 {
			w.look(ctx, projections, histories, "select campaign_id, count(*), max(seq) from history group by campaign_id")
			w.look(ctx, journal, publishers, "select publisher, position, position from publisher_progress")
			pause(ctx, 25*time.Millisecond) // it would see the same state
		}
	})
	t.Cleanup(func() {
		stop()
		w.looking.Wait()
	})
	return w
}

// look compares how far everything is with what was seen before. A database that is away shows nothing.
func (w *lookout) look(ctx context.Context, db *sql.DB, seen map[string]int64, query string) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return
	}
	defer rows.Close()
	now := map[string]int64{}
	for rows.Next() {
		var name string
		var n, last int64
		if err := rows.Scan(&name, &n, &last); err != nil {
			return
		}
		if n != last {
			w.wrong = append(w.wrong, fmt.Sprintf("%s had %d rows up to event %d", name, n, last))
		}
		now[name] = n
	}
	if rows.Err() != nil { // what was not read is not missing
		return
	}
	for name, before := range seen {
		if now[name] < before {
			w.wrong = append(w.wrong, fmt.Sprintf("%s was at %d, and is at %d", name, before, now[name]))
		}
	}
	maps.Copy(seen, now)
	w.looks++
}

func (w *lookout) finish(t *testing.T) {
	t.Helper()
	w.stop()
	w.looking.Wait()
	must.Hold(t, w.looks >= 10, "the databases were read %d times, too few to tell", w.looks)
	for _, wrong := range w.wrong {
		t.Error(wrong)
	}
}
