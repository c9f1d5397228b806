package readmodel

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// SetAside lists the projections that do not follow the campaign's watermark: they are
// quarantined, paused or behind.
func (a *ApplyTx) SetAside(campaign string) (map[string]bool, error) {
	names := make(map[string]bool)
	err := a.t.Each(func(row sqldb.Row) error {
		name, err := sqldb.Column[string](row)
		names[name] = true
		return err
	}, selectSetAside, campaign)
	if err != nil {
		return nil, fmt.Errorf("read quarantined and paused projections of campaign %q: %w", campaign, err)
	}
	return names, nil
}

// selectSetAside finds its rows by the key: a plain condition on the state would let the
// planner choose the index of all quarantined, paused and behind cursors.
const selectSetAside = `
select projection
from projection_cursors
where campaign_id = $1
  and state || '' <> 'live'`

const selectInstalled = `
select projection, case when paused_at is null then 0 else 1 end
from projection_versions`

// readInstalled reads, once per transaction, the projections that are or were loaded, and which of them
// are paused for all campaigns. A pause cannot change before the transaction ends.
func (a *ApplyTx) readInstalled(b *sqldb.Batch) {
	if a.installedRead {
		return
	}
	a.installedRead = true
	b.Each(func(row sqldb.Row) error {
		var name string
		var paused int64
		err := row.Scan(&name, &paused)
		if a.installed = append(a.installed, name); paused == 1 {
			a.paused = append(a.paused, name)
		}
		return err
	}, selectInstalled)
}

const (
	// lastApplied is the time at which the watermark of campaign $1 last advanced.
	lastApplied = `(select updated_at from projection_watermarks where campaign_id = $1 and applied_seq > 0)`

	// holdCursor changes only cursors that are live, to the state $5.
	holdCursor = `
insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at, applied_at)
values ($1, $2, $3, $5, $4, ` + lastApplied + `)
on conflict (campaign_id, projection) do update
set applied_seq = excluded.applied_seq, state = excluded.state, updated_at = excluded.updated_at, applied_at = excluded.applied_at
where projection_cursors.state = 'live'`

	moreSetAside = `
update projection_watermarks
set set_aside = set_aside + cast($2 as bigint)
where campaign_id = $1`
)

// ExcludePaused excludes from the campaign, at the watermark w, the projections paused for all
// campaigns that still follow it. It is called before the campaign's watermark advances, with
// the projections that are excluded already, and returns all excluded ones. Other campaigns get
// no cursor for the pause until their watermark advances.
func (a *ApplyTx) ExcludePaused(campaignID string, w Watermark, aside map[string]bool) (map[string]bool, error) {
	return a.exclude(campaignID, w, aside, a.paused, campaign.CursorPaused)
}

// ExcludeUnloaded excludes from the campaign, as ExcludePaused does, the projections that are or were
// loaded by some process and not by the caller, which would apply events without them. They are behind
// there until a replay has caught them up, or a rebuild has replaced their rows.
func (a *ApplyTx) ExcludeUnloaded(campaignID string, w Watermark, aside map[string]bool, loaded func(string) bool) (map[string]bool, error) {
	return a.exclude(campaignID, w, aside, slices.DeleteFunc(slices.Clone(a.installed), loaded), campaign.CursorBehind)
}

func (a *ApplyTx) exclude(campaign string, w Watermark, aside map[string]bool, names []string, state string) (map[string]bool, error) {
	held := make(map[string]bool)
	for _, name := range names {
		if aside[name] {
			continue
		}
		held[name] = true
		if err := a.do(nil, holdCursor, campaign, name, w.AppliedSeq, a.now, state); err != nil {
			return aside, fmt.Errorf("hold projection %q: %w", name, err)
		}
	}
	if len(held) == 0 {
		return aside, nil
	}
	err := a.do(nil, moreSetAside, campaign, len(held))
	maps.Copy(held, aside)
	return held, err
}

// Quarantine excludes a projection from the campaign of e, at the seq before e, where it
// failed. The other projections continue.
func (a *ApplyTx) Quarantine(projection string, e *event.Event) error {
	n, err := a.t.Exec(holdCursor, e.CampaignID, projection, e.Seq-1, a.now, campaign.CursorQuarantined)
	if err == nil {
		_, err = a.t.Exec(moreSetAside, e.CampaignID, n)
	}
	if err != nil {
		return fmt.Errorf("set projection %q aside: %w", projection, err)
	}
	return nil
}

// PauseCommand is a request to pause or resume a projection, and afterwards its result.
type PauseCommand struct {
	campaign.ProjectionPause
	By, Reason string
	Now        int64 // microseconds
}

const selectCursor = `
select applied_seq, state, paused_by, paused_at, reason
from projection_cursors
where campaign_id = $1
  and projection = $2`

// standing is the stored state of a projection in a campaign.
type standing struct {
	seq     int64
	state   string
	pause   *campaign.Pause // of this campaign
	mark    Watermark
	forAll  *campaign.Pause
	atLevel bool // it has applied every event up to the watermark
}

// standing locks the watermark of a campaign and reads the state of a projection in it.
func (a *ApplyTx) standing(projection, campaignID string) (standing, error) {
	c := standing{state: campaign.CursorLive}
	var err error
	if c.mark, err = a.Watermark(campaignID); err != nil {
		return c, err
	}
	c.seq = c.mark.AppliedSeq
	var by, reason string
	var when sql.NullInt64
	if _, err := a.t.One([]any{&c.seq, &c.state, &by, &when, &reason}, selectCursor, campaignID, projection); err != nil {
		return c, err
	}
	c.pause = PauseOf(when, by, reason)
	if c.state == campaign.CursorLive {
		c.seq = c.mark.AppliedSeq
	}
	c.atLevel = c.seq == c.mark.AppliedSeq
	versions, err := versionsIn(a.t)
	c.forAll = versions[projection].Pause
	return c, err
}

const pauseCursor = `
insert into projection_cursors (campaign_id, projection, applied_seq, state, paused_by, paused_at, reason, updated_at, applied_at)
values ($1, $2, $3, 'paused', $4, $5, $6, $5, ` + lastApplied + `)
on conflict (campaign_id, projection) do update
set applied_seq = excluded.applied_seq, state = excluded.state, paused_by = excluded.paused_by, paused_at = excluded.paused_at,
  reason = excluded.reason, updated_at = excluded.updated_at,
  applied_at = case when projection_cursors.state = 'live' then excluded.applied_at else projection_cursors.applied_at end`

// PauseCursor pauses a projection in one campaign. One that is paused already, there or for all
// campaigns, is event.ErrConflict.
func (a *ApplyTx) PauseCursor(h *PauseCommand) error {
	c, err := a.standing(h.Projection, h.CampaignID)
	switch {
	case err != nil:
		return err
	case c.forAll != nil:
		return event.Conflict("projection %q is already paused for all campaigns, by %s", h.Projection, c.forAll.By)
	case c.state == campaign.CursorPaused:
		return event.Conflict("projection %q is already paused for campaign %q, by %s", h.Projection, h.CampaignID, c.pause.By)
	case c.state == campaign.CursorQuarantined:
		return event.Conflict("projection %q is quarantined for campaign %q; replay it once the failure is fixed", h.Projection, h.CampaignID)
	}
	if _, err := a.t.Exec(pauseCursor, h.CampaignID, h.Projection, c.seq, h.By, h.Now, h.Reason); err != nil {
		return fmt.Errorf("pause projection %q for campaign %q: %w", h.Projection, h.CampaignID, err)
	}
	h.State, h.AppliedSeq = campaign.CursorPaused, c.seq
	if c.state == campaign.CursorLive {
		_, err = a.t.Exec(moreSetAside, h.CampaignID, 1)
	}
	return err
}

const resumeCursor = `
update projection_cursors
set state = $3, paused_by = '', paused_at = null, reason = '', updated_at = $4
where campaign_id = $1
  and projection = $2`

// ResumeCursor resumes a projection that was paused in one campaign; any other is
// event.ErrConflict.
func (a *ApplyTx) ResumeCursor(h *PauseCommand) error {
	c, err := a.standing(h.Projection, h.CampaignID)
	switch {
	case err != nil:
		return err
	case c.forAll != nil:
		return event.Conflict("projection %q is paused for all campaigns, by %s; resume it for all of them first", h.Projection, c.forAll.By)
	case c.state != campaign.CursorPaused:
		return event.Conflict("projection %q is not paused for campaign %q; it is %s", h.Projection, h.CampaignID, c.state)
	}
	h.State, h.AppliedSeq, h.Behind = campaign.CursorBehind, c.seq, 1
	if c.atLevel {
		h.State, h.Behind = campaign.CursorLive, 0
	}
	if _, err := a.t.Exec(resumeCursor, h.CampaignID, h.Projection, h.State, h.Now); err != nil {
		return fmt.Errorf("resume projection %q for campaign %q: %w", h.Projection, h.CampaignID, err)
	}
	if c.atLevel {
		_, err = a.t.Exec(moreSetAside, h.CampaignID, -1)
	}
	return err
}

const pauseVersion = `
update projection_versions
set paused_at = $2, paused_by = $3, reason = $4
where projection = $1
  and paused_at is null`

// PauseEverywhere pauses a projection for all campaigns. Each campaign's cursor is set when its
// watermark next advances, see ExcludePaused.
func (d *Database) PauseEverywhere(h *PauseCommand) error {
	h.State = campaign.CursorPaused
	return d.WriteFrom(context.Background(), sqldb.BeginPause, func(t *sqldb.Tx) error {
		n, err := t.Exec(pauseVersion, h.Projection, h.Now, h.By, h.Reason)
		if err != nil || n > 0 {
			return err
		}
		versions, err := versionsIn(t)
		if err != nil {
			return err
		}
		if by := versions[h.Projection].Pause; by != nil {
			return event.Conflict("projection %q is already paused for all campaigns, by %s", h.Projection, by.By)
		}
		return event.NotFound("there is no projection %q in the database", h.Projection)
	})
}

const (
	resumeVersion = `
update projection_versions
set paused_at = null, paused_by = '', reason = ''
where projection = $1
  and paused_at is not null`

	fewerSetAside = `
update projection_watermarks
set set_aside = set_aside - 1
where campaign_id in (
  select c.campaign_id
  from projection_cursors c
  join projection_watermarks w on w.campaign_id = c.campaign_id
  where c.projection = $1
    and c.state <> 'live'
    and c.state = 'paused'
    and c.paused_by = ''
    and c.applied_seq = w.applied_seq)`

	resumeCursors = `
update projection_cursors
set updated_at = $2,
  state = case when applied_seq = (
    select w.applied_seq
    from projection_watermarks w
    where w.campaign_id = projection_cursors.campaign_id) then 'live' else 'behind' end
where projection = $1
  and state <> 'live'
  and state = 'paused'
  and paused_by = ''`

	// Resuming for all campaigns also requests a replay of those that were behind before.
	resumeBehind = `
update projection_cursors
set updated_at = $2
where projection = $1
  and state <> 'live'
  and state = 'behind'`

	countNotResumed = `
select count(*) filter (where state = 'behind'), count(*) filter (where state = 'quarantined')
from projection_cursors
where projection = $1
  and state <> 'live'`
)

// ResumeEverywhere ends a pause for all campaigns. Nothing is applied meanwhile and no
// watermark is locked, so that every transaction that has read the pause has set its cursors,
// and the lock order does not matter.
func (d *Database) ResumeEverywhere(h *PauseCommand) error {
	h.State = campaign.CursorLive
	return d.WriteFrom(context.Background(), sqldb.BeginPause, func(t *sqldb.Tx) error {
		n, err := t.Exec(resumeVersion, h.Projection)
		if err == nil && n == 0 {
			return event.Conflict("projection %q is not paused for all campaigns", h.Projection)
		}
		if err == nil {
			var b sqldb.Batch
			b.Exec(nil, fewerSetAside, h.Projection)
			b.Exec(nil, resumeCursors, h.Projection, h.Now)
			b.Exec(nil, resumeBehind, h.Projection, h.Now)
			b.Each(func(row sqldb.Row) error { return row.Scan(&h.Behind, &h.Quarantined) }, countNotResumed, h.Projection)
			err = t.RunAll(&b)
		}
		if err != nil {
			return fmt.Errorf("resume projection %q: %w", h.Projection, err)
		}
		return nil
	})
}
