package readmodel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Watermark is how far a campaign's events have been applied to the projections.
type Watermark struct {
	AppliedSeq  int64
	AppliedHash string // chain hash of the event at AppliedSeq; empty at 0
	FenceEpoch  int64  // the highest epoch that has applied here
	SetAside    int64  // projections quarantined, paused or behind
	// OpenFailures is how many events some projection failed at and has not applied since.
	OpenFailures int64
}

// ApplyTx is a transaction on the projections database that applies events. After a fatal error
// every further call fails and the transaction is rolled back. It belongs to one goroutine.
type ApplyTx struct {
	t       *sqldb.Tx
	now     int64
	marks   map[string]Watermark // read ahead
	looked  bool                 // campaigns that are not in marks have no watermark
	reached map[string]int64     // watermarks to announce after the commit

	installedRead bool
	installed     []string // projections that are or were loaded
	paused        []string // those that are paused for all campaigns

	gathering bool
	queue     sqldb.Batch
	stamps    stamps
}

func (d *Database) newApplyTx() *ApplyTx {
	return &ApplyTx{now: d.options.Now(), reached: make(map[string]int64)}
}

// Apply runs fn in one transaction on the projections database and commits when fn returns nil.
// ctx bounds only the wait for the lock. Meanwhile no projection is paused or resumed for all
// campaigns.
func (d *Database) Apply(ctx context.Context, fn func(*ApplyTx) error) error {
	a, err := d.apply(ctx, fn)
	if err != nil {
		return err
	}
	d.advanced(a)
	d.onAdvance(a.reached)
	return nil
}

func (d *Database) apply(ctx context.Context, fn func(*ApplyTx) error) (*ApplyTx, error) {
	a := d.newApplyTx()
	return a, d.WriteFrom(ctx, sqldb.BeginApply, func(t *sqldb.Tx) error {
		a.t = t
		return fn(a)
	})
}

var errRehearsed = errors.New("rehearsed")

// Rehearse is Apply, but always rolls back.
func (d *Database) Rehearse(ctx context.Context, fn func(*ApplyTx) error) error {
	_, err := d.apply(ctx, func(a *ApplyTx) error { return cmp.Or(fn(a), errRehearsed) })
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

// SelectWatermark reads the watermark of a campaign, for ScanWatermark.
const SelectWatermark = `
select applied_seq, applied_hash, fence_epoch, set_aside, open_failures
from projection_watermarks
where campaign_id = $1`

// Look reads the watermarks of several campaigns, locked, ahead of applying events to them that are
// expected to pass: Watermark then returns them without a query, and those that do not exist as at 0.
// Only Advance and Fence create them. The campaigns are in order of id, to avoid deadlocks. It returns
// false, and ReadAhead is needed, where a projection is to be excluded from campaigns: one that is paused,
// or not loaded.
func (a *ApplyTx) Look(campaigns []string, loaded func(projection string) bool) (bool, error) {
	a.looked, a.marks = true, make(map[string]Watermark, len(campaigns))
	err := a.readMarks(campaigns, SelectWatermark+a.t.ForUpdate)
	unloaded := func(projection string) bool { return !loaded(projection) }
	return len(a.paused) == 0 && !slices.ContainsFunc(a.installed, unloaded), err
}

const insertWatermark = `
insert into projection_watermarks (campaign_id, updated_at)
values ($1, $2)
on conflict (campaign_id) do nothing
returning applied_seq, applied_hash, fence_epoch, set_aside, open_failures`

// ReadAhead locks the watermarks of several campaigns and creates missing ones at 0. Watermark
// then returns them without a query.
func (a *ApplyTx) ReadAhead(campaigns []string) error {
	a.looked = false
	if a.marks == nil {
		a.marks = make(map[string]Watermark, len(campaigns))
	}
	ids := slices.Compact(slices.Sorted(slices.Values(campaigns))) // sorted, to avoid deadlocks
	// The last query reads watermarks that another transaction created at the same moment.
	for _, query := range []string{SelectWatermark + a.t.ForUpdate, insertWatermark, SelectWatermark + a.t.ForUpdate} {
		if err := a.readMarks(ids, query); err != nil {
			return err
		}
	}
	return nil
}

// readMarks runs the query for each campaign whose watermark was not read yet.
func (a *ApplyTx) readMarks(ids []string, query string) error {
	var b sqldb.Batch
	a.readInstalled(&b)
	for _, id := range ids {
		if _, known := a.marks[id]; known {
			continue
		}
		args := []any{id}
		if query == insertWatermark {
			args = append(args, a.now)
		}
		b.Each(func(row sqldb.Row) error {
			w, err := ScanWatermark(row)
			a.marks[id] = w
			return err
		}, query, args...)
	}
	if err := a.t.RunAll(&b); err != nil {
		return fmt.Errorf("read watermarks: %w", err)
	}
	return nil
}

// ScanWatermark reads a row of SelectWatermark.
func ScanWatermark(row sqldb.Row) (w Watermark, err error) {
	err = row.Scan(&w.AppliedSeq, &w.AppliedHash, &w.FenceEpoch, &w.SetAside, &w.OpenFailures)
	return w, err
}

// Watermark reads a campaign's watermark, locked for this transaction, and creates it at 0 if
// there is none.
func (a *ApplyTx) Watermark(campaign string) (Watermark, error) {
	if _, ahead := a.marks[campaign]; !ahead && !a.looked {
		if err := a.ReadAhead([]string{campaign}); err != nil {
			return Watermark{}, err
		}
	}
	w := a.marks[campaign]
	delete(a.marks, campaign) // it may change from here on
	return w, nil
}

// Fence raises the campaign's fence to epoch, so that holders of a lower epoch can no longer
// change its projections. If the fence is higher already it is event.ErrLeaseLost.
func (a *ApplyTx) Fence(campaign string, epoch int64) error {
	n, err := a.t.Exec(raiseFence+` <= excluded.fence_epoch`, campaign, epoch, a.now)
	if err == nil && n == 0 {
		err = event.ErrLeaseLost
	}
	return err
}

const raiseFence = `
insert into projection_watermarks (campaign_id, fence_epoch, updated_at)
values ($1, $2, $3)
on conflict (campaign_id) do update
set fence_epoch = excluded.fence_epoch
where projection_watermarks.fence_epoch`

// RaiseFences raises the fences of campaigns to epochs above them and returns the watermarks,
// which holders of lower epochs can no longer move. A campaign whose fence is not lower is left
// out.
func (d *Database) RaiseFences(ctx context.Context, epochs map[string]int64) (marks map[string]Watermark, err error) {
	ids := slices.Sorted(maps.Keys(epochs))
	err = d.Apply(ctx, func(a *ApplyTx) error {
		marks = make(map[string]Watermark, len(ids))
		if err := a.ReadAhead(ids); err != nil {
			return err
		}
		var b sqldb.Batch
		for _, id := range ids {
			mark, err := a.Watermark(id)
			if err != nil {
				return err
			}
			mark.FenceEpoch = epochs[id]
			b.Exec(func(n int64) error {
				if n > 0 {
					marks[id] = mark
				}
				return nil
			}, raiseFence+` < excluded.fence_epoch`, id, epochs[id], a.now)
		}
		return a.t.RunAll(&b)
	})
	return marks, err
}

const (
	advanceWatermark = `
update projection_watermarks
set applied_seq = $4, applied_hash = $5, fence_epoch = $2, updated_at = $6
where campaign_id = $1
  and fence_epoch <= $2
  and applied_seq = $3`

	// beginWatermark advances from 0, where there may be none.
	beginWatermark = `
insert into projection_watermarks (campaign_id, applied_seq, applied_hash, fence_epoch, updated_at)
values ($1, $4, $5, $2, $6)
on conflict (campaign_id) do update
set applied_seq = excluded.applied_seq, applied_hash = excluded.applied_hash, fence_epoch = excluded.fence_epoch, updated_at = excluded.updated_at
where projection_watermarks.fence_epoch <= excluded.fence_epoch
  and projection_watermarks.applied_seq = $3`
)

// Advance moves the watermark from seq from to seq to, whose chain hash is hash, under epoch.
// When the watermark is elsewhere or the fence is higher it changes nothing and returns
// event.ErrLeaseLost.
func (a *ApplyTx) Advance(campaign string, epoch, from, to int64, hash string) error {
	advance := advanceWatermark
	if from == 0 {
		advance = beginWatermark
	}
	return a.do(func(n int64) error {
		if n == 0 {
			return event.ErrLeaseLost
		}
		a.reached[campaign] = to
		return nil
	}, advance, campaign, epoch, from, to, hash, a.now)
}

// do runs a statement, or queues it while gathering.
func (a *ApplyTx) do(count func(int64) error, query string, args ...any) error {
	if err := a.t.Err(); err != nil {
		return err
	}
	if a.gathering {
		a.queue.Exec(count, query, args...)
		return nil
	}
	n, err := a.t.Exec(query, args...)
	if err == nil && count != nil {
		err = count(n)
	}
	return err
}

// Exec runs one statement of a projection. ctx carries its deadline, if any; a statement that
// exceeds it is context.DeadlineExceeded.
func (a *ApplyTx) Exec(ctx context.Context, query string, args []any) error {
	if a.t.Dialect().Typed {
		return a.do(nil, query, asTexts(args)...)
	}
	_, err := a.t.ExecContext(ctx, query, args...)
	return err
}

// Query runs one select of a projection outside of gathering and calls each with the cells of every
// row; see sqldb.Cells. ctx carries its deadline, if any.
func (a *ApplyTx) Query(ctx context.Context, query string, args []any, each func(cells []any) error) error {
	if a.gathering {
		return errGathering
	}
	return eachCells(ctx, a.t, query, args, each)
}

// errGathering is a query while statements wait, whose results it would not see.
var errGathering = errors.New("a projection's query came while statements were gathered")

// eachCells reads rows whose columns are not known.
func eachCells(ctx context.Context, t *sqldb.Tx, query string, args []any, each func(cells []any) error) error {
	if t.Dialect().Typed {
		args = asTexts(args)
	}
	return t.EachContext(ctx, func(row sqldb.Row) error {
		cells, err := sqldb.Cells(row)
		if err != nil {
			return err
		}
		return each(cells)
	}, query, args...)
}

// Gather queues statements on PostgreSQL until Flush sends them together; until then they
// report no errors. On SQLite it does nothing and returns false.
func (a *ApplyTx) Gather() bool {
	a.gathering, a.stamps = a.t.Dialect().Pipelines, stamps{cost: a.stamps.cost, taken: a.stamps.taken}
	return a.gathering
}

// Gathered is the number of queued statements.
func (a *ApplyTx) Gathered() int { return a.queue.Len() }

// Flush sends the queued statements and returns how many of them took effect; when that is not
// all, err is the error of the next one. It ends gathering.
func (a *ApplyTx) Flush() (done int, err error) {
	a.gathering = false
	return a.t.Run(&a.queue)
}

// Discard drops the queued statements and ends gathering.
func (a *ApplyTx) Discard() { a.gathering, a.queue = false, sqldb.Batch{} }

// Savepoint sets a savepoint for RollbackTo; Release removes it. Savepoints nest.
func (a *ApplyTx) Savepoint() error { return a.do(nil, "savepoint campaign") }

// RollbackTo undoes everything since the innermost Savepoint, which stays. It fails when the
// failed statement has aborted the whole transaction.
func (a *ApplyTx) RollbackTo() error {
	_, err := a.t.Exec("rollback to savepoint campaign")
	if err != nil {
		a.t.Fail(err)
	}
	return err
}

// Release removes the innermost savepoint and keeps the changes since.
func (a *ApplyTx) Release() error { return a.do(nil, "release savepoint campaign") }

// asTexts converts args to texts, which PostgreSQL converts to any type. So a number fits into
// a text column and the reverse, as on SQLite.
func asTexts(args []any) []any {
	texts := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case int64:
			texts[i] = strconv.FormatInt(v, 10)
		case float64:
			texts[i] = floatText(v)
		default:
			texts[i] = v
		}
	}
	return texts
}

// floatText formats a whole number without fraction or exponent, since integer columns refuse
// those.
func floatText(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Lost reports whether the transaction can no longer be used.
func (a *ApplyTx) Lost() bool { return a.t.Err() != nil }

// Watermarks reads the watermarks of several campaigns, in one snapshot. Campaigns without one
// are left out.
func (d *Database) Watermarks(ctx context.Context, campaigns []string) (map[string]Watermark, error) {
	return sqldb.Reading(ctx, d, "", func(t *sqldb.Tx) (map[string]Watermark, error) {
		marks := make(map[string]Watermark, len(campaigns))
		var b sqldb.Batch
		for _, id := range campaigns {
			b.Each(func(row sqldb.Row) error {
				w, err := ScanWatermark(row)
				marks[id] = w
				return err
			}, SelectWatermark, id)
		}
		return marks, t.RunAll(&b)
	})
}
