package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// RestOn refuses an operation that is to rest on a rehearsal that did not run with what is loaded; 0 is
// none. A missing run, or one of another kind, is outbox.ErrNotFound.
func (rs *Runs) RestOn(ctx context.Context, id int64, loaded []outbox.ProjectionInfo) error {
	if id == 0 {
		return nil
	}
	d, err := rs.Rehearsal(ctx, id, loaded)
	switch {
	case err != nil || d.Loaded:
		return err
	case d.Outdated():
		return outbox.Conflict("rehearsal %d ran with another version of projection %s; rehearse again", id, d.Others[0].Projection)
	}
	return outbox.Conflict("the files of rehearsal %d are not loaded yet; load them and restart first", id)
}

// passedAmong is how many of the latest rehearsals are looked at for those that passed.
const passedAmong = 5

// passedRehearsal is a rehearsal that passed with the files that are loaded.
type passedRehearsal struct {
	outbox.FixRehearsal
	heads map[string]int64 // the dead heads that it tried and that nobody retried since, by fingerprint
}

// passed returns the recent rehearsals that passed with the files that are loaded, the latest first.
func (rs *Runs) passed(ctx context.Context, loaded []outbox.ProjectionInfo) (all []passedRehearsal, err error) {
	recent, err := rs.List(ctx, outbox.RunFilter{Kind: outbox.RunRehearse, Status: outbox.RunCompleted, Limit: passedAmong})
	if err != nil {
		return nil, err
	}
	for _, run := range recent.Items {
		d, err := rs.Rehearsal(ctx, run.ID, loaded)
		if err != nil {
			return nil, err
		}
		if d.Loaded && d.Passed() {
			heads, err := rs.triedHeads(ctx, d.Run)
			if err != nil {
				return nil, err
			}
			all = append(all, passedRehearsal{d, heads})
		}
	}
	return all, nil
}

// A row that was retried since the rehearsal has a later time.
const selectTried = `
select r.rehearsed, o.seq, o.fingerprint
from run_results r
join campaigns c on c.campaign_id = r.campaign_id
join projection_apply_outbox o on o.campaign_id = c.campaign_id and o.seq = c.head_seq
where r.run_id = $1
  and r.outcome = 'passes'
  and o.status = 'dead'
  and o.updated_at <= $2`

// triedHeads counts the dead heads that a rehearsal tried, found passing, and that were not retried
// since, by fingerprint.
func (rs *Runs) triedHeads(ctx context.Context, run outbox.Run) (map[string]int64, error) {
	heads := map[string]int64{}
	err := rs.read(ctx, func(t *tx) error {
		return t.Each(func(row sqldb.Row) error {
			var text, fingerprint string
			var seq int64
			var at outbox.Rehearsed
			if err := row.Scan(&text, &seq, &fingerprint); err != nil {
				return err
			}
			err := json.Unmarshal([]byte(text), &at)
			if at.Head == seq {
				heads[fingerprint]++
			}
			return err
		}, selectTried, run.ID, run.RequestedAt.UnixMicro())
	})
	if err != nil {
		return nil, fmt.Errorf("read what rehearsal %d tried: %w", run.ID, err)
	}
	return heads, nil
}

// rehearsed returns the rehearsal that tried most of the campaigns that a cause blocks, the latest of
// several, and how many of them; nil if none tried any.
func rehearsed(all []passedRehearsal, fingerprint string) (d *outbox.FixRehearsal, heads int64) {
	for i := range all {
		if n := all[i].heads[fingerprint]; n > heads {
			d, heads = &all[i].FixRehearsal, n
		}
	}
	return d, heads
}

// PassedRehearsal returns a recent rehearsal that passed with the files that are loaded and that tried
// campaigns which a cause blocks; nil if there is none.
func (rs *Runs) PassedRehearsal(ctx context.Context, fingerprint string, loaded []outbox.ProjectionInfo) (*outbox.FixRehearsal, error) {
	all, err := rs.passed(ctx, loaded)
	d, _ := rehearsed(all, fingerprint)
	return d, err
}

// RestOnRehearsals adds to errors of which nothing was retried with the loaded files the rehearsal
// that these files passed.
func (rs *Runs) RestOnRehearsals(ctx context.Context, groups []outbox.AssessedGroup, loaded []outbox.ProjectionInfo) error {
	if !slices.ContainsFunc(groups, outbox.AssessedGroup.Untried) {
		return nil
	}
	all, err := rs.passed(ctx, loaded)
	for i := range groups {
		if g := &groups[i]; g.Untried() {
			if d, heads := rehearsed(all, g.Fingerprint); d != nil {
				g.RestOn(d.Run.ID, heads)
			}
		}
	}
	return err
}
