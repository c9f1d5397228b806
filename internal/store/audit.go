package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Change is one operator action during its transaction: what the audit record will say.
type Change struct {
	Command    operator.Command
	Action     operator.Action
	CampaignID string
	Seq        int64
	Target     operator.Target // an additional target
	Before     any
	After      any
	// Asked is the request where action and target do not say it all. It is recorded if neither
	// before nor after has it.
	Asked any
	// Touched are the rows changed by an action on many rows.
	Touched []event.RowKey
	// summed marks a record that stands for many refusals, counted in after.
	summed bool
}

// ErrHeld marks the refusal of an action that needs a campaign without a lease.
var ErrHeld = errors.New("lease held")

// Perform runs change in one transaction with its audit record and returns its result. A
// command whose idempotency key was used before returns the first result and does nothing. A
// refused command leaves an audit record too, except a refusal because of a lease: the caller
// retries those and records the last one.
func Perform[R any](ctx context.Context, s *Store, a *Change, change func(*Tx, int64) (R, error)) (R, error) {
	result, err := tryChange(ctx, s, a, change)
	if err != nil && !errors.Is(err, ErrHeld) {
		err = s.Refused(ctx, a, err)
	}
	return result, err
}

// DoneTime bounds recording what is already done or decided, even if the caller is gone.
const DoneTime = 10 * time.Second

// PerformOutside is Perform for an action that do carries out outside of the journal, once admit has not
// refused it. What it returns is recorded, with what record changes in the journal, even if ctx ends meanwhile.
// A command whose idempotency key was used before returns the first result, and nothing is done.
func PerformOutside[R any](ctx context.Context, s *Store, a *Change, admit func(*Tx) error, do func(context.Context) (R, error), record func(*Tx, R, int64) error) (R, error) {
	var result R
	done := false
	err := cmp.Or(s.Admit(a.Command), s.RequireReason(a.Command, 0))
	if err == nil {
		err = s.journal.Read(ctx, func(t *Tx) (err error) {
			if done, err = t.RepeatedChange(a, &result); err == nil && !done {
				err = admit(t)
			}
			return err
		})
	}
	if err != nil || done {
		return result, s.Refused(ctx, a, err)
	}
	if result, err = do(ctx); err != nil {
		return result, err
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), DoneTime)
	defer cancel()
	a.After = result
	return Perform(recording, s, a, func(t *Tx, now int64) (R, error) { return result, record(t, result, now) })
}

func tryChange[R any](ctx context.Context, s *Store, a *Change, change func(*Tx, int64) (R, error)) (R, error) {
	var result, none R
	if err := s.Admit(a.Command); err != nil {
		return none, err
	}
	err := s.journal.Write(ctx, func(t *Tx) error {
		if err := t.lockKey(a.Command.IdempotencyKey); err != nil {
			return err
		}
		repeated, err := t.RepeatedChange(a, &result)
		if err != nil || repeated {
			return err
		}
		now := s.Now()
		if result, err = change(t, now); err != nil {
			return err
		}
		return t.Record(a, result, now)
	})
	if err != nil {
		return none, err
	}
	s.WakeUp()
	s.Changed()
	return result, nil
}

// Admit refuses a command that is invalid for every action.
func (s *Store) Admit(o operator.Command) error {
	if len(o.Reason) > event.MaxReason {
		return event.Invalid("reason", "the reason is %d bytes long; the limit is %d", len(o.Reason), event.MaxReason)
	}
	if o.Lasts == operator.UntilResumed && o.Reason == "" {
		return event.Invalid("reason", "a pause that does not end by itself takes a reason")
	}
	return s.Refuse()
}

// Require refuses an action on one row that releases this many rows without the required
// confirmation: a reason where the store is configured to ask for one, and a typed phrase.
func (s *Store) Require(o operator.Command, released int64) error {
	if err := s.RequireReason(o, released); err != nil {
		return err
	}
	return operator.ActionRequeue.Confirm(o.Confirm, operator.Reach{Released: released})
}

// RequireReason refuses an action that releases this many rows without a reason, where the
// store is configured to ask for one.
func (s *Store) RequireReason(o operator.Command, released int64) error {
	if from := s.options.ReasonFrom; operator.NeedsReason(from, released) && strings.TrimSpace(o.Reason) == "" {
		if from == 1 {
			return event.Invalid("reason", "every action requires a reason")
		}
		return event.Invalid("reason", "this action releases %s; actions that release %d or more require a reason", event.Count(released, "row", "rows"), from)
	}
	return nil
}

// lockKey serializes actions under one idempotency key where transactions are not serialized
// anyway.
func (t *Tx) lockKey(key string) error {
	if key == "" {
		return nil
	}
	return t.Lock(lockKeys, key)
}

// RepeatedChange reports whether the action was already done under the command's idempotency
// key, and if so reads its result.
func (t *Tx) RepeatedChange(a *Change, result any) (bool, error) {
	if a.Command.IdempotencyKey == "" {
		return false, nil
	}
	var action operator.Action
	var auth operator.Auth
	var actor, campaign, stored, before, after string
	var seq int64
	found, err := t.One([]any{&actor, &auth, &action, &campaign, &seq, &stored, &before, &after},
		`select actor, auth, action, campaign_id, seq, result, before, after from audit_log where idempotency_key = $1 and idempotency_key <> ''`, a.Command.IdempotencyKey)
	switch {
	case err != nil || !found:
		return false, err
	case auth != "" && (actor != a.Command.By.Name || auth != a.Command.By.Auth): // older records have no authentication method
		return false, event.Conflict("this Idempotency-Key was used by another identity; use a new one")
	case action != a.Action || campaign != a.CampaignID || seq != a.Seq:
		return false, event.Conflict("this Idempotency-Key was used for another action: %s of %s", action, targetOf(action, campaign, seq, before))
	}
	if a.Asked != nil {
		asked, err := json.Marshal(a.Asked)
		if err != nil {
			return false, fmt.Errorf("write what %s was asked: %w", a.Action, err)
		}
		if text := string(asked); text != before && text != after {
			return false, event.Conflict("this Idempotency-Key was used for the same action with different content: %s of %s", action, targetOf(action, campaign, seq, before))
		}
	}
	return true, json.Unmarshal([]byte(stored), result)
}

// targetOf is the target of an action, taken from its audit record.
func targetOf(action operator.Action, campaign string, seq int64, before string) string {
	var sub operator.SubscriptionName
	if action.OnPublisher() && json.Unmarshal([]byte(before), &sub) == nil {
		if sub.Topic == "" {
			return string(operator.PublishersTarget(sub.Publisher))
		}
		return "publisher " + sub.String()
	}
	return target(campaign, seq)
}

func target(campaign string, seq int64) string {
	switch {
	case campaign == "":
		return "all campaigns"
	case seq == 0:
		return fmt.Sprintf("campaign %q", campaign)
	default:
		return fmt.Sprintf("campaign %q seq %d", campaign, seq)
	}
}

const insertAuditEntry = `
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, auth, role, target, outcome, refusal)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
returning id`

// insertEntry writes an audit record; refusal is empty for an action that was done.
func (t *Tx) insertEntry(a *Change, result any, outcome operator.AuditOutcome, refusal string, now int64) (id int64, err error) {
	o := a.Command
	_, err = t.One([]any{&id}, insertAuditEntry, now, o.By.Name, o.By.Via, o.By.From, string(a.Action), a.CampaignID, a.Seq,
		sqldb.JSON(a.Before), sqldb.JSON(a.After), o.Reason, o.RequestID, o.IdempotencyKey, sqldb.JSON(result),
		string(o.By.Auth), string(o.By.Role), string(a.Target), string(outcome), refusal)
	return id, err
}

// Record writes the audit record of a completed action, in its transaction.
func (t *Tx) Record(a *Change, result any, now int64) error {
	id, err := t.insertEntry(a, result, operator.AuditDone, "", now)
	if err != nil {
		return fmt.Errorf("write the audit record of %s: %w", a.Action, err)
	}
	return t.RecordTargets(id, a.Touched, now)
}

// ExpectCampaign compares the head that the operator was shown with the current one.
func (t *Tx) ExpectCampaign(o operator.Command, c *CampaignRow, now int64) error {
	if o.Expected == nil {
		return nil
	}
	seen := *o.Expected
	seen.AttemptCount, seen.UpdatedAt = nil, nil
	o.Expected = &seen
	return t.Expect(o, campaign.Row{CampaignID: c.ID, Status: event.Status(c.HeadStatus.String)}, c, now)
}

// Expect compares the state that the operator was shown with the current one.
func (t *Tx) Expect(o operator.Command, row campaign.Row, c *CampaignRow, now int64) error {
	e := o.Expected
	if e == nil {
		return nil
	}
	var changes []string
	if e.Status != "" && e.Status != row.Status {
		changes = append(changes, fmt.Sprintf("status is %s, not %s", row.Status, e.Status))
	}
	if e.AttemptCount != nil && *e.AttemptCount != row.AttemptCount {
		changes = append(changes, fmt.Sprintf("it has %s, not %d", event.Count(int64(row.AttemptCount), "failed attempt", "failed attempts"), *e.AttemptCount))
	}
	if e.HeadSeq != 0 && e.HeadSeq != c.Head.Int64 {
		changes = append(changes, fmt.Sprintf("the head is event %d, not %d", c.Head.Int64, e.HeadSeq))
	}
	if len(changes) == 0 && e.UpdatedAt != nil && !e.UpdatedAt.Equal(row.UpdatedAt) {
		changes = append(changes, fmt.Sprintf("it became %s again at %s", row.Status, row.UpdatedAt.UTC().Format(time.RFC3339)))
	}
	if len(changes) == 0 {
		return nil
	}
	return event.Conflict("%s has changed since this page was loaded: %s%s", target(row.CampaignID, row.Seq),
		strings.Join(changes, ", "), t.LastAction(row.CampaignID, row.Seq, now))
}

// AuditEntry reads one audit record. A missing one is event.ErrNotFound.
func (s *Store) AuditEntry(ctx context.Context, id int64) (operator.AuditEntry, error) {
	found, err := Reading(ctx, s, fmt.Sprintf("read audit record %d", id), func(t *Tx) (sqldb.Stretch[operator.AuditEntry], error) {
		return AuditList(operator.AuditFilter{}).Read(t, sqldb.Place{Key: []any{id + 1}}, 1)
	})
	if err != nil {
		return operator.AuditEntry{}, err
	}
	if len(found.Items) == 0 || found.Items[0].ID != id {
		return operator.AuditEntry{}, event.NotFound("there is no audit record %d", id)
	}
	return found.Items[0], nil
}

// AuditEntryOfKey finds the audit record made under an idempotency key; 0 when there is none.
func (s *Store) AuditEntryOfKey(ctx context.Context, key string) (int64, error) {
	return Reading(ctx, s, "find the action of a key", func(t *Tx) (id int64, err error) {
		_, err = t.One([]any{&id}, `select id from audit_log where idempotency_key = $1 and idempotency_key <> ''`, key)
		return id, err
	})
}

// AuditLog pages through the audit records, newest first unless the filter says otherwise. A
// page scans a bounded number of records and may end early, with Partial set.
func (s *Store) AuditLog(ctx context.Context, f operator.AuditFilter) (event.Page[operator.AuditEntry], error) {
	return Reading(ctx, s, "list acts", func(t *Tx) (event.Page[operator.AuditEntry], error) {
		w := auditWalkOf(f)
		page, err := w.Page(t, f.Cursor, f.Limit)
		if err == nil && !sqldb.Told(&page) {
			err = AuditBy.Total(t, &page, w.count, w.Args, f, w.by...)
		}
		return page, err
	})
}

// LatestActs lists the latest of the audit records that f selects, at most its limit, without counting them.
func (s *Store) LatestActs(ctx context.Context, f operator.AuditFilter) ([]operator.AuditEntry, error) {
	return Reading(ctx, s, "list the latest acts", func(t *Tx) ([]operator.AuditEntry, error) {
		found, err := AuditList(f).Read(t, sqldb.Place{}, f.Limit)
		return found.Items, err
	})
}

// AuditLogOf lists the latest actions on any of the targets, refused ones included, newest first.
func (s *Store) AuditLogOf(ctx context.Context, limit int, targets ...operator.Target) ([]operator.AuditEntry, error) {
	return Reading(ctx, s, fmt.Sprintf("list the actions on %s", targets[0]), func(t *Tx) (all []operator.AuditEntry, err error) {
		for _, target := range targets {
			found, err := AuditList(operator.AuditFilter{Target: target}).Read(t, sqldb.Place{}, limit)
			if err != nil {
				return nil, err
			}
			all = append(all, found.Items...)
		}
		slices.SortFunc(all, func(a, b operator.AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
		return all[:min(limit, len(all))], nil
	})
}

// AuditLogInPages reads the audit records that f selects, page by page like RowsInPages.
func (s *Store) AuditLogInPages(ctx context.Context, f operator.AuditFilter) iter.Seq2[[]operator.AuditEntry, error] {
	return sqldb.InPages(ctx, s.journal.DB, AuditList(f), f.Cursor)
}

const selectAudit = `
select id, at, actor, auth, role, via, origin, action, campaign_id, seq, target, outcome, refusal, before, after, reason, request_id
from audit_log
`

var (
	auditAll = sqldb.BothWays(selectAudit + `where id {>} $1
order by id{desc}
limit $2`)

	auditOfTarget = sqldb.BothWays(selectAudit + `where id {>} $1
  and target = $2
  and target <> ''
order by id{desc}
limit $3`)
)

// AuditBy selects audit records.
var AuditBy = sqldb.FilterOf[operator.AuditFilter, operator.AuditEntry](nil)

// auditWalk is a list of audit records, and how they are counted.
type auditWalk struct {
	*sqldb.List[operator.AuditEntry]
	by    []string // the fields of the filter by which both queries select
	count string
}

// AuditList is the list of the records that a filter selects, the latest first.
func AuditList(f operator.AuditFilter) *sqldb.List[operator.AuditEntry] { return auditWalkOf(f).List }

func auditWalkOf(f operator.AuditFilter) auditWalk {
	w := auditWalk{count: countAudit, List: sqldb.Newest("acts"+sqldb.Towards(!f.Reverse), auditAll, scanAuditEntry, func(a operator.AuditEntry) int64 { return a.ID })}
	w.Down = !f.Reverse
	switch {
	case f.CampaignID != "": // with the records on many rows, which name no campaign
		w.by, w.Query, w.count, w.Args = []string{"campaign", "seq"}, auditOfCampaign, countCampaignAudit, []any{f.CampaignID, f.Seq}
	case f.Target != "":
		w.by, w.Query, w.count, w.Args = []string{"target"}, auditOfTarget, countTargetAudit, []any{string(f.Target)}
	}
	w.Match = AuditBy.Match(f, w.by...)
	return w
}

func scanAuditEntry(rows sqldb.Row) (operator.AuditEntry, error) {
	var a operator.AuditEntry
	var before, after string
	err := rows.Scan(&a.ID, sqldb.ScanTime(&a.At), &a.Actor, &a.Auth, &a.Role, &a.Via, &a.From, &a.Action, &a.CampaignID, &a.Seq,
		&a.Target, &a.Outcome, &a.Refusal, &before, &after, &a.Reason, &a.RequestID)
	a.Before, a.After = json.RawMessage(before), json.RawMessage(after)
	return a, err
}

var (
	countAudit       = AuditBy.Count("audit_log\n  order by id desc\n  limit $1", 1)
	countTargetAudit = AuditBy.Count(`audit_log
  where target = $2
    and target <> ''
  order by id desc
  limit $1`, 2)
)
