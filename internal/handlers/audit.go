package handlers

import (
	"context"
	"time"

	"outboxweb/internal/outbox"
)

// auditAnswer is a page of audit records as the API has it.
type auditAnswer struct {
	outbox.Page[outbox.AuditEntry]
	RemovedBefore *time.Time `json:"removed_before"` // records from before then were removed, as --keep-audit says; nil when none were
}

// audit reads a page of audit records, and from before when they were removed.
func (s *server) audit(ctx context.Context, f outbox.AuditFilter) (outbox.Page[outbox.AuditEntry], time.Time, error) {
	page, err := s.Store.AuditLog(ctx, f)
	if err != nil {
		return page, time.Time{}, err
	}
	removed, err := s.maintenance.AuditLogRemovedBefore(ctx)
	return page, removed, err
}

// actsShownOf is how many of the latest acts the page of what they were about
// shows.
const activityShownOf = 20

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
