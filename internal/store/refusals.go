package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

const (
	MaxRefusal = 500             // bytes kept of a refusal
	RecordTime = 5 * time.Second // deadline for writing a refusal's record, even if the caller is gone
)

// RecordRefusal writes an audit record of an action that was refused before any store method
// was called. Its idempotency key stays free. It returns the record's id; a read-only store
// writes none and returns 0.
func (s *Store) RecordRefusal(ctx context.Context, o operator.Command, r operator.RefusedAction) (int64, error) {
	return s.recordRefusal(ctx, &Change{Command: o, Action: r.Action, CampaignID: r.CampaignID, Seq: r.Seq, Target: r.Target}, r.Refusal)
}

// Refused writes an audit record of an action that err refused, unless it has one, in its own
// transaction since the action's was rolled back. It returns err, whose Refusal then names the
// record. Failing to write the record does not change the refusal.
func (s *Store) Refused(ctx context.Context, a *Change, err error) error {
	var refusal *event.Refusal
	if !errors.As(err, &refusal) || refusal.AuditEntryID != 0 || !isRefusal(err) {
		return err
	}
	if id, failed := s.recordRefusal(ctx, a, refusal.Error()); failed == nil {
		refusal.AuditEntryID = id
	}
	return err
}

// isRefusal reports whether err says that the action was wrong, as opposed to a database
// failure.
func isRefusal(err error) bool {
	kinds := []error{event.ErrInvalid, event.ErrNotFound, event.ErrConflict, event.ErrTooLarge}
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// recordRefusal writes the record, or counts the refusal where enough similar ones have a
// record: then it returns the last of those. The action was rolled back, so the record has the
// request or the state before it, and no state after.
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
	kept := *a
	if kept.Before == nil {
		kept.Before = a.Asked
	}
	if !a.summed { // any other refused action changed nothing
		kept.After = nil
	}
	kept.Command.By.Name, kept.Command.Reason = Kept(a.Command.By.Name, event.MaxIDLength), Kept(a.Command.Reason, event.MaxReason)
	kept.CampaignID, kept.Target = Kept(a.CampaignID, event.MaxIDLength), operator.Target(Kept(string(a.Target), MaxRefusal))
	kept.Command.IdempotencyKey = "" // stays free
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordTime)
	defer cancel()
	err = s.journal.Write(ctx, func(t *Tx) (err error) {
		id, err = t.insertEntry(&kept, nil, operator.AuditRefused, Kept(refusal, MaxRefusal), s.Now())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write the audit record of a refused %s: %w", a.Action, err)
	}
	return id, nil
}

// Kept is the part of an unchecked text that a record keeps: at most limit bytes, valid for
// both databases.
func Kept(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
