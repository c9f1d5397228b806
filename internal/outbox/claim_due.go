package outbox

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// WaveShares is the least number of parts that a wave is divided into when more campaigns are
// due: no campaign gets more than one part then. A full wave of fewer campaigns contains all
// that were due.
const WaveShares = 8

// waveCampaigns is the maximum number of campaigns in a wave.
const waveCampaigns = 256

var (
	selectDue = store.SelectWithSpans + `
where due_at <= $1
  and (due_at, campaign_id) > ($3, $4)
  and crashes < ` + suspectCrashes

	dueFirst = `
order by due_at, campaign_id
limit $2`
)

// suspectFrom is the number of processes that must have died with a campaign to make it a
// suspect.
const suspectFrom = 2

var suspectCrashes = strconv.Itoa(suspectFrom) // as SQL text

func suspected(c *store.CampaignRow) bool { return c.Crashes >= suspectFrom }

var selectDueSuspect = store.SelectCampaigns + `
where due_at <= $1
  and crashes >= ` + suspectCrashes

func dueSuspect(t *store.Tx, now int64, scope campaign.Scope, _ ClaimLimits) ([]*store.CampaignRow, error) {
	served, args := store.Serving(scope, now)
	return sqldb.All(t, store.ScanCampaign, selectDueSuspect+served+"\norder by due_at, campaign_id\nlimit 1"+t.SkipLocked, args...)
}

// SuspectDue reports whether a suspect of a scope may be claimed.
func (q *Queue) SuspectDue(ctx context.Context, scope campaign.Scope) (bool, error) {
	served, args := store.Serving(scope, q.Now())
	return store.Reading(ctx, q.Store, "look for suspects", func(t *store.Tx) (bool, error) {
		return t.One([]any{new(string)}, `select campaign_id from campaigns where due_at <= $1 and crashes >= `+suspectCrashes+served+` limit 1`, args...)
	})
}

// UntilDue is the time until the next campaign of a scope may be claimed, at least 0; false
// when waiting alone makes none claimable.
func (q *Queue) UntilDue(ctx context.Context, scope campaign.Scope) (time.Duration, bool, error) {
	served, args := store.Serving(scope)
	due, err := store.Reading(ctx, q.Store, "look for the next due campaign", func(t *store.Tx) (due sql.NullInt64, err error) {
		_, err = t.One([]any{&due}, `select min(due_at) from campaigns where due_at is not null`+served, args...)
		return due, err
	})
	return max(0, time.Duration(due.Int64-q.Now())*time.Microsecond), due.Valid, err
}

// leastShare is the number of rows of a wave that a campaign may always have, however many
// others are due.
func leastShare(rows int) int { return max(1, rows/WaveShares) }

// claimStep is how many due campaigns a claim reads first: a full wave, or fewer where reading
// locks them.
func claimStep(t *store.Tx) int {
	if t.Dialect().OneWriter {
		return waveCampaigns
	}
	return WaveShares
}

// passed is the part of the index on due_at that claims need not read each time: where it begins is full of
// entries of claims before, as long as an old transaction of others keeps PostgreSQL from removing them.
type passed struct {
	mu    sync.Mutex
	slow  int       // times in a row that reading all took long
	to    int64     // a due time
	until time.Time // when all is read again
}

// Once reading all took longer than slowDue slowTimes in a row, it is done again after dueRest times as long. In the
// meantime claims begin at the first due time found, less what clocks may differ by.
const (
	slowDue   = 20 * time.Millisecond
	slowTimes = 2
	dueRest   = 20
	dueMargin = 10 * time.Second
)

// from is the due time to begin at.
func (p *passed) from() (due int64, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to, !time.Now().Before(p.until)
}

// read notes how long reading all took, and the first campaign that was due.
func (p *passed) read(took time.Duration, due []*store.CampaignRow, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took < slowDue {
		p.slow = 0
	} else if p.slow++; p.slow >= slowTimes {
		if len(due) > 0 {
			now = due[0].Due.Int64
		}
		p.to, p.until = now-dueMargin.Microseconds(), time.Now().Add(dueRest*took)
	}
}

// dueCampaigns reads the campaigns that have been due the longest until their shares fill the wave.
func (q *Queue) dueCampaigns(t *store.Tx, now int64, scope campaign.Scope, limits ClaimLimits) ([]*store.CampaignRow, error) {
	if from, all := q.passed.from(); !all {
		if due, err := dueFrom(t, from, now, scope, limits); len(due) > 0 || err != nil {
			return due, err
		}
	}
	began := time.Now()
	due, err := dueFrom(t, math.MinInt64, now, scope, limits)
	if err == nil && !t.Dialect().OneWriter {
		q.passed.read(time.Since(began), due, now)
	}
	return due, err
}

// dueFrom reads campaigns that are due since a time or later. It reads (and so locks)
// few at first, and more while their shares are small.
func dueFrom(t *store.Tx, lastDue, now int64, scope campaign.Scope, limits ClaimLimits) (due []*store.CampaignRow, err error) {
	filled, lastID := int64(0), ""
	for step := claimStep(t); filled < int64(limits.Rows) && len(due) < waveCampaigns; step *= 2 {
		want, seen := min(step, waveCampaigns-len(due)), 0
		served, args := store.Serving(scope, now, want, lastDue, lastID)
		err := t.Each(func(row sqldb.Row) error {
			c := new(store.CampaignRow)
			if err := row.Scan(c.DestWithSpan()...); err != nil {
				return err
			}
			seen++
			lastDue, lastID = c.Due.Int64, c.ID
			if limits.Except[c.ID] {
				return nil
			}
			due = append(due, c)
			if filled += min(c.Counts.Total(), int64(leastShare(limits.Rows))); filled >= int64(limits.Rows) {
				return sqldb.ErrEnough
			}
			return nil
		}, selectDue+served+dueFirst+t.SkipLocked, args...)
		if err != nil || seen < want {
			return due, err
		}
	}
	return due, nil
}

// readableDue is dueCampaigns for a table with unreadable rows. The ids can still be read, from
// an index; the first campaign whose row is unreadable is returned as a CampaignError.
func readableDue(t *store.Tx, now int64, scope campaign.Scope, limits ClaimLimits) (due []*store.CampaignRow, err error) {
	served, args := store.Serving(scope, now, waveCampaigns+len(limits.Except))
	ids, err := sqldb.All(t, sqldb.Column[string], `select campaign_id from campaigns where due_at <= $1`+served+dueFirst, args...)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if limits.Except[id] {
			continue
		}
		c, found, err := t.Campaign(id)
		if err != nil {
			return nil, &CampaignError{id, err}
		}
		if found && !suspected(c) {
			due = append(due, c)
		}
	}
	return due, nil
}
