package storetest

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// MustWatermark reads a campaign's watermark.
func (f *Fixture) MustWatermark(campaign string) readmodel.Watermark {
	marks := must.Get(f.Watermarks(f.Ctx, []string{campaign, "nobody"})).Or(f.TB)
	_, found := marks["nobody"]
	must.Hold(f.TB, !found, "a campaign without a watermark has one")
	return marks[campaign]
}

// SetWatermark sets a campaign's watermark and fence.
func (f *Fixture) SetWatermark(campaign string, seq, epoch int64) {
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		w, err := tx.Watermark(campaign)
		if err != nil {
			return err
		}
		return tx.Advance(campaign, epoch, w.AppliedSeq, seq, "hash")
	})
	must.OK(f.TB, err)
}

// WithProjections installs projections and returns them as loaded.
func (f *Fixture) WithProjections(names ...string) (loaded []campaign.ProjectionInfo) {
	for _, name := range names {
		loaded = append(loaded, campaign.ProjectionInfo{Name: name, Version: "v"})
		must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{{Name: name, Version: "v"}}))
	}
	return loaded
}

// Fails records a failure of a projection at an event.
func (f *Fixture) Fails(projection, campaign string, seq int64, then ...func(*readmodel.ApplyTx, *event.Event) error) {
	e := must.Get(f.Event(f.Ctx, campaign, seq)).Or(f.TB)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		_, err := tx.Watermark(campaign)
		if err == nil {
			err = tx.Failed(projection, &e, *Failure("boom"))
		}
		for _, further := range then {
			if err == nil {
				err = further(tx, &e)
			}
		}
		return err
	})
	must.OK(f.TB, err)
}

// Quarantine quarantines a projection that failed.
func Quarantine(projection string) func(*readmodel.ApplyTx, *event.Event) error {
	return func(tx *readmodel.ApplyTx, e *event.Event) error { return tx.Quarantine(projection, e) }
}

// Tally is a projection with a foreign key, a generated column, and a trigger that counts its rows.
func Tally() readmodel.Projection {
	trigger := []string{`
create trigger tally_seen after insert on tally_events
begin
  update tally set seen = seen + 1 where campaign_id = new.campaign_id;
end`}
	if dbtest.Postgres() {
		trigger = []string{`
create or replace function tally_see() returns trigger language plpgsql as $$
begin
  update tally set seen = seen + 1 where campaign_id = new.campaign_id;
  return null;
end $$`, `create trigger tally_seen after insert on tally_events for each row execute function tally_see()`}
	}
	return readmodel.Projection{Name: "tally", Version: "v1", Tables: []string{"tally", "tally_events"}, Schema: append([]string{`
create table tally (
  campaign_id text primary key,
  seen bigint not null default 0,
  twice bigint generated always as (seen * 2) stored
)`, `
create table tally_events (
  campaign_id text not null references tally (campaign_id),
  seq bigint not null,
  at timestamp,
  body text not null,
  primary key (campaign_id, seq)
)`, `create index tally_events_by_seq on tally_events (seq)`}, trigger...)}
}

// InstallTally creates the tables of tally.
func (f *Fixture) InstallTally() { must.OK(f.TB, f.Install(f.Ctx, []readmodel.Projection{Tally()})) }

// OpenTally opens a scratch database with the tables of tally.
func (f *Fixture) OpenTally() *readmodel.Scratch {
	p := Tally()
	c := must.Get(f.OpenScratch(f.Ctx, []readmodel.Projection{p})).Or(f.TB)
	f.TB.Cleanup(func() { c.Close() })
	return c
}

// StartTally and TallyEvent are tally's statements for an event, with parameters campaign, and campaign, seq and body.
const (
	StartTally = `insert into tally (campaign_id) values ($1) on conflict do nothing`
	TallyEvent = `insert into tally_events (campaign_id, seq, at, body) values ($1, $2, '2026-11-21 07:00:00', $3)`
)

// TallyOne replays one event of tally.
func TallyOne(ctx context.Context, c *readmodel.Scratch, campaign string, seq int64, body string) error {
	if err := c.Exec(ctx, StartTally, []any{campaign}); err != nil {
		return err
	}
	return c.Exec(ctx, TallyEvent, []any{campaign, seq, body})
}

// ReplayTally replays the events first to last of a campaign into tally.
func (f *Fixture) ReplayTally(c *readmodel.Scratch, campaign string, first, last int64, body string) {
	n := int(last - first + 1)
	done, err := c.Replay(f.Ctx, n, func(i int) error { return TallyOne(f.Ctx, c, campaign, first+int64(i), body) })
	must.Need(f.TB, err == nil && done == n, "folded %d of %d: %v", done, n, err)
}

// PlanFor is the plan of a rebuild of tally under a claim.
func PlanFor(c outbox.RunClaim) readmodel.Swap {
	return readmodel.Swap{CampaignID: c.CampaignID, Epoch: c.Epoch, AppliedSeq: c.Watermark.AppliedSeq, AppliedHash: c.Watermark.AppliedHash,
		Projections: []readmodel.SwapProjection{{Name: "tally", Tables: []string{"tally", "tally_events"}, Seq: c.Watermark.AppliedSeq, State: campaign.CursorLive}}}
}

// MustSwap swaps rows in and fails unless every campaign is swapped.
func (f *Fixture) MustSwap(c *readmodel.Scratch, plan ...readmodel.Swap) []readmodel.Swapped {
	done, err := c.Swap(f.Ctx, plan)
	must.Need(f.TB, err == nil && len(done) == len(plan), "swapped %+v, %v", done, err)
	for _, one := range done {
		must.Need(f.TB, one.Err == nil, "%s: %v", one.CampaignID, one.Err)
	}
	return done
}
