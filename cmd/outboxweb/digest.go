package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
)

// digestCmd prints the digests of one campaign.
type digestCmd struct {
	Campaign   string `required:"" placeholder:"C" help:"The campaign."`
	Projection string `placeholder:"P" help:"Only this projection."`
	Until      int64  `placeholder:"N" help:"Fold the journal up to seq N instead of reading the live rows."`
	JSON       bool   `name:"json" help:"Print one JSON document."`
}

// digests is what the command prints.
type digests struct {
	CampaignID  string            `json:"campaign_id"`
	AppliedSeq  int64             `json:"applied_seq"`
	Projections map[string]string `json:"projections"`
	Full        string            `json:"full"` // over all that are listed
}

// Run prints the digests of the live rows, or of a fold.
func (c *digestCmd) Run(ctx context.Context, a *app) error {
	if c.Until < 0 {
		return usagef("--until must be 1 or more")
	}
	st, set, err := a.openBoth(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := c.digest(ctx, a, st, set)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(d)
	}
	fmt.Fprintf(a.out, "campaign %s at seq %d\n", d.CampaignID, d.AppliedSeq)
	t := table(a.out)
	for _, name := range slices.Sorted(maps.Keys(d.Projections)) {
		fmt.Fprintf(t, "%s\t%s\n", name, d.Projections[name])
	}
	fmt.Fprintf(t, "full\t%s\n", d.Full)
	return t.Flush()
}

func (c *digestCmd) digest(ctx context.Context, a *app, st *store.Store, set *projection.Set) (digests, error) {
	if c.Until == 0 {
		return liveDigests(ctx, st, set, c.Campaign, c.only()...)
	}
	campaign, err := st.Campaign(ctx, c.Campaign)
	if err != nil {
		return digests{}, err
	}
	if c.Until > campaign.HighWaterSeq {
		return digests{}, outbox.NotFound("campaign %q has no event %d; its last is %d", c.Campaign, c.Until, campaign.HighWaterSeq)
	}
	f, err := a.newFolder(ctx, st, set)
	if err != nil {
		return digests{}, err
	}
	defer f.close()
	return f.fold(ctx, c.Campaign, c.Until, nil, c.only()...)
}

// only is the projections to digest; none means all.
func (c *digestCmd) only() []string {
	if c.Projection == "" {
		return nil
	}
	return []string{c.Projection}
}

// liveDigests reads the digests of the live rows. While a worker advances the
// campaign it looks again, so that the digests belong to the seq beside them.
func liveDigests(ctx context.Context, st *store.Store, set *projection.Set, id string, only ...string) (digests, error) {
	const tries = 20
	for range tries {
		before, err := st.Campaign(ctx, id)
		if err != nil {
			return digests{}, err
		}
		d := digests{CampaignID: id, AppliedSeq: before.AppliedSeq}
		if d.Projections, d.Full, err = readDigests(ctx, st, set, id, only); err != nil {
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
	return digests{}, fmt.Errorf("campaign %q advances too fast to be digested; pause it or try again", id)
}

// readDigests reads the digests of the live rows from one snapshot.
func readDigests(ctx context.Context, st *store.Store, set *projection.Set, id string, only []string) (map[string]string, string, error) {
	snapshot, err := st.ProjectionsSnapshot(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("digest campaign %q: %w", id, err)
	}
	defer snapshot.Rollback()
	one, full, err := set.Digests(ctx, snapshot, id, only...)
	if err != nil && !errors.Is(err, outbox.ErrNotFound) {
		err = fmt.Errorf("digest campaign %q: %w", id, err)
	}
	return one, full, err
}

// folder folds campaigns from the journal into scratch tables.
type folder struct {
	store     *store.Store
	set       *projection.Set
	auditOnly map[string]bool
	scratch   *projection.Scratch
}

func (a *app) newFolder(ctx context.Context, st *store.Store, set *projection.Set) (*folder, error) {
	intents, err := st.EventTypes(ctx)
	if err != nil {
		return nil, err
	}
	f := &folder{store: st, set: set, auditOnly: map[string]bool{}}
	folding := set
	if onPostgres(a.ProjectionsDB) { // the scratch tables are SQLite's
		if folding, err = projection.Load("sqlite", a.ProjectionFiles...); err != nil {
			return nil, err
		}
	}
	if f.scratch, err = folding.NewScratch(ctx); err != nil {
		return nil, err
	}
	for name, intent := range intents {
		f.auditOnly[name] = intent == outbox.IntentAuditOnly
	}
	return f, nil
}

func (f *folder) close() { f.scratch.Close() }

// foldError is an event that the projections refuse.
type foldError struct {
	seq int64
	err error
}

func (f *foldError) Error() string {
	return fmt.Sprintf("event %d cannot be applied: %v", f.seq, f.err)
}
func (f *foldError) Unwrap() error { return f.err }

// fold applies the events 1 to until of a campaign to empty tables and
// returns their digests. A projection named in stops gets no event after the
// seq given there, and none gets one that is skipped. An event that cannot be
// applied is a *foldError.
func (f *folder) fold(ctx context.Context, id string, until int64, stops map[string]int64, only ...string) (digests, error) {
	if err := f.scratch.Reset(ctx); err != nil {
		return digests{}, err
	}
	for seq := int64(0); seq < until; {
		page, err := f.store.Events(ctx, id, seq, int(min(200, until-seq)))
		if err != nil {
			return digests{}, err
		}
		if len(page.Items) == 0 {
			return digests{}, fmt.Errorf("campaign %q: event %d is missing from the journal", id, seq+1)
		}
		for i := range page.Items {
			e := &page.Items[i]
			if seq = e.Seq; f.auditOnly[e.EventType] {
				continue
			}
			if err := f.scratch.ApplyExcept(ctx, e, stopped(stops, seq)); err != nil {
				return digests{}, &foldError{seq, err}
			}
		}
	}
	d := digests{CampaignID: id, AppliedSeq: until}
	var err error
	d.Projections, d.Full, err = f.scratch.Digests(ctx, id, only...)
	return d, err
}

// stopped is the projections that do not get the event at seq.
func stopped(stops map[string]int64, seq int64) map[string]bool {
	if len(stops) == 0 {
		return nil
	}
	names := make(map[string]bool, len(stops))
	for name, last := range stops {
		if seq > last {
			names[name] = true
		}
	}
	return names
}
