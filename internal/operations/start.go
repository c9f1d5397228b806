package operations

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

const (
	exampleLimit = 240 // maximum characters of a group's example error
	// watchedBehind is how many events behind a requeued row are watched with it: the row is done
	// only once they are applied as well.
	watchedBehind = 20
)

// candidate is a dead row that an operation may include.
type candidate struct {
	event.RowKey
	eventType, fingerprint, example string
	updated                         int64
	attempts                        int64
	head                            bool
	highWater, total                int64
}

// watchTo returns the seq that must be applied before the row is done.
func (c *candidate) watchTo() int64 { return min(c.highWater, c.Seq+watchedBehind) }

// Rows of a running operation are excluded: at most one may work on a row.
var selectCandidate = `
select o.campaign_id, o.seq, o.event_type, o.fingerprint, substr(o.last_error, 1, ` + strconv.Itoa(exampleLimit) + `), o.updated_at, o.attempt_count,
  coalesce(c.head_seq = o.seq, false), c.high_water_seq, c.pending + c.processing + c.failed + c.dead
from projection_apply_outbox o
join campaigns c on c.campaign_id = o.campaign_id
where status = 'dead'
  and o.attempt_count > 0
  and not exists (
    select 1
    from operation_rows r
    where r.campaign_id = o.campaign_id
      and r.seq = o.seq
      and r.finished_at is null)`

var (
	candidatesByFilter = selectCandidate + outbox.SelectedBy

	candidateByKey = selectCandidate + `
  and o.campaign_id = $1
  and o.seq = $2`
)

// candidates returns the dead rows of a selection that no operation has, and how many of the named
// rows are refused. Heads come first, since nothing else of a campaign can move before them.
func (t *tx) candidates(s Selection) (chosen []candidate, refused int64, err error) {
	scan := func(row sqldb.Row) error {
		var c candidate
		err := row.Scan(&c.CampaignID, &c.Seq, &c.eventType, &c.fingerprint, &c.example, &c.updated, &c.attempts, &c.head, &c.highWater, &c.total)
		chosen = append(chosen, c)
		return err
	}
	if len(s.Rows) > 0 {
		err = t.candidatesByKey(s.Rows, scan)
		refused = int64(len(s.Rows) - len(chosen))
	} else {
		err = outbox.Selected(t.Tx, scan, candidatesByFilter, s.Filter, event.MaxOperation, event.MaxOperation+1)
	}
	if err != nil {
		return nil, 0, err
	}
	if len(chosen) > event.MaxOperation {
		return nil, 0, event.Invalid("filter", "more than %d dead rows match, and one operation takes no more; narrow the filter, or give a limit", event.MaxOperation)
	}
	slices.SortStableFunc(chosen, func(a, b candidate) int { return cmp.Compare(sqldb.Truth(b.head), sqldb.Truth(a.head)) })
	return chosen, refused, nil
}

func (t *tx) candidatesByKey(keys []event.RowKey, scan func(sqldb.Row) error) error {
	if len(keys) > event.MaxNamed {
		return event.Invalid("rows", "%d rows are named; the limit is %d: use a filter instead", len(keys), event.MaxNamed)
	}
	var b sqldb.Batch
	for i, k := range keys {
		if k.CampaignID == "" || k.Seq < 1 {
			return event.Invalid("rows", "row %d needs a campaign_id and a seq of 1 or more", i+1)
		}
	}
	for _, k := range distinct(keys) {
		b.Each(scan, candidateByKey, k.CampaignID, k.Seq)
	}
	return t.RunAll(&b)
}

// distinct keeps the first of equal keys.
func distinct(keys []event.RowKey) []event.RowKey {
	seen := make(map[event.RowKey]bool, len(keys))
	return slices.DeleteFunc(slices.Clone(keys), func(k event.RowKey) bool {
		was := seen[k]
		seen[k] = true
		return was
	})
}

// previewNames is how many campaigns and groups a preview names.
const previewNames = 20

// Preview returns what an operation on a selection would do now, resting on a rehearsal; 0 is none. It
// changes nothing.
func (ops *Operations) Preview(ctx context.Context, selection Selection, rehearsal int64) (OperationPreview, error) {
	var p OperationPreview
	err := ops.read(ctx, func(t *tx) (err error) {
		_, p, err = t.shown(selection, rehearsal)
		return err
	})
	if err != nil {
		return OperationPreview{}, err
	}
	pace, err := ops.samples.Pace(ctx)
	if err != nil {
		return OperationPreview{}, err
	}
	if pace > 0 {
		p.EstimatedSeconds, p.EventsPerSecond = new(float64(p.Rows+p.Released)/pace), &pace
	}
	return p, nil
}

// shown returns the rows that an operation on a selection takes, and their preview.
func (t *tx) shown(selection Selection, rehearsal int64) ([]candidate, OperationPreview, error) {
	chosen, refused, err := t.candidates(selection)
	if err != nil {
		return nil, OperationPreview{}, err
	}
	chosen, passing, failing, err := t.restOn(rehearsal, chosen)
	p := preview(chosen, refused)
	p.Rehearsed, p.RehearsedFailing = passing, failing
	return chosen, p, err
}

// preview counts the effects of requeuing the candidates.
func preview(chosen []candidate, refused int64) OperationPreview {
	p := OperationPreview{Rows: int64(len(chosen)), Refused: refused}
	behind := map[string]int64{}
	for _, c := range chosen {
		behind[c.CampaignID] += 0
		if c.head {
			p.Heads++
			p.Released += c.total - 1
			behind[c.CampaignID] = c.total - 1
		}
	}
	p.Campaigns.Total = int64(len(behind))
	p.Campaigns.Named = make([]string, 0, len(behind))
	for id := range behind {
		p.Campaigns.Named = append(p.Campaigns.Named, id)
	}
	slices.SortFunc(p.Campaigns.Named, func(a, b string) int {
		return cmp.Or(cmp.Compare(behind[b], behind[a]), strings.Compare(a, b))
	})
	p.Campaigns.Named = p.Campaigns.Named[:min(len(p.Campaigns.Named), previewNames)]
	groups := groupsOf(chosen)
	p.GroupsTotal = int64(len(groups))
	p.Groups = slices.Clone(groups[:min(len(groups), previewNames)])
	p.Confirm = operator.ActionOperationStart.Phrase(operator.Reach{Rows: p.Rows, Released: p.Released})
	return p
}

// groupsOf groups rows by their last error, the largest group first.
func groupsOf(chosen []candidate) []PreviewGroup {
	groups, at := []PreviewGroup{}, map[string]int{}
	for _, c := range chosen {
		i, known := at[c.fingerprint]
		if !known {
			i = len(groups)
			at[c.fingerprint] = i
			groups = append(groups, PreviewGroup{Fingerprint: c.fingerprint, Example: c.example})
		}
		groups[i].Rows++
	}
	slices.SortFunc(groups, func(a, b PreviewGroup) int {
		return cmp.Or(cmp.Compare(b.Rows, a.Rows), strings.Compare(a.Fingerprint, b.Fingerprint))
	})
	return groups
}

// Start freezes the dead rows of a selection for workers to requeue. It returns event.ErrConflict
// when the rows differ from those the operator was shown, when there are none, or where nothing is
// applied; event.ErrInvalid when a large operation lacks its phrase. Rows of another running
// operation are left out, and so are those that the rehearsal on which it rests found failing.
func (ops *Operations) Start(ctx context.Context, o operator.Command, order OperationRequest) (Operation, error) {
	asked := auditTarget(order)
	a := &store.Change{Command: o, Action: operator.ActionOperationStart, CampaignID: order.Filter.CampaignID, Before: asked, Asked: asked}
	if ops.core.Mode() == campaign.ModeShadow {
		return Operation{}, ops.core.Refused(ctx, a, event.Conflict("the mode is %s: no worker applies requeued rows, so the operation would never end", ops.core.Mode()))
	}
	op, err := perform(ctx, ops, a, func(t *tx, now int64) (Operation, error) {
		chosen, is, err := t.shown(order.Selection, order.Rehearsal)
		if err != nil {
			return Operation{}, err
		}
		if err := t.asShown(o, order, is, now); err != nil {
			return Operation{}, err
		}
		if err := ops.core.RequireReason(o, is.Released); err != nil {
			return Operation{}, err
		}
		op := Operation{Kind: "requeue", Status: OperationRunning, Canary: order.Canary, Rehearsal: order.Rehearsal,
			StartedBy: o.By.Name, Via: o.By.Via, Reason: o.Reason, RequestID: o.RequestID, StartedAt: sqldb.At(now), UpdatedAt: sqldb.At(now), Refused: is.Refused}
		if len(order.Rows) == 0 {
			op.Filter = &order.Filter
		}
		if err := t.freeze(&op, chosen, now); err != nil {
			return Operation{}, err
		}
		if op.Totals.Chosen == 0 { // another operation has just taken all rows
			return Operation{}, t.nothingToRequeue(order, now)
		}
		a.Target = operator.OperationTarget(op.ID)
		a.After = map[string]any{"operation_id": op.ID, "rows": op.Totals.Chosen, "heads": op.Heads, "released": op.Released}
		return op, nil
	})
	if err == nil {
		ops.started.Raise()
	}
	return op, err
}

// auditTarget describes a request for its audit record. Rows named one by one are recorded as their
// number and a digest.
func auditTarget(order OperationRequest) map[string]any {
	asked := map[string]any{"filter": nil, "rows_named": len(order.Rows), "canary": order.Canary}
	if order.Rehearsal > 0 {
		asked["rehearsal"] = order.Rehearsal
	}
	if len(order.Rows) == 0 {
		asked["filter"] = order.Filter
		return asked
	}
	digest := sha256.New()
	for _, r := range order.Rows {
		fmt.Fprintf(digest, "%s/%d\n", r.CampaignID, r.Seq)
	}
	asked["rows_digest"] = hex.EncodeToString(digest.Sum(nil)[:12])
	return asked
}

// asShown refuses an operation on rows other than the operator was shown. A few more rows may wait
// behind the heads than before, since events keep coming; more than a tenth and more than a hundred
// is too large a change.
func (t *tx) asShown(o operator.Command, order OperationRequest, is OperationPreview, now int64) error {
	var changes []string
	if seen := order.ExpectedRows; seen != nil && *seen != is.Rows {
		changes = append(changes, fmt.Sprintf("%s selected now, not %d", event.Count(is.Rows, "dead row is", "dead rows are"), *seen))
	}
	if seen := order.ExpectedReleased; seen != nil && !operator.GrownAlike(*seen, is.Released) {
		changes = append(changes, fmt.Sprintf("%s would be released now, not %d", event.Count(is.Released, "row", "rows"), *seen))
	}
	switch {
	case len(changes) > 0:
		return event.Conflict("the selection has changed since this page was loaded: %s%s", strings.Join(changes, ", "), t.LastAction(order.Filter.CampaignID, 0, now))
	case is.Rows == 0 && is.RehearsedFailing > 0:
		return event.Conflict("rehearsal %d found all matching dead rows failing: nothing to requeue that rests on it", order.Rehearsal)
	case is.Rows == 0:
		return t.nothingToRequeue(order, now)
	}
	return operator.ActionOperationStart.Confirm(o.Confirm, operator.Reach{Rows: is.Rows, Released: is.Released})
}

func (t *tx) nothingToRequeue(order OperationRequest, now int64) error {
	return event.Conflict("all matching dead rows are already in a running operation, or there are none: nothing to requeue%s", t.LastAction(order.Filter.CampaignID, 0, now))
}

const insertOperation = `
insert into operations (kind, status, canary, filter, started_by, via, reason, request_id, started_at, updated_at, refused, rehearsal)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11)
returning id`

const insertOperationGroup = `
insert into operation_groups (operation_id, number, fingerprint, example, row_count, status, wave, updated_at)
values ($1, $2, $3, $4, $5, $7, -1, $6)`

const insertOperationRow = `
insert into operation_rows (operation_id, campaign_id, seq, ordinal, group_number, event_type, fingerprint, frozen_updated_at, frozen_attempts, watch_seq, status, wave)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'waiting', -1)
on conflict (campaign_id, seq) where finished_at is null do nothing`

const freezeTotals = `
update operations
set heads = $2, released = $3, refused = $4, chosen = $5, waiting = $5
where id = $1`

// freeze writes the operation, its groups and its rows. Rows that another operation has just taken
// are left out.
func (t *tx) freeze(op *Operation, chosen []candidate, now int64) error {
	filter := ""
	if op.Filter != nil {
		text, err := json.Marshal(op.Filter)
		if err != nil {
			return fmt.Errorf("write the filter of an operation: %w", err)
		}
		filter = string(text)
	}
	_, err := t.One([]any{&op.ID}, insertOperation, op.Kind, string(op.Status), sqldb.Truth(op.Canary), filter, op.StartedBy, op.Via, op.Reason, op.RequestID, now, op.Refused, op.Rehearsal)
	if err != nil {
		return fmt.Errorf("start an operation: %w", err)
	}
	numbers := groupNumbers(chosen)
	taken, err := t.freezeRows(op.ID, chosen, numbers)
	if err != nil {
		return fmt.Errorf("freeze the rows of operation %d: %w", op.ID, err)
	}
	is := preview(taken, op.Refused+int64(len(chosen)-len(taken)))
	op.Heads, op.Released, op.Refused = is.Heads, is.Released, is.Refused
	op.Totals = OperationTotals{Chosen: is.Rows, Waiting: is.Rows}
	var b sqldb.Batch
	for _, g := range groupsOf(taken) {
		b.Exec(nil, insertOperationGroup, op.ID, numbers[g.Fingerprint], g.Fingerprint, g.Example, g.Rows, now, string(GroupRunning))
	}
	b.Exec(nil, freezeTotals, op.ID, op.Heads, op.Released, op.Refused, op.Totals.Chosen)
	return sqldb.Wrapf(t.RunAll(&b), "freeze the groups of operation %d", op.ID)
}

// groupNumbers numbers groups from 1, the largest first.
func groupNumbers(chosen []candidate) map[string]int64 {
	numbers := map[string]int64{}
	for i, g := range groupsOf(chosen) {
		numbers[g.Fingerprint] = int64(i + 1)
	}
	return numbers
}

// freezeRows inserts the rows and returns those it inserted. It inserts in key order so that
// concurrent operations cannot deadlock.
func (t *tx) freezeRows(id int64, chosen []candidate, numbers map[string]int64) ([]candidate, error) {
	order := make([]int, len(chosen))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(chosen[a].CampaignID, chosen[b].CampaignID), cmp.Compare(chosen[a].Seq, chosen[b].Seq))
	})
	got := make([]int64, len(chosen))
	var b sqldb.Batch
	for _, i := range order {
		c := &chosen[i]
		b.Exec(sqldb.Into(&got[i]), insertOperationRow, id, c.CampaignID, c.Seq, i, numbers[c.fingerprint], c.eventType, c.fingerprint, c.updated, c.attempts, c.watchTo())
	}
	if err := t.RunAll(&b); err != nil {
		return nil, err
	}
	taken := make([]candidate, 0, len(chosen))
	for i, c := range chosen {
		if got[i] > 0 {
			taken = append(taken, c)
		}
	}
	return taken, nil
}

// Cancel ends a running operation: untouched rows stay dead, requeued ones proceed like any other.
// seen is the status that the operator was shown; empty skips the comparison. It returns
// event.ErrConflict for an operation that has ended.
func (ops *Operations) Cancel(ctx context.Context, o operator.Command, id int64, seen OperationStatus) (Operation, error) {
	return ops.changeOperation(ctx, o, operator.ActionOperationCancel, id, seen, func(t *tx, op *Operation, now int64) error {
		if !op.Cancellable() {
			return event.Conflict("operation %d is %s already%s", id, op.Status, t.LastActionOn(operator.OperationTarget(id), "", now))
		}
		op.CancelledBy = o.By.Name
		for _, end := range [][2]RowResult{{ResultWaiting, ResultLeft}, {ResultRequeued, ResultUnwatched}} {
			if _, err := t.Exec(endRows, id, string(end[0]), string(end[1]), now); err != nil {
				return fmt.Errorf("end the rows of operation %d: %w", id, err)
			}
		}
		if _, err := t.Exec(stopGroups, id, "cancelled by "+o.By.Name, now, string(GroupStopped), string(GroupRunning)); err != nil {
			return fmt.Errorf("end the groups of operation %d: %w", id, err)
		}
		if err := t.countOperation(op); err != nil {
			return err
		}
		endOperation(op, OperationCancelled, "", now)
		return nil
	})
}

// Acknowledge records that an operator has seen an operation's outcome. It returns
// event.ErrConflict for an operation that is running or already acknowledged.
func (ops *Operations) Acknowledge(ctx context.Context, o operator.Command, id int64, seen OperationStatus) (Operation, error) {
	return ops.changeOperation(ctx, o, operator.ActionOperationAcknowledge, id, seen, func(_ *tx, op *Operation, now int64) error {
		switch {
		case op.Acknowledgeable():
		case op.AcknowledgedAt == nil:
			return event.Conflict("operation %d is still running; acknowledge it once it has ended", id)
		default:
			return event.Conflict("operation %d was acknowledged by %s %s ago", id, op.AcknowledgedBy, event.Age(sqldb.At(now).Sub(*op.AcknowledgedAt)))
		}
		op.AcknowledgedAt, op.AcknowledgedBy = new(sqldb.At(now)), o.By.Name
		return nil
	})
}

// changeOperation performs an action on an operation that must be as the operator saw it.
func (ops *Operations) changeOperation(ctx context.Context, o operator.Command, action operator.Action, id int64, seen OperationStatus, change func(*tx, *Operation, int64) error) (Operation, error) {
	a := &store.Change{Command: o, Action: action, Target: operator.OperationTarget(id)}
	op, err := perform(ctx, ops, a, func(t *tx, now int64) (Operation, error) {
		op, err := t.existingOperation(id)
		if err != nil {
			return op, err
		}
		if seen != "" && seen != op.Status {
			return op, event.Conflict("operation %d has changed since this page was loaded: it is %s, not %s%s", id, op.Status, seen, t.LastActionOn(operator.OperationTarget(id), "", now))
		}
		a.Before = map[string]any{"operation_id": id, "status": op.Status}
		if err := change(t, &op, now); err != nil {
			return op, err
		}
		a.After = map[string]any{"operation_id": id, "status": op.Status, "totals": op.Totals}
		return op, t.saveOperation(&op, now)
	})
	if err == nil && op.ID != id {
		return Operation{}, ops.core.Refused(ctx, a, event.Conflict("this Idempotency-Key was used for operation %d", op.ID))
	}
	return op, err
}
