package store

import (
	"context"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// revealedEvent is the audit record of a reveal: it identifies the content shown, without any
// of it.
type revealedEvent struct {
	EventType string `json:"event_type"`
	EventHash string `json:"event_hash"`
}

// Reveal reads an event with its row's errors unredacted, for a caller who may see hidden
// content, and records that. It requires a reason. Every call writes its own record, and the
// command's idempotency key is ignored: otherwise a caller could reuse a key to read again
// unrecorded. A missing event is event.ErrNotFound; a read-only store cannot record, and so
// reveals nothing.
func (s *Store) Reveal(ctx context.Context, o operator.Command, campaignID string, seq int64) (campaign.Revealed, error) {
	o.IdempotencyKey = ""
	a := &Change{Command: o, Action: operator.ActionReveal, CampaignID: campaignID, Seq: seq}
	_, err := Perform(ctx, s, a, func(t *Tx, _ int64) (revealedEvent, error) {
		e, err := t.skippableEvent(campaignID, seq)
		if err == nil && strings.TrimSpace(o.Reason) == "" {
			err = event.Invalid("reason", "revealing an event requires a reason")
		}
		shown := revealedEvent{EventType: e.EventType, EventHash: e.EventHash}
		a.After = shown
		return shown, err
	})
	if err != nil {
		return campaign.Revealed{}, err
	}
	return Reading(ctx, s, "", func(t *Tx) (r campaign.Revealed, err error) {
		if r.Event, err = t.skippableEvent(campaignID, seq); err != nil {
			return r, err
		}
		row, found, err := t.Row(campaignID, seq)
		if err != nil || !found {
			return r, err
		}
		r.Row = &row
		r.Attempts, err = t.Attempts(campaignID, seq)
		return r, err
	})
}
