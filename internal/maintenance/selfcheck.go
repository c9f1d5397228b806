package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// recountLimit is the maximum number of rows of a campaign that the self-check recounts;
// counting more would hold a snapshot for too long.
const recountLimit = 50_000

// Round is the progress of a self-check. The zero value begins a round.
type Round struct {
	Campaign string // compared last; empty at the end of a round
	oldest   int64  // the append time of the next event of the last lagging campaign checked
	lagging  string // its id; empty at the end
	rested   time.Time
}

// laggingChecked is how many lagging campaigns a step of the self-check covers. After that it
// pauses checking them for laggingRest times as long as it took: without an index it takes 40
// ms with 100,000 campaigns.
const (
	laggingChecked = 2000
	laggingRest    = 100
)

// SelfCheck is Reconcile for the next few campaigns of a round, except that it does not count
// very many rows. It also repairs those of the next lagging campaigns whose own row shows that
// they would wait too long or forever. It returns where to continue and what was wrong. Drifted
// campaigns add to the drift that Summary reports.
func (m *Maintenance) SelfCheck(ctx context.Context, at Round, campaigns int) (next Round, found []outbox.Found, err error) {
	next = at
	next.Campaign, err = m.page(ctx, at.Campaign, campaigns, func(after string, limit int) (string, error) {
		last, more, err := m.reconcileTogether(ctx, after, limit, tallySmall)
		found = append(found, more...)
		return last, err
	})
	if err == nil || errors.Is(err, event.ErrDamaged) {
		more, laggingErr := m.checkLagging(ctx, &next)
		found, err = append(found, more...), cmp.Or(laggingErr, m.queue.ShortenWaits(ctx), err)
	}
	for _, f := range found {
		if f.Drifted {
			m.core.CountDrift()
		}
	}
	if err != nil && !errors.Is(err, event.ErrDamaged) {
		next = Round{}
	}
	if err != nil {
		err = fmt.Errorf("check campaigns: %w", err)
	}
	return next, found, err
}

func (m *Maintenance) checkLagging(ctx context.Context, at *Round) ([]outbox.Found, error) {
	began := time.Now()
	if began.Before(at.rested) {
		return nil, nil
	}
	if at.lagging == "" {
		at.oldest = sqldb.FarPast
	}
	var amiss []*store.CampaignRow
	seen := 0
	err := m.core.Journal().Read(ctx, func(t *store.Tx) error {
		return t.Each(func(rows sqldb.Row) error {
			c, _, err := store.ScanFound(rows)
			if err != nil {
				return err
			}
			at.oldest, at.lagging, seen = c.Oldest.Int64, c.ID, seen+1
			if m.amiss(c) {
				amiss = append(amiss, c)
			}
			return nil
		}, store.CampaignsByAge.Up, at.oldest, at.lagging, "", laggingChecked)
	})
	if err != nil {
		return nil, err
	}
	if seen < laggingChecked {
		at.lagging = ""
	}
	at.rested = time.Now().Add(laggingRest * time.Since(began))
	return m.repairEach(ctx, amiss)
}
