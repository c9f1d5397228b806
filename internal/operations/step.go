package operations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// groupsAtOnce is the maximum number of groups in progress at once.
const groupsAtOnce = 64

// Running lists the operations to step.
func (ops *Operations) Running(ctx context.Context) ([]int64, error) {
	return sqldb.Reading(ctx, ops.core.Journal(), "look for running operations", func(t *store.Tx) ([]int64, error) {
		return sqldb.All(t, sqldb.Column[int64], `select id from operations where acknowledged_at is null and status = 'running' order by id`)
	})
}

// StepOne advances a running operation by one step: it records the outcome of watched rows, stops
// groups in which something failed, requeues the next wave of the others, and ends the operation
// when nothing is left. It reports whether it changed anything.
//
// A step is one transaction that locks the operation's row, and depends on stored state only:
// several processes may step concurrently, and one that dies in the middle has changed nothing.
func (ops *Operations) StepOne(ctx context.Context, id int64) (bool, error) {
	changed, woken := false, false
	err := ops.write(ctx, func(t *tx) error {
		changed, woken = false, false
		op, found, err := t.operation(id, t.SkipLocked)
		if err != nil || !found || op.Status != OperationRunning {
			return err
		}
		step := &operationStep{tx: t, op: op, now: ops.core.Now(), live: ops.core.ReadModel()}
		if err := step.run(ctx); err != nil {
			return err
		}
		changed, woken = step.changed, len(step.requeued) > 0
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("step operation %d: %w", id, err)
	}
	if woken {
		ops.core.WakeUp()
	}
	return changed, nil
}

// operationStep is the state of one step within its transaction.
type operationStep struct {
	*tx
	op       Operation
	now      int64
	live     *readmodel.Database
	changed  bool
	requeued []event.RowKey // in this step
}

func (s *operationStep) run(ctx context.Context) error {
	if err := s.observe(ctx); err != nil {
		return err
	}
	groups, err := s.groups()
	if err != nil {
		return err
	}
	var next []*nextRow
	for _, g := range groups {
		chosen, err := s.advance(g, MaxWave-len(next))
		if err != nil {
			return fmt.Errorf("group %d: %w", g.number, err)
		}
		next = append(next, chosen...)
	}
	if err := s.requeue(next); err != nil {
		return err
	}
	return s.finish()
}

// observed is a watched row that may have an outcome.
type observed struct {
	Watched
	group, requeued int64
}

const selectObserved = `
select r.campaign_id, r.seq, r.group_number, r.fingerprint, r.watch_seq, c.applied_seq, coalesce(c.head_seq, 0), coalesce(c.head_status, ''), c.diverged, coalesce(r.requeued_at, 0)
from operation_rows r
join campaigns c on c.campaign_id = r.campaign_id
where r.operation_id = $1
  and r.status = 'requeued'
  and (c.applied_seq >= r.watch_seq
    or c.diverged <> ''
    or c.head_status = 'dead'
    or c.head_status = 'failed' and c.head_seq > r.seq)
order by r.group_number, r.ordinal
limit 1000`

const endRow = `
update operation_rows
set status = $4, detail = $5, failed_fingerprint = $6, finished_at = $7
where operation_id = $1
  and campaign_id = $2
  and seq = $3
  and status = 'requeued'`

// observe records the outcomes of watched rows. The failure of the row itself is recorded when it
// is settled, not here.
func (s *operationStep) observe(ctx context.Context) error {
	seen, err := sqldb.All(s, func(row sqldb.Row) (o observed, err error) {
		err = row.Scan(&o.CampaignID, &o.Seq, &o.group, &o.Fingerprint, &o.WatchTo, &o.Applied, &o.HeadSeq, &o.HeadStatus, &o.Diverged, &o.requeued)
		return o, err
	}, selectObserved, s.op.ID)
	if err != nil {
		return fmt.Errorf("look at what is watched: %w", err)
	}
	if err := s.quarantined(ctx, seen); err != nil {
		return err
	}
	for _, o := range seen {
		if err := s.endWatch(o); err != nil {
			return fmt.Errorf("campaign %q seq %d: %w", o.CampaignID, o.Seq, err)
		}
	}
	return nil
}

// clocksApart is how far the clock of a worker may be behind that of the process that requeued a row.
const clocksApart = time.Minute

// quarantined finds the projections that rows which are applied have quarantined. One may have failed at
// the row before, as when another one then blocked the campaign.
func (s *operationStep) quarantined(ctx context.Context, seen []observed) error {
	var spans []readmodel.Span
	var of []*observed
	for i := range seen {
		if o := &seen[i]; o.AllApplied() {
			spans = append(spans, readmodel.Span{CampaignID: o.CampaignID, From: o.Seq, To: o.WatchTo, Since: o.requeued - clocksApart.Microseconds()})
			of = append(of, o)
		}
	}
	found, err := s.live.QuarantinedIn(ctx, spans)
	for i, f := range found {
		of[i].Quarantined = f
	}
	return err
}

// endWatch ends the watch of one row, and stops its group if an event released by the row has
// failed.
func (s *operationStep) endWatch(o observed) error {
	var blamed campaign.Row
	if seq := o.Blames(); seq > 0 {
		var err error
		if blamed, _, err = s.Row(o.CampaignID, seq); err != nil {
			return err
		}
		blamed.LastError = sqldb.Clip(blamed.LastError, exampleLimit)
	}
	end, ended := o.End(blamed)
	if !ended {
		return nil
	}
	s.changed = true
	_, err := s.Exec(endRow, s.op.ID, o.CampaignID, o.Seq, string(end.Result), sqldb.Clip(end.Detail, store.LastErrorLimit), end.Fingerprint, s.now)
	if err != nil || end.Stops == "" {
		return err
	}
	return s.stop(o.group, end.Stops)
}

const (
	stopGroups = `
update operation_groups
set status = $4, reason = $2, updated_at = $3
where operation_id = $1
  and status = $5`

	stopGroup = stopGroups + `
  and number = $6`
)

const leaveRows = `
update operation_rows
set status = 'left', finished_at = $3
where operation_id = $1
  and status = 'waiting'
  and group_number = $2`

// endRows changes the result of all rows of an operation that have a given result.
const endRows = `
update operation_rows
set status = $3, finished_at = $4
where operation_id = $1
  and status = $2`

// stop stops a group: no more of its rows are requeued.
func (s *operationStep) stop(group int64, reason string) error {
	s.changed = true
	n, err := s.Exec(stopGroup, s.op.ID, reason, s.now, string(GroupStopped), string(GroupRunning), group)
	if err != nil || n == 0 {
		return err
	}
	_, err = s.Exec(leaveRows, s.op.ID, group, s.now)
	return err
}

type groupState struct {
	GroupProgress
	number int64
}

// All counts come from one statement, so that no failure comes between them: a group whose last
// watched row has failed never appears finished.
const selectRunningGroups = `
select g.number, g.wave,
  (select count(*) from operation_rows r where r.operation_id = g.operation_id and r.status = 'requeued' and r.group_number = g.number),
  (select count(*) from operation_rows r where r.operation_id = g.operation_id and r.status = 'failed_again' and r.group_number = g.number)
from operation_groups g
where g.operation_id = $1
  and g.status = $3
order by g.number
limit $2`

func (s *operationStep) groups() ([]groupState, error) {
	groups, err := sqldb.All(s, func(row sqldb.Row) (g groupState, err error) {
		g.Canary = s.op.Canary
		err = row.Scan(&g.number, &g.Wave, &g.Watched, &g.Failures)
		return g, err
	}, selectRunningGroups, s.op.ID, groupsAtOnce, string(GroupRunning))
	return groups, sqldb.Wrapf(err, "read its groups")
}

type nextRow struct {
	event.RowKey
	group, wave       int64
	updated, attempts int64
	done              int64  // rows requeued: 1, or 0 if skipped
	why               string // why it is skipped
}

const selectWaiting = `
select campaign_id, seq, frozen_updated_at, frozen_attempts
from operation_rows
where operation_id = $1
  and status = 'waiting'
  and group_number = $2
order by ordinal
limit $3`

// advance stops a group in which a row failed again, ends one that has nothing left, and otherwise
// returns the rows of its next wave.
func (s *operationStep) advance(g groupState, room int) ([]*nextRow, error) {
	if g.Stops() {
		return nil, s.stopFailed(g)
	}
	size := min(g.NextSize(), room)
	if size <= 0 {
		return nil, nil
	}
	next, err := sqldb.All(s, func(row sqldb.Row) (*nextRow, error) {
		r := &nextRow{group: g.number, wave: g.NextWave()}
		return r, row.Scan(&r.CampaignID, &r.Seq, &r.updated, &r.attempts)
	}, selectWaiting, s.op.ID, g.number, size)
	if err != nil || !g.Through(len(next)) {
		return next, err
	}
	s.changed = true
	_, err = s.Exec(`update operation_groups set status = $4, updated_at = $3 where operation_id = $1 and number = $2`, s.op.ID, g.number, s.now, string(GroupDone))
	return nil, err
}

// stopFailed stops a group because of its first row that failed again.
func (s *operationStep) stopFailed(g groupState) error {
	var key event.RowKey
	var before, after, detail string
	_, err := s.One([]any{&key.CampaignID, &key.Seq, &before, &after, &detail}, `
select campaign_id, seq, fingerprint, failed_fingerprint, detail
from operation_rows
where operation_id = $1
  and status = 'failed_again'
  and group_number = $2
order by ordinal
limit 1`, s.op.ID, g.number)
	if err != nil {
		return err
	}
	return s.stop(g.number, FailedAgain(key, before, after, detail))
}

const noteRequeued = `
update operation_rows
set status = 'requeued', wave = $4, requeued_at = $5
where operation_id = $1
  and campaign_id = $2
  and seq = $3
  and status = 'waiting'`

const noteSkipped = `
update operation_rows
set status = 'skipped', detail = $4, finished_at = $5
where operation_id = $1
  and campaign_id = $2
  and seq = $3
  and status = 'waiting'`

const noteWave = `
update operation_groups
set wave = $3, wave_size = $4, updated_at = $5
where operation_id = $1
  and number = $2`

// requeue sets the rows of the next wave back to pending. Rows that have changed since the
// operation began, or could not move, are skipped.
func (s *operationStep) requeue(next []*nextRow) error {
	if len(next) == 0 {
		return nil
	}
	s.changed = true
	slices.SortFunc(next, func(a, b *nextRow) int { // a head before the rows behind it
		return cmp.Or(strings.Compare(a.CampaignID, b.CampaignID), cmp.Compare(a.Seq, b.Seq))
	})
	ids := make([]string, len(next))
	for i, r := range next {
		ids[i] = r.CampaignID
	}
	campaigns, err := s.Campaigns(ids)
	if err != nil {
		return err
	}
	var b sqldb.Batch
	moving := map[string]bool{} // campaigns whose head is in this wave
	for _, r := range next {
		var campaign *campaign.Campaign
		if c := campaigns[r.CampaignID]; c != nil {
			campaign = new(c.View())
		}
		if r.why = Immovable(r.RowKey, campaign, moving[r.CampaignID], sqldb.At(s.now)); r.why == "" {
			moving[r.CampaignID] = true
			outbox.RequeueFrozen(&b, &r.done, outbox.Frozen{RowKey: r.RowKey, Updated: r.updated, Attempts: r.attempts}, s.now)
		}
	}
	if err := s.RunAll(&b); err != nil {
		return fmt.Errorf("requeue: %w", err)
	}
	return s.recordOutcomes(next, campaigns)
}

// recordOutcomes writes the outcomes of a wave's rows and updates their campaigns.
func (s *operationStep) recordOutcomes(next []*nextRow, campaigns map[string]*store.CampaignRow) error {
	var b sqldb.Batch
	touched := map[string]*store.CampaignRow{}
	waves := map[int64]*nextRow{}
	sizes := map[int64]int{}
	for _, r := range next {
		if r.done == 0 {
			if r.why == "" {
				r.why = s.whyChanged(r)
			}
			b.Exec(nil, noteSkipped, s.op.ID, r.CampaignID, r.Seq, sqldb.Clip(r.why, store.LastErrorLimit), s.now)
			continue
		}
		c := campaigns[r.CampaignID]
		c.Requeued(event.Dead, r.done)
		touched[c.ID], waves[r.group] = c, r
		sizes[r.group]++
		s.requeued = append(s.requeued, r.RowKey)
		b.Exec(nil, noteRequeued, s.op.ID, r.CampaignID, r.Seq, r.wave, s.now)
	}
	for group, r := range waves {
		b.Exec(nil, noteWave, s.op.ID, group, r.wave, sizes[group], s.now)
	}
	for _, c := range touched {
		c.HeadInto(&b, 0)
	}
	if err := s.RunAll(&b); err != nil {
		return fmt.Errorf("note the wave: %w", err)
	}
	for _, c := range touched {
		c.Schedule(s.now)
		c.SaveInto(&b, s.now)
	}
	if err := s.RunAll(&b); err != nil {
		return fmt.Errorf("save campaigns: %w", err)
	}
	return s.recordTouched()
}

const selectOperationAct = `
select id
from audit_log
where target = $1
  and target <> ''
  and action = 'operation_start'
  and outcome = 'done'`

// recordTouched adds the requeued rows to the audit record of the action that started the
// operation, unless that record has expired.
func (s *operationStep) recordTouched() error {
	var act int64
	known, err := s.One([]any{&act}, selectOperationAct, string(operator.OperationTarget(s.op.ID)))
	if err != nil || !known {
		return err
	}
	return s.RecordTargets(act, s.requeued, s.now)
}

// whyChanged returns how a row differs from its frozen state, and who changed it if known.
func (s *operationStep) whyChanged(r *nextRow) string {
	row, found, err := s.Row(r.CampaignID, r.Seq)
	was := "it was changed in the meantime"
	switch {
	case err != nil:
	case !found:
		was = "it was applied in the meantime"
	case row.Status != event.Dead:
		was = fmt.Sprintf("it was already %s", row.Status)
	default:
		was = "it was requeued and died again in the meantime"
	}
	return was + s.LastActionSince(r.CampaignID, r.Seq, s.op.StartedAt)
}

// finish updates the operation's totals, and ends it when no row is waiting or watched any more.
func (s *operationStep) finish() error {
	if !s.changed {
		return nil
	}
	if err := s.countOperation(&s.op); err != nil {
		return err
	}
	if s.op.Totals.Waiting == 0 && s.op.Totals.Requeued == 0 {
		if err := s.endGroups(); err != nil {
			return err
		}
	}
	return s.saveOperation(&s.op, s.now)
}

// endGroups ends the operation once every group has ended.
func (s *operationStep) endGroups() error {
	var running, stopped, all int64
	_, err := s.One([]any{&running, &stopped, &all}, `
select count(*) filter (where status = $2), count(*) filter (where status = $3), count(*)
from operation_groups
where operation_id = $1`, s.op.ID, string(GroupRunning), string(GroupStopped))
	if err != nil || running > 0 {
		return err
	}
	var first string
	if stopped > 0 {
		if _, err := s.One([]any{&first}, `select reason from operation_groups where operation_id = $1 and status = $2 order by number limit 1`, s.op.ID, string(GroupStopped)); err != nil {
			return err
		}
	}
	status, reason := EndOfGroups(stopped, all, first)
	endOperation(&s.op, status, reason, s.now)
	return nil
}
