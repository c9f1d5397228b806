package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// EventHistory lists the steps of an event: appended, each failed attempt, operator actions on
// it or its row, and when and by which worker it was applied. Steps older than the retention of
// history and audit records are missing. A missing event is event.ErrNotFound.
func (s *Store) EventHistory(ctx context.Context, campaignID string, seq int64) (campaign.EventHistory, error) {
	h := campaign.EventHistory{CampaignID: campaignID, Seq: seq, Steps: []campaign.EventStep{}}
	err := s.journal.Read(ctx, func(t *Tx) error {
		c, err := t.ExistingCampaign(campaignID)
		if err != nil {
			return err
		}
		for _, read := range []func(*campaign.EventHistory, *CampaignRow) error{t.readAppended, t.readFailed, t.readActivity, t.readApplied} {
			if err := read(&h, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return h, fmt.Errorf("read what happened to campaign %q seq %d: %w", campaignID, seq, err)
	}
	slices.SortStableFunc(h.Steps, func(a, b campaign.EventStep) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(stepOrder[a.Kind], stepOrder[b.Kind]))
	})
	return h, nil
}

// stepOrder is the order of steps with the same time.
var stepOrder = map[campaign.StepKind]int{
	campaign.StepAppended: 0, campaign.StepFailed: 1, campaign.StepDied: 2, campaign.StepQuarantined: 2, campaign.StepActed: 3, campaign.StepPassedOver: 4, campaign.StepApplied: 4,
}

func (t *Tx) readAppended(h *campaign.EventHistory, c *CampaignRow) error {
	step := campaign.EventStep{Kind: campaign.StepAppended}
	found, err := t.One([]any{sqldb.ScanTime(&step.At)}, SelectAppended, c.ID, h.Seq)
	if err == nil && !found {
		err = t.MissingEvent(c.ID, h.Seq)
	}
	h.Steps = append(h.Steps, step)
	return err
}

func (t *Tx) readFailed(h *campaign.EventHistory, c *CampaignRow) error {
	attempts, err := t.Attempts(c.ID, h.Seq)
	h.Partial = h.Partial || len(attempts) == AttemptsShown
	for i := range attempts {
		a := &attempts[i]
		step := campaign.EventStep{Kind: campaign.StepFailed, At: a.At, Attempt: a}
		switch {
		case a.Died:
			step.Kind = campaign.StepDied
		case a.Quarantined:
			step.Kind = campaign.StepQuarantined
		}
		h.Steps = append(h.Steps, step)
	}
	return err
}

// activityTold is the maximum number of actions in a history.
const activityTold = 50

const selectTouched = `
select entry_id, at
from audit_log_rows
where campaign_id = $1
  and $2 between first_seq and last_seq
order by entry_id desc
limit $3`

func (t *Tx) readActivity(h *campaign.EventHistory, c *CampaignRow) error {
	acts, err := AuditList(operator.AuditFilter{CampaignID: c.ID, Seq: h.Seq, Outcome: operator.AuditDone}).Read(t, sqldb.Place{}, activityTold)
	if err != nil {
		return err
	}
	touched := map[int64]int64{} // an action on many rows reached the event later than it began
	err = t.Each(sqldb.CollectMap(touched), selectTouched, c.ID, h.Seq, activityTold)
	h.Partial = h.Partial || acts.Ending != sqldb.AtEnd
	for i := range acts.Items {
		a := &acts.Items[i]
		if a.Action.Effect() == operator.ShowsHidden {
			continue
		}
		step := campaign.EventStep{Kind: campaign.StepActed, At: a.At, AuditEntry: a}
		if when, known := touched[a.ID]; known {
			step.At = sqldb.At(when)
		}
		h.Steps = append(h.Steps, step)
	}
	return err
}

const selectPassed = `
select applied_at
from skips
where campaign_id = $1
  and seq = $2
  and applied_at is not null`

func (t *Tx) readApplied(h *campaign.EventHistory, c *CampaignRow) error {
	spans, err := t.spansOf(c, h.Seq)
	if err != nil {
		return err
	}
	passed, err := sqldb.All(t, sqldb.Column[int64], selectPassed, c.ID, h.Seq) // when the event was skipped over
	for _, p := range spans {
		view := p.view()
		step := campaign.EventStep{Kind: campaign.StepApplied, At: view.EndedAt, Span: &view}
		for _, when := range passed {
			if p.began <= when && when <= p.ended {
				step.Kind, step.At = campaign.StepPassedOver, sqldb.At(when)
			}
		}
		h.Steps = append(h.Steps, step)
	}
	return err
}

// SeqBefore returns the seq of a campaign's last event that was recorded before a time, 0 if there
// is none.
func (s *Store) SeqBefore(ctx context.Context, c campaign.Campaign, at time.Time) (int64, error) {
	limit, what := at.UnixMicro(), fmt.Sprintf("look for the events of campaign %q at a time", c.CampaignID)
	return Reading(ctx, s, what, func(t *Tx) (before int64, err error) {
		before = int64(sort.Search(int(c.HighWaterSeq), func(i int) bool {
			var when int64
			found, failed := t.One([]any{&when}, SelectAppended, c.CampaignID, i+1)
			err = errors.Join(err, failed)
			return found && when >= limit
		}))
		return before, err
	})
}
