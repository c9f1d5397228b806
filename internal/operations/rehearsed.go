package operations

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const selectTriedHeads = `
select campaign_id, rehearsed
from run_results
where run_id = $1
  and outcome = 'passes'`

// triedHeads reads the events that blocked campaigns when a rehearsal was started, and that would pass.
func (t *tx) triedHeads(rehearsal int64) ([]outbox.RowKey, error) {
	var heads []outbox.RowKey
	err := t.Each(func(row sqldb.Row) error {
		var campaign, text string
		var at outbox.Rehearsed
		if err := row.Scan(&campaign, &text); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(text), &at)
		if at.Quarantined == "" {
			heads = append(heads, outbox.RowKey{CampaignID: campaign, Seq: at.Head})
		}
		return err
	}, selectTriedHeads, rehearsal)
	if err != nil {
		return nil, fmt.Errorf("read what rehearsal %d tried: %w", rehearsal, err)
	}
	return heads, nil
}

// TriedHeads lists the events that blocked campaigns when a rehearsal was started, and that would pass.
func (ops *Operations) TriedHeads(ctx context.Context, rehearsal int64) (heads []outbox.RowKey, err error) {
	err = ops.read(ctx, func(t *tx) (err error) {
		heads, err = t.triedHeads(rehearsal)
		return err
	})
	return heads, err
}

const countOperationRow = `
select count(*)
from operation_rows
where operation_id = $1
  and campaign_id = $2
  and seq = $3`

// countRehearsed counts the rows of an operation that its rehearsal tried and found passing.
func (t *tx) countRehearsed(d *outbox.OperationDetail) error {
	if d.Rehearsal == 0 {
		return nil
	}
	heads, err := t.triedHeads(d.Rehearsal)
	if err != nil {
		return err
	}
	var b sqldb.Batch
	for _, k := range heads {
		b.Each(func(row sqldb.Row) error {
			n, err := sqldb.Column[int64](row)
			d.Rehearsed += n
			return err
		}, countOperationRow, d.ID, k.CampaignID, k.Seq)
	}
	return t.RunAll(&b)
}
