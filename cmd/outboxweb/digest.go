package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// digestCmd prints the digests of one campaign.
type digestCmd struct {
	Campaign   string `required:"" placeholder:"C" help:"The campaign."`
	Projection string `placeholder:"P" help:"Only this projection."`
	Until      *int64 `placeholder:"N" help:"Replay the journal up to seq N instead of reading the live rows; 0 is before the first event."`
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
func (c *digestCmd) Run(ctx context.Context, a *app) error {
	if c.Until != nil && *c.Until < 0 {
		return usagef("--until must be 0 or more")
	}
	var st *engine.Engine
	var set *projection.Set
	var err error
	if c.Until == nil {
		st, set, err = a.openLoaded(ctx, c.only()...)
	} else { // which reads no live row
		st, set, err = a.openUninstalled(ctx, a.storeOptions())
	}
	if err != nil {
		return err
	}
	defer st.Close()
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
		return liveDigests(ctx, st, set, c.Campaign, c.only()...)
	}
	campaign, err := st.Campaign(ctx, c.Campaign)
	if err != nil {
		return digests{}, err
	}
	if *c.Until > campaign.HighWaterSeq {
		return digests{}, outbox.NotFound("campaign %q has no event %d; its last is %d", c.Campaign, *c.Until, campaign.HighWaterSeq)
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
		if s, known := stands[name]; known && s.State != outbox.CursorLive {
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

// liveDigests reads the digests of the live rows. It reads again while a worker advances the
// campaign, so that the digests belong to the seq beside them.
func liveDigests(ctx context.Context, st *engine.Engine, set *projection.Set, id string, only ...string) (digests, error) {
	const tries = 20
	for range tries {
		before, err := st.Campaign(ctx, id)
		if err != nil {
			return digests{}, err
		}
		d := digests{CampaignID: id, AppliedSeq: before.AppliedSeq}
		if err := d.read(ctx, st, set, only); err != nil {
			return digests{}, err
		}
		after, err := st.Campaign(ctx, id)
		if err != nil {
			return digests{}, err
		}
		if after.AppliedSeq == before.AppliedSeq && after.Skips == before.Skips {
			return d, nil
		}
	}
	return digests{}, fmt.Errorf("campaign %q is advancing too fast to compute a digest; pause it or try again", id)
}

// read reads the digests of the live rows from one snapshot.
func (d *digests) read(ctx context.Context, st *engine.Engine, set *projection.Set, only []string) error {
	live, err := st.ReadModel().Live(ctx)
	if err != nil {
		return fmt.Errorf("digest campaign %q: %w", d.CampaignID, err)
	}
	defer live.Close()
	stands, err := live.Positions(ctx, d.CampaignID)
	if err == nil {
		d.Projections, d.Full, err = set.Digests(ctx, live, d.CampaignID, only...)
	}
	d.addSeqs(stands)
	if err != nil && !errors.Is(err, outbox.ErrNotFound) {
		err = fmt.Errorf("digest campaign %q: %w", d.CampaignID, err)
	}
	return err
}
