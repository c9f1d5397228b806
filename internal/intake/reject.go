package intake

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// rejection is a row with the reason why it cannot be journalled.
type rejection struct {
	row
	reason string
}

// pending is a rejected row that is not discarded yet.
type pending struct {
	id            int64
	key, campaign string
	status        inbound.IntakeRejectionStatus
}

// maxRejections is how many rows of a source may be rejected at a time. Beyond that it is the source
// that is wrong, not its rows, and it stops.
const maxRejections = 10_000

const (
	selectPending = `
select id, row_key, campaign_id, status
from intake_rejections
where source = $1
  and status <> 'discarded'
order by id
limit $2`

	upsertRejection = `
insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (source, row_key) where status <> 'discarded' do update
set campaign_id = excluded.campaign_id, event_id = excluded.event_id, event_type = excluded.event_type,
  content = excluded.content, content_bytes = excluded.content_bytes, reason = excluded.reason, rejected_at = excluded.rejected_at,
  attempts = intake_rejections.attempts + 1, status = 'open'`

	deleteRejection = `
delete from intake_rejections
where source = $1
  and row_key = $2
  and status = 'retrying'`

	keepContent = `
update intake_rejections
set content = $3, content_bytes = $4
where source = $1
  and id = $2
  and status = 'discarding'`

	markDiscarded = `
update intake_rejections
set status = 'discarded'
where source = $1
  and id = $2
  and status = 'discarding'`
)

// pending reads the rejected rows of a source.
func (in *Intake) pending(ctx context.Context, source string) ([]pending, error) {
	return sqldb.Reading(ctx, in.core.Journal(), "read the rejected rows of source "+source, func(t *store.Tx) ([]pending, error) {
		return sqldb.All(t, func(row sqldb.Row) (p pending, err error) {
			err = row.Scan(&p.id, &p.key, &p.campaign, (*string)(&p.status))
			return p, err
		}, selectPending, source, maxRejections)
	})
}

// reject records rejections, if the process has the lease.
func (in *Intake) reject(ctx context.Context, l *lease, all []rejection) error {
	if len(all) == 0 {
		return nil
	}
	err := in.core.Journal().Write(ctx, func(t *store.Tx) error {
		now := in.core.Now()
		if err := l.held(t, 0, now); err != nil {
			return err
		}
		var b sqldb.Batch
		for i := range all {
			r := &all[i]
			content, bytes, err := r.content()
			if err != nil {
				return err
			}
			b.Exec(nil, upsertRejection, l.source, sqldb.Storable(r.key), sqldb.Storable(r.event.CampaignID), sqldb.Storable(r.event.EventID), sqldb.Storable(r.event.EventType),
				content, bytes, sqldb.Storable(r.reason), now)
		}
		return t.RunAll(&b)
	})
	if err != nil {
		return fmt.Errorf("record rejected rows of source %s: %w", l.source, err)
	}
	in.states.Forget()
	return nil
}
