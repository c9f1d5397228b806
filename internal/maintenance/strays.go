package maintenance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// stray is a campaign without a row in campaigns, and the data that exists of it.
type stray struct {
	id                    string
	events, rows, applied bool
}

const (
	selectCampaignIDs = `
select campaign_id
from campaigns
where campaign_id > $1
order by campaign_id
limit $2`

	selectAppliedIDs = `
select campaign_id
from projection_watermarks
where campaign_id > $1
  and campaign_id <= $2
  and applied_seq > 0`

	selectIDsOf = `
with recursive ids (id) as (
  select min(campaign_id) from {table} where campaign_id > $1 and campaign_id <= $2
  union all
  select (select min(e.campaign_id) from {table} e where e.campaign_id > ids.id and e.campaign_id <= $2) from ids where ids.id is not null
)
select id from ids where id is not null`
)

var (
	selectIDsOfEvents = strings.ReplaceAll(selectIDsOf, "{table}", "events")
	selectIDsOfRows   = strings.ReplaceAll(selectIDsOf, "{table}", "projection_apply_outbox")
)

// eachStray walks the strays by id, page by page. The projections are read first: their events
// are in the journal already.
func (m *Maintenance) eachStray(ctx context.Context, visit func([]stray) error) error {
	for after, last := "", ""; last != sqldb.BeyondTexts; after = last {
		known, err := sqldb.Reading(ctx, m.core.Journal(), "", func(t *store.Tx) ([]string, error) {
			return sqldb.All(t, sqldb.Column[string], selectCampaignIDs, after, campaignPage)
		})
		if err != nil {
			return err
		}
		if last = sqldb.BeyondTexts; len(known) == campaignPage {
			last = known[len(known)-1]
		}
		found := make(map[string]stray)
		note := func(t sqldb.Reader, query string, what func(*stray)) error {
			return t.Each(func(row sqldb.Row) error {
				id, err := sqldb.Column[string](row)
				one := found[id]
				one.id = id
				what(&one)
				found[id] = one
				return err
			}, query, after, last)
		}
		err = m.core.ReadModel().Read(ctx, func(t *sqldb.Tx) error {
			return note(t, selectAppliedIDs, func(s *stray) { s.applied = true })
		})
		if err == nil {
			err = m.core.Journal().Read(ctx, func(t *store.Tx) error {
				if err := note(t, selectIDsOfEvents, func(s *stray) { s.events = true }); err != nil {
					return err
				}
				if err := note(t, selectIDsOfRows, func(s *stray) { s.rows = true }); err != nil {
					return err
				}
				return dropKnown(t, found, known)
			})
		}
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		if err := visit(slices.SortedFunc(maps.Values(found), func(a, b stray) int { return strings.Compare(a.id, b.id) })); err != nil {
			return err
		}
	}
	return nil
}

// dropKnown removes from found the campaigns that have a row in campaigns, even one created
// since the known ones were read.
func dropKnown(t *store.Tx, found map[string]stray, known []string) error {
	maps.DeleteFunc(found, func(id string, _ stray) bool { return slices.Contains(known, id) })
	if len(found) == 0 {
		return nil
	}
	rows, err := t.Campaigns(slices.Collect(maps.Keys(found)))
	maps.DeleteFunc(found, func(id string, _ stray) bool { return rows[id] != nil })
	return err
}

// adoptStrays inserts the missing rows of campaigns: those with events in the journal, and,
// marked as diverged, those that only the projections have.
func (m *Maintenance) adoptStrays(ctx context.Context, total *campaign.Repaired, note func(id string)) error {
	return m.eachStray(ctx, func(strays []stray) error {
		strays = slices.DeleteFunc(strays, func(x stray) bool { return !x.events && !x.applied })
		for page := range slices.Chunk(strays, campaignPage) {
			var repaired campaign.Repaired
			err := m.core.Journal().Write(ctx, func(t *store.Tx) error {
				repaired = campaign.Repaired{}
				for _, x := range page {
					r, err := m.adopt(t, x.id, m.core.Now())
					if err != nil {
						return fmt.Errorf("campaign %q: %w", x.id, err)
					}
					repaired.Add(r)
				}
				return nil
			})
			if err != nil {
				return err
			}
			total.Add(repaired)
			for _, x := range page {
				note(x.id)
			}
		}
		return nil
	})
}

const (
	insertStray = `
insert into campaigns (campaign_id, created_at, updated_at)
values ($1, coalesce((select min(recorded_at) from events where campaign_id = $1), $2), $2)
on conflict (campaign_id) do nothing`

	selectLastEpoch = `
select coalesce(max(claim_epoch), 0)
from projection_apply_outbox
where campaign_id = $1`
)

// adopt creates the row of a campaign from its events, its rows and its watermark. An existing
// row is left unchanged.
func (m *Maintenance) adopt(t *store.Tx, id string, now int64) (r campaign.Repaired, err error) {
	made, err := t.Exec(insertStray, id, now)
	if err != nil || made == 0 {
		return r, err
	}
	c, err := t.ExistingCampaign(id)
	if err != nil {
		return r, err
	}
	if _, err := t.One([]any{&c.HighWater, &c.ChainHash}, store.SelectLastEvent, id); err != nil {
		return r, err
	}
	if _, err := t.One([]any{&c.LeaseEpoch}, selectLastEpoch, id); err != nil {
		return r, err
	}
	if err := t.Recount(c); err != nil {
		return r, err
	}
	if r, err = m.queue.RepairCampaign(t, c, now); err != nil {
		return r, err
	}
	r.Campaigns = 1
	c.Schedule(now)
	return r, t.Save(c, now)
}
