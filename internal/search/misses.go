package search

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Misses returns the values of a filter that nothing in the journal has: why a search is empty. Each lookup
// uses an index and is bounded. Hidden values are not found; see EventFilter.
func (s *Search) Misses(ctx context.Context, f EventFilter) ([]Miss, error) {
	return sqldb.Reading(ctx, s.core.Journal(), "find which values of a search exist", func(t *store.Tx) (all []Miss, err error) {
		for _, m := range []struct {
			field, value string
			by           EventFilter
		}{
			{"campaign", f.CampaignID, EventFilter{CampaignID: f.CampaignID}},
			{"event_type", f.EventType, EventFilter{EventType: f.EventType}}, {"event_id", f.EventID, EventFilter{EventID: f.EventID}},
			{"entity_id", f.EntityID, EventFilter{EntityID: f.EntityID}}, {"request_id", f.RequestID, EventFilter{RequestID: f.RequestID}},
		} {
			if m.value == "" || len(m.value) > event.MaxIDLength {
				continue
			}
			m.by.Shown, m.by.Limit = f.Shown, 1
			known, err := isKnown(t, m.by)
			if err != nil {
				return nil, err
			}
			if !known {
				all = append(all, Miss{Field: m.field, Value: m.value})
			}
		}
		return all, nil
	})
}

// isKnown reports whether there is the campaign of a filter, or an event that it selects.
func isKnown(t *store.Tx, f EventFilter) (bool, error) {
	if f.CampaignID != "" {
		return t.One([]any{new(int64)}, selectLastSeq, f.CampaignID)
	}
	page, err := lookUp(t, f)
	return len(page.Items) > 0, err
}
