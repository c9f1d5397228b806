package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const operationColumns = `id, kind, status, canary, filter, started_by, via, reason, request_id, started_at, updated_at, finished_at,
  heads, released, refused, chosen, waiting, requeued, done, skipped, failed_again, left_alone, unwatched,
  stop_reason, cancelled_by, acknowledged_by, acknowledged_at, rehearsal`

func scanOperation(row sqldb.Row) (Operation, error) {
	var o Operation
	var filter string
	n := &o.Totals
	err := row.Scan(&o.ID, &o.Kind, (*string)(&o.Status), sqldb.ScanTruth(&o.Canary), &filter, &o.StartedBy, &o.Via, &o.Reason, &o.RequestID,
		sqldb.ScanTime(&o.StartedAt), sqldb.ScanTime(&o.UpdatedAt), sqldb.ScanTimeOrNil(&o.FinishedAt), &o.Heads, &o.Released, &o.Refused, &n.Chosen, &n.Waiting, &n.Requeued, &n.Done, &n.Skipped, &n.FailedAgain, &n.Left, &n.Unwatched,
		&o.StopReason, &o.CancelledBy, &o.AcknowledgedBy, sqldb.ScanTimeOrNil(&o.AcknowledgedAt), &o.Rehearsal)
	n.Quarantined = n.Chosen - n.Waiting - n.Requeued - n.Done - n.Skipped - n.FailedAgain - n.Left - n.Unwatched // has no column
	if err == nil && filter != "" {
		err = json.Unmarshal([]byte(filter), &o.Filter)
	}
	return o, err
}

const selectOperation = `
select ` + operationColumns + `
from operations
where id = $1`

// operation reads an operation and locks it for a change in this transaction.
func (t *tx) operation(id int64, lock string) (op Operation, found bool, err error) {
	op, found, err = sqldb.First(t, scanOperation, selectOperation+lock, id)
	return op, found, sqldb.Wrapf(err, "read operation %d", id)
}

// existingOperation is operation, except that a missing one is a refusal.
func (t *tx) existingOperation(id int64) (Operation, error) {
	op, found, err := t.operation(id, t.ForUpdate)
	if err == nil && !found {
		err = event.NotFound("there is no operation %d", id)
	}
	return op, err
}

const updateOperation = `
update operations
set status = $2, updated_at = $3, finished_at = $4,
  waiting = $5, requeued = $6, done = $7, skipped = $8, failed_again = $9, left_alone = $10, unwatched = $11,
  stop_reason = $12, cancelled_by = $13, acknowledged_by = $14, acknowledged_at = $15
where id = $1`

func (t *tx) saveOperation(op *Operation, now int64) error {
	op.UpdatedAt = sqldb.At(now)
	n := op.Totals
	_, err := t.Exec(updateOperation, op.ID, string(op.Status), now, sqldb.MicrosIfAny(op.FinishedAt),
		n.Waiting, n.Requeued, n.Done, n.Skipped, n.FailedAgain, n.Left, n.Unwatched,
		op.StopReason, op.CancelledBy, op.AcknowledgedBy, sqldb.MicrosIfAny(op.AcknowledgedAt))
	return sqldb.Wrapf(err, "update operation %d", op.ID)
}

func endOperation(op *Operation, status OperationStatus, reason string, now int64) {
	op.Status, op.StopReason, op.FinishedAt = status, reason, new(sqldb.At(now))
}

const countOperationRows = `
select status, count(*)
from operation_rows
where operation_id = $1
group by status`

// countOperation sets the totals from the rows.
func (t *tx) countOperation(op *Operation) error {
	op.Totals = OperationTotals{Chosen: op.Totals.Chosen}
	err := t.Each(func(row sqldb.Row) error {
		var status string
		var n int64
		err := row.Scan(&status, &n)
		if field := op.Totals.Field(RowResult(status)); field != nil {
			*field = n
		}
		return err
	}, countOperationRows, op.ID)
	return sqldb.Wrapf(err, "count the rows of operation %d", op.ID)
}

var operationsBy = sqldb.FilterOf(map[string]sqldb.Condition[OperationFilter, Operation]{
	"acknowledged": {SQL: "(acknowledged_at is not null) = (? = 1)"},
})

var operationsAll = sqldb.BothWays(`
select ` + operationColumns + `
from operations
where id {>} $1
  and ` + operationsBy.SQL(1) + `
order by id{desc}
limit ` + operationsBy.After(1))

// List pages through operations, newest first.
func (ops *Operations) List(ctx context.Context, f OperationFilter) (event.Page[Operation], error) {
	l := sqldb.Newest("operations", operationsAll, scanOperation, func(op Operation) int64 { return op.ID }, operationsBy.Args(f)...)
	return sqldb.Reading(ctx, ops.core.Journal(), "list operations", func(t *store.Tx) (event.Page[Operation], error) {
		return l.Page(t, f.Cursor, f.Limit)
	})
}

// Get reads an operation with its groups, the rows it is watching, and other failures since its
// start. A missing one is event.ErrNotFound.
func (ops *Operations) Get(ctx context.Context, id int64) (OperationDetail, error) {
	d := OperationDetail{Groups: []OperationGroup{}, Watched: []WatchedRow{}, Loads: []campaign.VersionLoad{}, NewFailures: []campaign.Row{}, NewQuarantines: []campaign.ProjectionFailure{}}
	summary, err := ops.core.Summary(ctx)
	if err != nil {
		return d, fmt.Errorf("read operation %d: %w", id, err)
	}
	err = ops.read(ctx, func(t *tx) (err error) {
		if d.Operation, err = t.existingOperation(id); err != nil {
			return err
		}
		if err = t.operationGroups(&d); err != nil {
			return err
		}
		if err = ops.watchedRows(t, &d, summary.Surroundings()); err != nil {
			return err
		}
		if err = t.countRehearsed(&d); err != nil {
			return err
		}
		if err = t.loads(&d); err != nil {
			return err
		}
		if err = t.newFailures(&d); err != nil {
			return err
		}
		return ops.newQuarantines(ctx, t, &d)
	})
	if err != nil {
		return d, fmt.Errorf("read operation %d: %w", id, err)
	}
	d.Why = d.Describe(!summary.Worker.Absent())
	return d, nil
}

// requeuingShown is the maximum number of error groups that Requeuing returns.
const requeuingShown = 1_000

const selectRequeuing = `
select g.fingerprint, o.id, o.canary, g.wave
from operations o
join operation_groups g on g.operation_id = o.id
where o.acknowledged_at is null
  and o.status = 'running'
  and g.status = 'running'
order by o.id desc, g.number
limit $1`

// Requeuing lists the errors whose rows running operations requeue, of the latest operation first.
func (ops *Operations) Requeuing(ctx context.Context) ([]campaign.GroupOperation, error) {
	return sqldb.Reading(ctx, ops.core.Journal(), "list what operations requeue", func(t *store.Tx) ([]campaign.GroupOperation, error) {
		return sqldb.All(t, func(row sqldb.Row) (g campaign.GroupOperation, err error) {
			var canary, wave int64
			err = row.Scan(&g.Fingerprint, &g.ID, &canary, &wave)
			g.Phase = PhaseOf(canary != 0, wave)
			return g, err
		}, selectRequeuing, requeuingShown)
	})
}

// loadsNamed is how many loads of other versions an operation names.
const loadsNamed = 20

// loads reads which versions of projections were loaded while the operation ran, the first ones.
func (t *tx) loads(d *OperationDetail) error {
	latest, err := t.VersionLoads(d.StartedAt.UnixMicro(), failuresUntil(d))
	slices.Reverse(latest)
	d.Loads = append(d.Loads, latest[:min(len(latest), loadsNamed)]...)
	return err
}

const selectOperationGroups = `
select number, fingerprint, example, row_count, status, wave, wave_size, reason
from operation_groups
where operation_id = $1
order by number
limit 200`

const countGroupRows = `
select group_number, status, count(*)
from operation_rows
where operation_id = $1
group by status, group_number`

func (t *tx) operationGroups(d *OperationDetail) error {
	index := map[int64]int{}
	err := t.Each(func(row sqldb.Row) error {
		var g OperationGroup
		err := row.Scan(&g.Number, &g.Fingerprint, &g.Example, &g.Totals.Chosen, (*string)(&g.Status), &g.Wave, &g.WaveSize, &g.Reason)
		index[g.Number] = len(d.Groups)
		d.Groups = append(d.Groups, g)
		return err
	}, selectOperationGroups, d.ID)
	if err != nil {
		return err
	}
	return t.Each(func(row sqldb.Row) error {
		var number, n int64
		var status string
		err := row.Scan(&number, &status, &n)
		if shown := len(d.Groups); shown > 0 {
			d.MoreGroups = max(d.MoreGroups, number-d.Groups[shown-1].Number)
		}
		if i, known := index[number]; known {
			if field := d.Groups[i].Totals.Field(RowResult(status)); field != nil {
				*field = n
			}
		}
		return err
	}, countGroupRows, d.ID)
}

var selectWatched = `
select r.seq, r.watch_seq, ` + store.CampaignColumnsOf("c") + `
from operation_rows r
join campaigns c on c.campaign_id = r.campaign_id
where r.operation_id = $1
  and r.status = 'requeued'
order by r.group_number, r.ordinal
limit 20`

func (ops *Operations) watchedRows(t *tx, d *OperationDetail, around campaign.Surroundings) error {
	now := sqldb.At(ops.core.Now())
	return t.Each(func(row sqldb.Row) error {
		var w WatchedRow
		var c store.CampaignRow
		err := row.Scan(append([]any{&w.Seq, &w.WatchSeq}, c.Dest()...)...)
		w.CampaignID, w.AppliedSeq, w.Why = c.ID, c.Applied, c.View().Why(now, around)
		d.Watched = append(d.Watched, w)
		return err
	}, selectWatched, d.ID)
}

// Failed and dead rows are ordered by their next attempt, which is never before their failure:
// failures since a time are one range of the index.
const (
	newDead = outbox.SelectListed + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where status = 'dead'` + newSince
	newFailed = outbox.SelectListed + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where status = 'failed'` + newSince

	newSince = `
  and o.attempt_count > 0
  and o.next_attempt_at >= $2
  and o.updated_at between $2 and $3
  and not exists (
    select 1
    from operation_rows r
    where r.operation_id = $1
      and r.campaign_id = o.campaign_id
      and r.seq = o.seq)
  and (exists (
    select 1
    from operation_groups g
    where g.operation_id = $1
      and g.fingerprint = o.fingerprint)
  or exists (
    select 1
    from operation_rows r
    where r.operation_id = $1
      and r.campaign_id = o.campaign_id))
order by o.next_attempt_at, o.seq, o.campaign_id
limit $4`
)

func (t *tx) newFailures(d *OperationDetail) error {
	until := failuresUntil(d)
	for _, query := range []string{newDead, newFailed} {
		err := t.Each(sqldb.Collect(&d.NewFailures, outbox.ScanListed), query, d.ID, d.StartedAt.UnixMicro(), until, NewFailuresNamed-len(d.NewFailures))
		if err != nil {
			return err
		}
	}
	return nil
}

// failuresUntil is when failures cannot be due to an operation any more.
func failuresUntil(d *OperationDetail) int64 {
	if d.FinishedAt != nil {
		return d.FinishedAt.UnixMicro()
	}
	return sqldb.FarFuture
}

const countCampaignRows = `
select count(*)
from operation_rows
where operation_id = $1
  and campaign_id = $2`

// newQuarantines adds the failures since the start that quarantined projections in the operation's
// campaigns, of the latest open failures.
func (ops *Operations) newQuarantines(ctx context.Context, t *tx, d *OperationDetail) error {
	all, err := ops.core.ReadModel().QuarantinedBetween(ctx, d.StartedAt.UnixMicro(), failuresUntil(d))
	if err != nil {
		return err
	}
	rows := make([]int64, len(all))
	var b sqldb.Batch
	for i, f := range all {
		b.Each(func(row sqldb.Row) error { return row.Scan(&rows[i]) }, countCampaignRows, d.ID, f.CampaignID)
	}
	if err := t.RunAll(&b); err != nil {
		return err
	}
	for i, f := range all {
		if rows[i] > 0 && len(d.NewQuarantines) < NewFailuresNamed {
			d.NewQuarantines = append(d.NewQuarantines, f)
		}
	}
	return nil
}

const selectOperationRow = `
select campaign_id, seq, event_type, group_number, fingerprint, status, wave, detail, failed_fingerprint, requeued_at, finished_at, ordinal
from operation_rows
`

var (
	operationRowsAll = sqldb.BothWays(selectOperationRow + `where ordinal {>} $1
  and operation_id = $2
order by ordinal{desc}
limit $3`)

	operationRowsByStatus = sqldb.BothWays(selectOperationRow + `where (group_number, ordinal) {>} ($1, $2)
  and operation_id = $3
  and status = $4
order by group_number{desc}, ordinal{desc}
limit $5`)
)

// Rows pages through the rows of an operation in the order in which
// they are requeued within their group; those of one status group by group. A
// missing operation is event.ErrNotFound.
func (ops *Operations) Rows(ctx context.Context, id int64, f OperationRowFilter) (event.Page[OperationRow], error) {
	var page event.Page[OperationRow]
	l := operationRowList(id, f.Status)
	err := ops.read(ctx, func(t *tx) (err error) {
		if _, err = t.existingOperation(id); err == nil {
			page, err = l.Page(t, f.Cursor, f.Limit)
		}
		return err
	})
	return page, sqldb.Wrapf(err, "list the rows of operation %d", id)
}

func operationRowList(id int64, status RowResult) *sqldb.List[OperationRow] {
	if status == "" {
		return &sqldb.List[OperationRow]{
			Name: "operation-rows", Query: operationRowsAll, Args: []any{id}, Scan: scanOperationRow,
			Low: []any{int64(-1)}, High: []any{int64(sqldb.FarFuture)},
			Key: func(r OperationRow) []any { return []any{r.Ordinal} },
		}
	}
	return &sqldb.List[OperationRow]{
		Name: "operation-rows-" + string(status), Query: operationRowsByStatus, Args: []any{id, string(status)}, Scan: scanOperationRow,
		Low: []any{int64(-1), int64(-1)}, High: []any{int64(sqldb.FarFuture), int64(sqldb.FarFuture)},
		Key: func(r OperationRow) []any { return []any{r.Group, r.Ordinal} },
	}
}

func scanOperationRow(row sqldb.Row) (OperationRow, error) {
	var r OperationRow
	err := row.Scan(&r.CampaignID, &r.Seq, &r.EventType, &r.Group, &r.Fingerprint, (*string)(&r.Status), &r.Wave, &r.Detail, &r.FailedFingerprint,
		sqldb.ScanTimeOrNil(&r.RequeuedAt), sqldb.ScanTimeOrNil(&r.FinishedAt), &r.Ordinal)
	return r, err
}

const countOperations = `
select count(*) filter (where status = 'running'), count(*) filter (where status <> 'running')
from operations
where acknowledged_at is null`

// count adds the operations that need attention to a summary.
func count(t *store.Tx, sum *campaign.Summary) error {
	_, err := t.One([]any{&sum.Operations.Running, &sum.Operations.Unacknowledged}, countOperations)
	return err
}
