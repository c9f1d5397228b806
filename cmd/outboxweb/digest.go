package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// digestCmd prints the digests of one campaign.
type digestCmd struct {
	Campaign   string `required:"" placeholder:"C" help:"The campaign."`
	Projection string `placeholder:"P" help:"Only this projection."`
	Until      *int64 `placeholder:"N" least:"0" help:"Replay the journal up to seq N instead of reading the live rows; 0 is before the first event."`
	jsonFlag
}

// digests is the command's output.
type digests struct {
	CampaignID  string            `json:"campaign_id"`
	AppliedSeq  int64             `json:"applied_seq"`
	Projections map[string]string `json:"projections"`
	// Seqs holds the event that each listed projection's digest belongs to: a projection that is
	// paused, quarantined or behind is at an event before AppliedSeq.
	Seqs map[string]int64 `json:"seqs"`
	Full string           `json:"full"` // over all listed projections

	states map[string]string // of the projections that are not caught up
}

// Run prints the digests of the live rows, or of a replay.
func (c *digestCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	d, err := c.digest(ctx, st, set)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(d)
	}
	fmt.Fprintf(a.out, "campaign %s at seq %d\n", d.CampaignID, d.AppliedSeq)
	t := table(a.out)
	for _, name := range slices.Sorted(maps.Keys(d.Projections)) {
		fmt.Fprintf(t, "%s\t%s", name, d.Projections[name])
		if state := d.states[name]; state != "" {
			fmt.Fprintf(t, "\tat seq %d, %s", d.Seqs[name], state)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "full\t%s\n", d.Full)
	return t.Flush()
}

func (c *digestCmd) digest(ctx context.Context, st *engine.Engine, set *projection.Set) (digests, error) {
	if c.Until == nil {
		if err := refuseOthers(ctx, st, set, c.only()...); err != nil {
			return digests{}, err
		}
		return liveDigests(ctx, st, set, c.Campaign, c.only()...)
	}
	campaign, err := st.Campaign(ctx, c.Campaign)
	if err != nil {
		return digests{}, err
	}
	if *c.Until > campaign.HighWaterSeq {
		return digests{}, event.NotFound("campaign %q has no event %d; its last is %d", c.Campaign, *c.Until, campaign.HighWaterSeq)
	}
	f, err := runs.NewReplayer(ctx, st.Store, set)
	if err != nil {
		return digests{}, err
	}
	defer f.Close()
	expected, err := f.Begin(ctx, c.Campaign, nil, c.only()...)
	if err != nil {
		return digests{}, err
	}
	if err := expected.To(ctx, *c.Until); err != nil {
		return digests{}, err
	}
	if err := expected.Refused(c.only()...); err != nil {
		return digests{}, err
	}
	d := digests{CampaignID: c.Campaign, AppliedSeq: expected.Seq}
	d.Projections, d.Full, err = expected.Digests(ctx, c.only()...)
	d.addSeqs(nil)
	return d, err
}

// addSeqs records the event of each digest from the projections' positions.
func (d *digests) addSeqs(stands map[string]readmodel.Position) {
	d.Seqs, d.states = make(map[string]int64), make(map[string]string)
	for name := range d.Projections {
		d.Seqs[name] = d.AppliedSeq
		if s, known := stands[name]; known && s.State != campaign.CursorLive {
			d.Seqs[name], d.states[name] = min(s.AppliedSeq, d.AppliedSeq), s.State
		}
	}
}

// only returns the projections to digest; none means all.
func (c *digestCmd) only() []string {
	if c.Projection == "" {
		return nil
	}
	return []string{c.Projection}
}

// liveDigests reads the digests of the live rows, and the event that they are at, from one snapshot.
func liveDigests(ctx context.Context, st *engine.Engine, set *projection.Set, id string, only ...string) (digests, error) {
	d := digests{CampaignID: id}
	if _, err := st.Campaign(ctx, id); err != nil {
		return d, err
	}
	live, err := st.ReadModel().Live(ctx)
	if err != nil {
		return d, fmt.Errorf("digest campaign %q: %w", id, err)
	}
	defer live.Close()
	var stands map[string]readmodel.Position
	at, _, err := live.Watermark(ctx, id)
	if err == nil {
		stands, err = live.Positions(ctx, id)
	}
	if err == nil {
		d.Projections, d.Full, err = set.Digests(ctx, live, id, only...)
	}
	if err != nil && !errors.Is(err, event.ErrNotFound) {
		err = fmt.Errorf("digest campaign %q: %w", id, err)
	}
	d.AppliedSeq = at.AppliedSeq
	d.addSeqs(stands)
	return d, err
}
