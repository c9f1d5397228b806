package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

const (
	MaxRefusal = 500             // bytes of a refusal that are kept
	RecordTime = 5 * time.Second // for the record of a refusal, whatever became of who asked
)

const insertRefusal = `
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, auth, role, target, outcome, refusal)
values ($1, $2, $3, $4, $5, $6, $7, $8, $15, $9, $10, '', 'null', $11, $12, $13, 'refused', $14)
returning id`

// RecordRefusal leaves an audit record of an action that was refused before a
// store method was asked for it. Its idempotency key stays free. It returns the
// record's id; a store that is read-only writes none, and returns 0.
func (s *Store) RecordRefusal(ctx context.Context, o outbox.Command, r outbox.RefusedAction) (int64, error) {
	return s.recordRefusal(ctx, &Change{Order: o, Action: r.Action, CampaignID: r.CampaignID, Seq: r.Seq, Target: r.Target}, r.Refusal)
}

// Refused leaves an audit record of an action that err refused, unless it has one,
// in a transaction of its own: the action's was rolled back. It returns err, whose
// Refusal then names the record. A record that cannot be written changes nothing
// about the refusal.
func (s *Store) Refused(ctx context.Context, a *Change, err error) error {
	var refusal *outbox.Refusal
	if !errors.As(err, &refusal) || refusal.Act != 0 || !isRefusal(err) {
		return err
	}
	if id, failed := s.recordRefusal(ctx, a, refusal.Error()); failed == nil {
		refusal.Act = id
	}
	return err
}

// isRefusal reports whether err says that the action was wrong, and not that the
// database was not there to do it.
func isRefusal(err error) bool {
	for _, kind := range []error{outbox.ErrInvalid, outbox.ErrNotFound, outbox.ErrConflict, outbox.ErrTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// recordRefusal writes the record, or counts the refusal where enough like it
// have one: then it returns the last of those. What the action changed has been
// undone, so the record has the request or the state before it, and nothing of
// the state after.
func (s *Store) recordRefusal(ctx context.Context, a *Change, refusal string) (id int64, err error) {
	if s.options.ReadOnly {
		return 0, nil
	}
	like, counted := s.refusals.count(a, refusal, s.Now())
	if counted {
		return like.record.Load(), nil
	}
	id, err = s.writeRefusal(ctx, a, refusal)
	if err == nil {
		like.record.Store(id)
	}
	return id, err
}

func (s *Store) writeRefusal(ctx context.Context, a *Change, refusal string) (id int64, err error) {
	before := a.Before
	if before == nil {
		before = a.Asked
	}
	text, err := json.Marshal(before)
	if err != nil {
		return 0, fmt.Errorf("write the audit record of a refused %s: %w", a.Action, err)
	}
	after := "null"
	if a.summed { // of any other, what it was to change has not been changed
		text, err := json.Marshal(a.After)
		if err != nil {
			return 0, fmt.Errorf("write the audit record of a refused %s: %w", a.Action, err)
		}
		after = string(text)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordTime)
	defer cancel()
	o := a.Order
	err = s.journal.Write(ctx, func(t *Tx) error {
		_, err := t.One([]any{&id}, insertRefusal, s.Now(), Kept(o.By.Name, outbox.MaxIDLength), o.By.Via, o.By.From, string(a.Action),
			Kept(a.CampaignID, outbox.MaxIDLength), a.Seq, string(text), Kept(o.Reason, outbox.MaxReason), o.RequestID,
			string(o.By.Auth), string(o.By.Role), Kept(string(a.Target), MaxRefusal), Kept(refusal, MaxRefusal), after)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the audit record of a refused %s: %w", a.Action, err)
	}
	return id, nil
}

// Kept is what a record keeps of a text that nobody has judged yet: so many
// bytes at the most, as both databases take them.
func Kept(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
