package store

import (
	"context"
	"fmt"
	"strconv"

	"outboxweb/internal/outbox"
)

// Campaign reads one campaign, its applied seq from the watermark itself. An
// unknown one is outbox.ErrNotFound.
func (s *Store) Campaign(ctx context.Context, id string) (outbox.Campaign, error) {
	var c *campaignRow
	err := s.journal.read(ctx, func(t *tx) (err error) {
		c, err = t.existingCampaign(id)
		return err
	})
	if err != nil {
		return outbox.Campaign{}, err
	}
	applied, err := s.AppliedSeq(ctx, id)
	if err != nil {
		return outbox.Campaign{}, err
	}
	view := c.view()
	view.AppliedSeq = max(view.AppliedSeq, applied)
	return view, nil
}

// Campaigns pages through campaigns. A page with a state filter looks through
// a bounded number of them and may end early, with Partial set.
func (s *Store) Campaigns(ctx context.Context, f outbox.CampaignFilter) (outbox.Page[outbox.Campaign], error) {
	limit := pageLimit(f.Limit, 200)
	page := outbox.Page[outbox.Campaign]{Items: []outbox.Campaign{}}
	list, ok := campaignLists[f.Sort]
	if !ok {
		list = campaignLists[outbox.SortID]
	}
	number, text, err := list.start(f.Cursor)
	if err != nil {
		return page, err
	}
	err = s.journal.read(ctx, func(t *tx) error {
		looked := 0
		return t.each(func(rows scanner) error {
			var c campaignRow
			var key int64
			if err := rows.Scan(append(c.dest(), &key)...); err != nil {
				return err
			}
			looked++
			view := c.view()
			wanted := f.State == "" || view.State() == f.State
			if wanted && len(page.Items) == limit {
				last := page.Items[limit-1]
				page.NextCursor = cursorOf(list.key(last), last.CampaignID)
				return errEnough
			}
			if wanted {
				page.Items = append(page.Items, view)
			}
			if f.State != "" && looked == campaignWindow {
				page.NextCursor, page.Partial = cursorOf(key, c.id), true
			}
			return nil
		}, list.query, number, text, f.Q, list.window(f, limit))
	})
	if err != nil {
		return page, fmt.Errorf("list campaigns: %w", err)
	}
	return page, nil
}

// campaignWindow is how many campaigns a page with a state filter looks at.
const campaignWindow = 5000

// campaignList is one order of campaigns: a query from a key of a number and
// the campaign id on.
type campaignList struct {
	query string
	first int64
	key   func(outbox.Campaign) int64
}

func (l campaignList) window(f outbox.CampaignFilter, limit int) int {
	if f.State != "" {
		return campaignWindow
	}
	return limit + 1
}

func (l campaignList) start(cursor string) (int64, string, error) {
	if cursor == "" {
		return l.first, "", nil
	}
	parts, err := cursorParts(cursor)
	if err != nil || len(parts) != 2 {
		return 0, "", invalidCursor()
	}
	number, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || l.first == 0 && number != 0 { // by id there is no number
		return 0, "", invalidCursor()
	}
	return number, parts[1], nil
}

const farFuture = 1 << 62

// The keys of the orders. Each has an index over exactly this expression.
const (
	lagKey = `applied_seq - high_water_seq`
	ageKey = `coalesce(oldest_enqueued_at, 4611686018427387904)`
)

// byKey is the query of an order by a key. The keys are sorted first and the
// rows fetched after, so that the sort carries two columns and not all of them.
func byKey(key string) string {
	return `
select ` + campaignColumns + `, sort_key
from (
  select campaign_id as id, ` + key + ` as sort_key
  from campaigns
  where ` + key + ` >= $1
    and (` + key + `, campaign_id) > ($1, $2)
    and ` + idHasPart + `
  order by ` + key + `, campaign_id
  limit $4
) as page
join campaigns on campaign_id = id
order by sort_key, id`
}

// idHasPart looks for a part of an id by taking it out and seeing whether
// anything changed, which both databases know and which needs no escaping.
const idHasPart = `($3 = '' or replace(campaign_id, $3, '') <> campaign_id)`

var campaignLists = map[outbox.CampaignSort]campaignList{
	outbox.SortID: {
		query: `
select ` + campaignColumns + `, 0
from campaigns
where campaign_id > $2
  and cast($1 as bigint) = 0
  and ` + idHasPart + `
order by campaign_id
limit $4`,
		key: func(outbox.Campaign) int64 { return 0 },
	},
	outbox.SortLag: {
		query: byKey(lagKey),
		first: -farFuture,
		key:   func(c outbox.Campaign) int64 { return c.AppliedSeq - c.HighWaterSeq },
	},
	outbox.SortAge: {
		query: byKey(ageKey),
		first: -farFuture,
		key: func(c outbox.Campaign) int64 {
			if c.OldestEnqueuedAt.IsZero() {
				return farFuture
			}
			return c.OldestEnqueuedAt.UnixMicro()
		},
	},
}

// Blocked lists the campaigns that need somebody, worst first: diverged ones,
// then those whose head is dead or failing, by rows waiting times age.
func (s *Store) Blocked(ctx context.Context, limit int) ([]outbox.Blocked, error) {
	blocked := []outbox.Blocked{}
	err := s.journal.read(ctx, func(t *tx) error {
		err := t.each(func(rows scanner) error {
			var c campaignRow
			err := rows.Scan(c.dest()...)
			blocked = append(blocked, outbox.Blocked{Campaign: c.view()})
			return err
		}, `
select `+campaignColumns+`
from campaigns
where failed > 0 or dead > 0 or diverged <> ''
order by diverged = '', dead = 0, (pending + processing + failed + dead) * ($1 - coalesce(oldest_enqueued_at, $1)) desc, campaign_id
limit $2`, s.now(), pageLimit(limit, 200))
		if err != nil {
			return err
		}
		return t.headErrors(blocked)
	})
	if err != nil {
		return nil, fmt.Errorf("list blocked campaigns: %w", err)
	}
	return blocked, nil
}

// headErrors fills in what the heads failed with.
func (t *tx) headErrors(blocked []outbox.Blocked) error {
	var b batch
	for i := range blocked {
		c := &blocked[i]
		b.each(func(row scanner) error { return row.Scan(&c.Error, &c.Fingerprint) },
			`select last_error, fingerprint from projection_apply_outbox where campaign_id = $1 and seq = $2`, c.CampaignID, c.HeadSeq)
	}
	return t.runAll(&b)
}

// Paused lists campaigns that operators stopped, the last first.
func (s *Store) Paused(ctx context.Context, limit int) ([]outbox.Campaign, error) {
	paused := []outbox.Campaign{}
	err := s.journal.read(ctx, func(t *tx) error {
		return t.each(func(rows scanner) error {
			var c campaignRow
			err := rows.Scan(c.dest()...)
			paused = append(paused, c.view())
			return err
		}, `
select `+campaignColumns+`
from campaigns
where paused_at is not null
order by paused_at desc
limit $1`, pageLimit(limit, 200))
	})
	if err != nil {
		return nil, fmt.Errorf("list paused campaigns: %w", err)
	}
	return paused, nil
}
