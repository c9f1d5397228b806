package handlers

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// auditAnswer is a page of audit records in the API.
type auditAnswer struct {
	event.Page[operator.AuditEntry]
	RemovedBefore *time.Time `json:"removed_before"` // older records were removed, as configured by --keep-audit; nil when none were
}

// audit reads a page of audit records, and the time before which records were removed.
func (s *server) audit(ctx context.Context, f operator.AuditFilter) (event.Page[operator.AuditEntry], time.Time, error) {
	page, err := s.Store.AuditLog(ctx, f)
	if err != nil {
		return page, time.Time{}, err
	}
	removed, err := s.maintenance.AuditLogRemovedBefore(ctx)
	return page, removed, err
}

// activityShownOf is how many of the latest actions an object's page shows.
const activityShownOf = 20
