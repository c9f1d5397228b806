package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"outboxweb/internal/outbox"
)

// act is one operator's act on its way through a transaction: what the audit
// record will say.
type act struct {
	order    outbox.Order
	action   string
	campaign string
	seq      int64
	before   any
	after    any
}

const maxReason = 500

// perform runs change in one transaction with its audit record and returns
// its result. An order whose idempotency key was used before is answered with
// the first one's result, without doing anything.
func perform[R any](ctx context.Context, s *Store, a *act, change func(*tx, int64) (R, error)) (R, error) {
	var result, none R
	if err := s.admit(a.order); err != nil {
		return none, err
	}
	err := s.journal.write(ctx, func(t *tx) error {
		if err := t.lockKey(a.order.IdempotencyKey); err != nil {
			return err
		}
		repeated, err := t.repeatedAct(a, &result)
		if err != nil || repeated {
			return err
		}
		now := s.now()
		if result, err = change(t, now); err != nil {
			return err
		}
		return t.record(a, result, now)
	})
	if err != nil {
		return none, err
	}
	s.wakeUp()
	return result, nil
}

// admit refuses an order that no act would follow.
func (s *Store) admit(o outbox.Order) error {
	if len(o.Reason) > maxReason {
		return outbox.Invalid("reason", "the reason is %d bytes long; the limit is %d", len(o.Reason), maxReason)
	}
	return s.refuseReadOnly()
}

// require refuses an act that releases so many rows without what that asks for:
// a reason where the store was told so, and of a person on a page a typed phrase.
func (s *Store) require(o outbox.Order, released int64) error {
	if from := s.options.ReasonFrom; from > 0 && max(released, 1) >= from && strings.TrimSpace(o.Reason) == "" {
		if from == 1 {
			return outbox.Invalid("reason", "every act needs a reason here")
		}
		return outbox.Invalid("reason", "this act releases %d rows; from %d on an act needs a reason here", released, from)
	}
	phrase := outbox.ReleasePhrase(released)
	if o.By.Via == "page" && phrase != "" && strings.TrimSpace(o.Confirm) != phrase {
		return outbox.Invalid("confirm", "this act releases %d rows; to confirm it, type: %s", released, phrase)
	}
	return nil
}

// lockKey lets acts under one idempotency key happen one after the other, where
// transactions do not do so anyway.
func (t *tx) lockKey(key string) error {
	if key == "" || !t.database.dialect.several {
		return nil
	}
	return t.each(func(scanner) error { return nil }, `select pg_advisory_xact_lock($1, hashtext($2))`, 0x6f757463, t.database.schema+" "+key)
}

// repeatedAct reports whether the act was done before under the order's
// idempotency key, and then reads its result.
func (t *tx) repeatedAct(a *act, result any) (bool, error) {
	if a.order.IdempotencyKey == "" {
		return false, nil
	}
	var action, campaign, stored string
	var seq int64
	found, err := t.one([]any{&action, &campaign, &seq, &stored},
		`select action, campaign_id, seq, result from operator_acts where idempotency_key = $1 and idempotency_key <> ''`, a.order.IdempotencyKey)
	switch {
	case err != nil || !found:
		return false, err
	case action != a.action || campaign != a.campaign || seq != a.seq:
		return false, outbox.Conflict("this Idempotency-Key was used for another act: %s of %s", action, target(campaign, seq))
	}
	return true, json.Unmarshal([]byte(stored), result)
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

const insertAct = `
insert into operator_acts (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

func (t *tx) record(a *act, result any, now int64) error {
	var texts [3]string
	for i, v := range []any{a.before, a.after, result} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("write the audit record of %s: %w", a.action, err)
		}
		texts[i] = string(text)
	}
	o := a.order
	_, err := t.exec(insertAct, now, o.By.Name, o.By.Via, o.By.From, a.action, a.campaign, a.seq,
		texts[0], texts[1], o.Reason, o.RequestID, o.IdempotencyKey, texts[2])
	if err != nil {
		return fmt.Errorf("write the audit record of %s: %w", a.action, err)
	}
	return nil
}

// lastAct says who did what last to a row or campaign, or to many at once, for
// a refusal; empty when nobody did anything.
func (t *tx) lastAct(campaign string, seq, now int64) string {
	var last struct {
		id, at        int64
		action, actor string
	}
	for _, of := range []string{campaign, ""} {
		found := last
		ok, err := t.one([]any{&found.id, &found.action, &found.actor, &found.at},
			`select id, action, actor, at from operator_acts where campaign_id = $1 and (seq = $2 or seq = 0) and action <> 'note_errors' order by id desc limit 1`, of, seq)
		if err == nil && ok && found.id > last.id {
			last = found
		}
	}
	if last.id == 0 {
		return ""
	}
	return fmt.Sprintf("; last act: %s by %s %s ago", strings.ReplaceAll(last.action, "_", " "), last.actor, outbox.Age(at(now).Sub(at(last.at))))
}

// rowState is what an audit record keeps of a row.
type rowState struct {
	Status   outbox.Status `json:"status"`
	Attempts int           `json:"attempt_count"`
	Due      string        `json:"next_attempt_at,omitempty"`
}

func stateOf(r outbox.Row) rowState {
	return rowState{Status: r.Status, Attempts: r.AttemptCount, Due: r.NextAttemptAt.Format("2006-01-02T15:04:05.999999Z07:00")}
}

// expectCampaign compares the head the operator was shown with the one that is
// there.
func (t *tx) expectCampaign(o outbox.Order, c *campaignRow, now int64) error {
	if o.Expected == nil {
		return nil
	}
	seen := *o.Expected
	seen.AttemptCount = nil
	o.Expected = &seen
	return t.expect(o, outbox.Row{CampaignID: c.id, Status: outbox.Status(c.headStatus.String)}, c, now)
}

// expect compares what the operator was shown with what is there.
func (t *tx) expect(o outbox.Order, row outbox.Row, c *campaignRow, now int64) error {
	e := o.Expected
	if e == nil {
		return nil
	}
	var changes []string
	if e.Status != "" && e.Status != row.Status {
		changes = append(changes, fmt.Sprintf("status is %s, not %s", row.Status, e.Status))
	}
	if e.AttemptCount != nil && *e.AttemptCount != row.AttemptCount {
		changes = append(changes, fmt.Sprintf("it has %d failed attempts, not %d", row.AttemptCount, *e.AttemptCount))
	}
	if e.HeadSeq != 0 && e.HeadSeq != c.head.Int64 {
		changes = append(changes, fmt.Sprintf("the head is event %d, not %d", c.head.Int64, e.HeadSeq))
	}
	if len(changes) == 0 {
		return nil
	}
	return outbox.Conflict("%s has changed since you looked: %s%s", target(row.CampaignID, row.Seq),
		strings.Join(changes, ", "), t.lastAct(row.CampaignID, row.Seq, now))
}

// Act reads one audit record. A missing one is outbox.ErrNotFound.
func (s *Store) Act(ctx context.Context, id int64) (outbox.Act, error) {
	var found []outbox.Act
	err := s.journal.read(ctx, func(t *tx) (err error) {
		found, err = t.acts(outbox.ActFilter{}, id+1, 1)
		return err
	})
	if err != nil {
		return outbox.Act{}, fmt.Errorf("read act %d: %w", id, err)
	}
	if len(found) == 0 || found[0].ID != id {
		return outbox.Act{}, outbox.NotFound("there is no act %d", id)
	}
	return found[0], nil
}

// Acts pages through the audit records, newest first.
func (s *Store) Acts(ctx context.Context, f outbox.ActFilter) (outbox.Page[outbox.Act], error) {
	limit := pageLimit(f.Limit, 200)
	page := outbox.Page[outbox.Act]{Items: []outbox.Act{}}
	before, err := cursorNumbers(f.Cursor, 1)
	if err != nil {
		return page, err
	}
	err = s.journal.read(ctx, func(t *tx) error {
		var err error
		page.Items, err = t.acts(f, before[0], limit+1)
		return err
	})
	if err != nil {
		return page, fmt.Errorf("list acts: %w", err)
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.NextCursor = cursorOf(page.Items[limit-1].ID)
	}
	return page, nil
}

const (
	selectActs = `
select id, at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id
from operator_acts
where (cast($1 as bigint) = 0 or id < $1)
  and ($2 = '' or actor = $2)
  and ($3 = '' or action = $3)
order by id desc
limit $4`

	selectCampaignActs = `
select id, at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id
from operator_acts
where (cast($1 as bigint) = 0 or id < $1)
  and ($2 = '' or actor = $2)
  and ($3 = '' or action = $3)
  and campaign_id = $5
  and (cast($6 as bigint) = 0 or seq = $6)
order by id desc
limit $4`
)

func (t *tx) acts(f outbox.ActFilter, before int64, limit int) ([]outbox.Act, error) {
	acts := []outbox.Act{}
	scan := func(rows scanner) error {
		var a outbox.Act
		var when int64
		var beforeText, afterText string
		err := rows.Scan(&a.ID, &when, &a.Actor, &a.Via, &a.From, &a.Action, &a.CampaignID, &a.Seq,
			&beforeText, &afterText, &a.Reason, &a.RequestID)
		a.At, a.Before, a.After = at(when), json.RawMessage(beforeText), json.RawMessage(afterText)
		acts = append(acts, a)
		return err
	}
	var err error
	if f.CampaignID == "" {
		err = t.each(scan, selectActs, before, f.Actor, f.Action, limit)
	} else {
		err = t.each(scan, selectCampaignActs, before, f.Actor, f.Action, limit, f.CampaignID, f.Seq)
	}
	return acts, err
}
