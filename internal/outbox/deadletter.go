package outbox

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
)

const deadLetterRow = `
update projection_apply_outbox
set status = 'dead', next_attempt_at = $3, updated_at = $3
where campaign_id = $1
  and seq = $2
  and status in ('failed', 'pending')`

// DeadLetterRow marks a failed head that waits for its retry dead, so that it is not tried
// until it is requeued. Its attempts are kept. A row that a worker holds, that has not failed
// or that is not a head is event.ErrConflict.
func (q *Queue) DeadLetterRow(ctx context.Context, o operator.Command, campaignID string, seq int64) (campaign.Row, error) {
	a := &store.Change{Command: o, Action: operator.ActionDeadLetter, CampaignID: campaignID, Seq: seq}
	return q.changeRow(ctx, a, func(t *store.Tx, c *store.CampaignRow, row campaign.Row, now int64) error {
		if why := row.WhyNotDeadLettered(); why != "" {
			return event.Conflict("campaign %q seq %d %s%s", campaignID, seq, why, t.LastAction(campaignID, seq, now))
		}
		if err := q.Require(o, 0); err != nil {
			return err
		}
		n, err := t.Exec(deadLetterRow, campaignID, seq, now)
		if err != nil {
			return fmt.Errorf("dead-letter campaign %q seq %d: %w", campaignID, seq, err)
		}
		*c.Count(string(row.Status)) -= n
		c.Counts.Dead += n
		return t.SaveFromHead(c, now)
	})
}
