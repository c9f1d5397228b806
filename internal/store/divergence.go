package store

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// WatermarkOf reads the watermark of a campaign; the zero value for a campaign without
// projections.
func (s *Store) WatermarkOf(ctx context.Context, id string) (readmodel.Watermark, error) {
	marks, err := s.readmodel.Watermarks(ctx, []string{id})
	return marks[id], err
}

// Strange is the reason for a watermark whose event the journal does not have. It is stored
// with the campaign and must stay true after further appends, so it does not say whether the
// journal ends before that event or has another in its place.
func Strange(w readmodel.Watermark) string {
	return fmt.Sprintf("the projections have an event %d that the journal does not have", w.AppliedSeq)
}

// Divergence says how a watermark contradicts the journal; empty when it does not.
func (t *Tx) Divergence(c *CampaignRow, w readmodel.Watermark) (string, error) {
	if w.AppliedSeq == 0 {
		return "", nil
	}
	if w.AppliedSeq > c.HighWater {
		return Strange(w), nil
	}
	var hash string
	found, err := t.One([]any{&hash}, SelectChainHash, c.ID, w.AppliedSeq)
	if err == nil && (!found || hash != w.AppliedHash) {
		return Strange(w), nil
	}
	return "", err
}

// Divergence says how a watermark contradicts the journal; empty when it does not. The
// watermark must be read before the call, so that the journal has the events that it counts.
func (s *Store) Divergence(ctx context.Context, campaign string, w readmodel.Watermark) (reason string, err error) {
	return Reading(ctx, s, "", func(t *Tx) (string, error) {
		c, _, err := t.Campaign(campaign) // an unknown one ends at 0
		if err != nil {
			return "", err
		}
		c.ID = campaign
		return t.Divergence(c, w)
	})
}
