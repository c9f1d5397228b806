package search

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Misses returns the values of a filter that nothing in the journal has: why a search is empty. Each lookup
// uses an index and is bounded. Hidden values are not found; see outbox.EventFilter.
func (s *Search) Misses(ctx context.Context, f outbox.EventFilter) ([]outbox.Miss, error) {
	var all []outbox.Miss
	err := s.core.Journal().Read(ctx, func(t *store.Tx) error {
		for _, m := range []outbox.Miss{
			{Field: "campaign", Value: f.CampaignID}, {Field: "event_type", Value: f.EventType}, {Field: "event_id", Value: f.EventID},
			{Field: "entity_id", Value: f.EntityID}, {Field: "request_id", Value: f.RequestID},
		} {
			if m.Value == "" || len(m.Value) > outbox.MaxIDLength {
				continue
			}
			known, err := isKnown(t, m.Field, m.Value, f.Shown)
			if err != nil {
				return err
			}
			if !known {
				all = append(all, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find which values of a search exist: %w", err)
	}
	return all, nil
}

// isKnown reports whether an event has a value.
func isKnown(t *store.Tx, field, value string, shown outbox.EventRedactor) (bool, error) {
	f := outbox.EventFilter{Shown: shown, Limit: 1}
	switch field {
	case "campaign":
		var last int64
		return t.One([]any{&last}, selectLastSeq, value)
	case "event_type":
		f.EventType = value
	case "event_id":
		f.EventID = value
	case "entity_id":
		f.EntityID = value
	case "request_id":
		f.RequestID = value
	}
	page, err := lookUp(t, f)
	return len(page.Items) > 0, err
}
