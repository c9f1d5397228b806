package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

const selectTriedHeads = `
select campaign_id, outcome, rehearsed
from run_results
where run_id = $1
  and outcome in ('replayed', 'failed')
order by campaign_id`

// triedHead is an event that blocked its campaign when a rehearsal was started.
type triedHead struct {
	event.RowKey
	passes  bool  // it would be applied with what waits behind it
	retries int64 // since
}

const countRetries = `
select count(*)
from attempts a
where a.campaign_id = $1
  and a.seq = $2
  and a.at < $3
  and a.at > (select requested_at from runs where id = $4)`

// triedHeads reads the events that a rehearsal tried and that nobody retried between its start and a time
// (microseconds); 0 is none.
func (t *tx) triedHeads(rehearsal, until int64) ([]triedHead, error) {
	if rehearsal == 0 {
		return nil, nil
	}
	var heads []triedHead
	err := t.Each(func(row sqldb.Row) error {
		var campaign, outcome, text string
		var at replay.Rehearsed
		if err := row.Scan(&campaign, &outcome, &text); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(text), &at)
		if at.Head > 0 && at.Quarantined == "" {
			heads = append(heads, triedHead{event.RowKey{CampaignID: campaign, Seq: at.Head}, outcome == replay.OutcomeReplayed, 0})
		}
		return err
	}, selectTriedHeads, rehearsal)
	var b sqldb.Batch
	for i, h := range heads {
		b.Each(func(row sqldb.Row) error { return row.Scan(&heads[i].retries) }, countRetries, h.CampaignID, h.Seq, until, rehearsal)
	}
	if err == nil {
		err = t.RunAll(&b)
	}
	if err != nil {
		return nil, fmt.Errorf("read what rehearsal %d tried: %w", rehearsal, err)
	}
	return slices.DeleteFunc(heads, func(h triedHead) bool { return h.retries > 0 }), nil
}

// PassedHeads lists the events that blocked campaigns when a rehearsal was started, would pass, and were not
// retried since.
func (ops *Operations) PassedHeads(ctx context.Context, rehearsal int64) (passed []event.RowKey, err error) {
	err = ops.read(ctx, func(t *tx) error {
		heads, err := t.triedHeads(rehearsal, sqldb.FarFuture)
		for _, h := range heads {
			if h.passes {
				passed = append(passed, h.RowKey)
			}
		}
		return err
	})
	return passed, err
}

// restOn drops from the rows of an operation those that its rehearsal found failing, and counts both
// them and those that it found passing.
func (t *tx) restOn(rehearsal int64, chosen []candidate) (left []candidate, passing, failing int64, err error) {
	heads, err := t.triedHeads(rehearsal, sqldb.FarFuture)
	passes := make(map[event.RowKey]bool, len(heads))
	for _, h := range heads {
		passes[h.RowKey] = h.passes
	}
	for _, c := range chosen {
		switch passed, tried := passes[c.RowKey]; {
		case passed:
			passing++
		case tried:
			failing++
			continue
		}
		left = append(left, c)
	}
	return left, passing, failing, err
}

const countOperationRow = `
select count(*)
from operation_rows
where operation_id = $1
  and campaign_id = $2
  and seq = $3`

// countRehearsed counts the rows of an operation that its rehearsal tried and found passing.
func (t *tx) countRehearsed(d *OperationDetail) error {
	heads, err := t.triedHeads(d.Rehearsal, d.StartedAt.UnixMicro())
	if err != nil {
		return err
	}
	var b sqldb.Batch
	for _, h := range heads {
		if h.passes {
			b.Each(func(row sqldb.Row) error {
				n, err := sqldb.Column[int64](row)
				d.Rehearsed += n
				return err
			}, countOperationRow, d.ID, h.CampaignID, h.Seq)
		}
	}
	return t.RunAll(&b)
}
