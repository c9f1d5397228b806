package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
)

// items is an unpaged list.
type items[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"` // always nil
}

func listOf[T any](all []T) items[T] {
	if all == nil {
		all = []T{}
	}
	return items[T]{Items: all}
}

type campaignView = campaign.CampaignView

// viewCampaign returns a campaign as the API shows it. Its secrets are hidden before its sentence
// is composed, because they could not be recognized in it afterwards.
func (s *server) viewCampaign(c campaign.Campaign, around campaign.Surroundings) campaignView {
	return redact.Shown(s.Redact, c).View(s.Now(), around)
}

func (s *server) viewCampaigns(ctx context.Context, f campaign.CampaignFilter) (view event.Page[campaignView], err error) {
	page, err := s.Store.Campaigns(ctx, f)
	if err != nil {
		return view, err
	}
	return event.Page[campaignView]{Items: s.viewListed(ctx, page.Items), NextCursor: page.NextCursor, PrevCursor: page.PrevCursor,
		Total: page.Total, TotalCapped: page.TotalCapped, Partial: page.Partial}, nil
}

// viewListed returns campaigns as lists and exports show them.
func (s *server) viewListed(ctx context.Context, campaigns []campaign.Campaign) []campaignView {
	around, held := s.around(ctx), s.heldIn(ctx, campaigns)
	views := make([]campaignView, len(campaigns))
	for i, c := range campaigns {
		views[i] = s.viewCampaign(c, around).WithHeldProjections(held[c.CampaignID])
	}
	return views
}

// heldIn returns, by campaign, the cursors of projections that are not live; nil if they cannot be
// read, since a list is worth reading without them.
func (s *server) heldIn(ctx context.Context, campaigns []campaign.Campaign) map[string][]campaign.Cursor {
	ids := make([]string, len(campaigns))
	for i, c := range campaigns {
		ids[i] = c.CampaignID
	}
	held, err := s.Runs.Held(ctx, s.Projections, ids...)
	if err != nil {
		return nil
	}
	return held
}

// instanceFacts are an instance's fields without its JSON method, which a view embedding the
// instance would inherit.
type instanceFacts campaign.InstanceState

// instanceView is an instance as the API shows it.
type instanceView struct {
	instanceFacts
	StartedAt        *time.Time `json:"started_at"`        // nil for an instance known only by its leftover leases
	LastSeen         *time.Time `json:"last_seen"`         // nil for an instance known only by its leftover leases
	HeartbeatSeconds float64    `json:"heartbeat_seconds"` // the heartbeat interval; 0 means that it writes only after it has worked
	// how far its clock is known to be ahead of this server's, negative when behind; 0 when less
	// than a second, or unknown. last_seen is by this server's clock
	ClockAhead float64 `json:"clock_ahead_seconds"`
	// silent: it missed three heartbeats or let its leases expire; idle: it sends no heartbeat and
	// has reported nothing lately, so that it has no work, or, on another host, is gone; crashed: it
	// ended without stopping, as when it is killed, after last_seen, and stopped_at is when a start
	// on its host found that
	State  campaign.Condition  `json:"state"`
	Why    string              `json:"why"` // one sentence: its state, and what happens to its leases
	Leases campaign.HeldLeases `json:"leases"`
}

// viewInstance returns an instance as the API shows it, with secrets hidden as in viewCampaign.
func (s *server) viewInstance(i campaign.InstanceState) instanceView {
	i = redact.Shown(s.Redact, i)
	now := s.Now()
	v := instanceView{instanceFacts: instanceFacts(i), HeartbeatSeconds: i.BeatEvery.Seconds(), ClockAhead: i.ClockAhead.Seconds(), State: i.State(now), Why: i.Why(now), Leases: i.Leases}
	if !i.LastSeen.IsZero() {
		v.StartedAt, v.LastSeen = &i.StartedAt, &i.LastSeen
	}
	if v.Leases.Held == nil {
		v.Leases.Held = []campaign.HeldLease{}
	}
	if v.Leases.Publishers == nil {
		v.Leases.Publishers = []string{}
	}
	return v
}

// rowView is a row with everything that its page shows.
type rowView struct {
	Row      campaign.Row          `json:"row"`
	Event    event.Event           `json:"event"`
	Attempts []campaign.Attempt    `json:"attempts"`
	Campaign campaignView          `json:"campaign"`
	Activity []operator.AuditEntry `json:"activity"`

	Rehearsal *campaign.Rehearsal `json:"rehearsal,omitempty"` // the last rehearsal in shadow_only mode that reached the event

	Previous int64          `json:"previous_seq"` // of the campaign's row before this one; 0 when there is none
	Next     int64          `json:"next_seq"`     // of the campaign's row after this one; 0 when there is none
	Queue    []campaign.Row `json:"queue"`        // the campaign's head and the rows behind it, at most six
}

func (s *server) viewRow(ctx context.Context, row event.RowKey) (rowView, error) {
	d, err := s.Queue.Row(ctx, row.CampaignID, row.Seq)
	if err != nil {
		return rowView{}, err
	}
	return rowView{Row: d.Row, Event: d.Event, Attempts: d.Attempts, Campaign: s.viewCampaign(d.Campaign, s.around(ctx)),
		Activity: d.Activity, Rehearsal: d.Rehearsal, Previous: d.Previous, Next: d.Next, Queue: d.Queue}, nil
}

// apiCampaign answers with one campaign; with min_seq, once its projections have applied that seq.
func (s *server) apiCampaign(w http.ResponseWriter, r *http.Request) error {
	id, err := campaignParam(r)
	if err != nil {
		return err
	}
	wait, err := readWait(r)
	if err != nil {
		return err
	}
	if wait.MinSeq > 0 {
		if err := s.waitApplied(w, r, id, wait); err != nil {
			return err
		}
	}
	c, err := s.Store.Campaign(r.Context(), id)
	if err != nil {
		return s.Intake.Explained(r.Context(), id, err)
	}
	held, err := s.Runs.Held(r.Context(), s.Projections, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, s.viewCampaign(c, s.around(r.Context())).WithHeldProjections(held[id]))
}

// waitApplied waits until a campaign's projections have applied the requested seq.
func (s *server) waitApplied(w http.ResponseWriter, r *http.Request, id string, wait waitQuery) error {
	if _, err := s.Store.Campaign(r.Context(), id); err != nil {
		return err
	}
	leave, err := s.enterWait(r)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := s.limited(r.Context(), wait)
	defer cancel()
	_, err = s.Store.WaitApplied(ctx, id, wait.MinSeq)
	return err
}

func (s *server) readEvents(ctx context.Context, campaign string, q eventsQuery) (event.Page[event.Event], error) {
	return s.Store.Events(ctx, campaign, q.after(), q.Limit)
}

func (s *server) viewInstances(ctx context.Context) ([]instanceView, error) {
	list, err := s.Store.Instances(ctx)
	views := make([]instanceView, len(list))
	for i, instance := range list {
		views[i] = s.viewInstance(instance)
	}
	return views, err
}

func (s *server) viewAudit(ctx context.Context, f operator.AuditFilter) (auditAnswer, error) {
	page, removed, err := s.audit(ctx, f)
	answer := auditAnswer{Page: page}
	if !removed.IsZero() {
		answer.RemovedBefore = &removed
	}
	return answer, err
}

// skipsShown is how many skips a campaign's page shows.
const skipsShown = 20

func (s *server) readSkips(ctx context.Context, campaign string, f event.SkipFilter) (event.Page[event.Skip], error) {
	f.CampaignID = campaign
	return s.Store.Skips(ctx, f)
}
