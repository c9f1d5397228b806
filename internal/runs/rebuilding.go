package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// rebuilding is the replay of some projections of one campaign in scratch tables, whose rows are to
// replace the live ones.
type rebuilding struct {
	scope    Campaign
	names    []string // of the run, in load order
	expected *Expected
	stands   map[string]readmodel.Position // as of the plan
	stops    map[string]int64              // positions of the projections that stay paused or quarantined
	result   replay.RunResult
	ended    bool // nothing is swapped
	// diverged means that the live rows were built from another journal, so that the watermark has
	// to be rebuilt with them.
	diverged bool
	swap     readmodel.Swap
	after    int64 // the event of the live rows that the replay began with
}

// rebuild replays some campaigns and replaces their live rows. A campaign whose replay is done waits
// for others to share transactions with, but not for longer than groupTime.
func (r *runner) rebuild(ctx context.Context, f *Replayer, group []Campaign) error {
	var remakes []*rebuilding
	var events int64
	began := time.Now()
	for i, c := range group {
		m, err := r.plan(ctx, f, c)
		if err != nil {
			return err
		}
		remakes = append(remakes, m)
		events += c.HighWaterSeq
		if i+1 < len(group) && time.Since(began)*time.Duration(events+group[i+1].HighWaterSeq) < groupTime*time.Duration(events) {
			continue
		}
		if err := r.settle(ctx, f, remakes); err != nil {
			return err
		}
		remakes, events, began = nil, 0, time.Now()
	}
	return nil
}

// settle replaces the live rows of campaigns. Their replay ran beside live applying; only its last events
// and the swap run under the campaigns' leases.
func (r *runner) settle(ctx context.Context, f *Replayer, remakes []*rebuilding) error {
	for _, m := range remakes {
		if err := m.approach(ctx, f); err != nil {
			return err
		}
	}
	remakes = slices.DeleteFunc(remakes, func(m *rebuilding) bool {
		if m.ended {
			r.report(m.scope, m.result)
		}
		return m.ended
	})
	if len(remakes) == 0 {
		return ctx.Err()
	}
	return r.exchange(ctx, f, remakes)
}

// plan replays a campaign as far as its live rows are now.
func (r *runner) plan(ctx context.Context, f *Replayer, c Campaign) (*rebuilding, error) {
	m := &rebuilding{scope: c, names: r.lease.Run.Projections, result: replay.RunResult{Outcome: replay.OutcomeMatch, Projections: []replay.ProjectionResult{}}}
	mark, err := m.readPositions(ctx, f)
	if err != nil {
		return nil, err
	}
	return m, m.begin(ctx, f, min(mark.AppliedSeq, c.HighWaterSeq))
}

// readPositions reads the positions of the campaign's projections. Paused ones stay where they are;
// the others advance as far as the campaign.
func (m *rebuilding) readPositions(ctx context.Context, f *Replayer) (readmodel.Watermark, error) {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return readmodel.Watermark{}, err
	}
	defer live.Close()
	mark, stands, err := standing(ctx, live, m.scope.CampaignID)
	m.stands, m.stops = stands, stopsOf(unmovedBy(stands, m.names))
	return mark, err
}

// unmovedBy leaves out the positions that a rebuild of these projections moves: it leaves only paused ones
// where they are.
func unmovedBy(stands map[string]readmodel.Position, names []string) map[string]readmodel.Position {
	unmoved := maps.Clone(stands)
	maps.DeleteFunc(unmoved, func(name string, s readmodel.Position) bool {
		return slices.Contains(names, name) && s.State != campaign.CursorPaused
	})
	return unmoved
}

// begin starts the replay over and replays up to seq. An unsound event ends the rebuild of this
// campaign.
func (m *rebuilding) begin(ctx context.Context, f *Replayer, seq int64) (err error) {
	if m.expected, err = f.Begin(ctx, m.scope.CampaignID, m.stops, m.names...); err == nil {
		err = m.expected.To(ctx, seq)
	}
	return m.endUnsound(err)
}

// approach replays what was applied during the replay, until that is few events, or no fewer than
// before.
func (m *rebuilding) approach(ctx context.Context, f *Replayer) error {
	for before := int64(math.MaxInt64); !m.ended; {
		c, err := f.store.Campaign(ctx, m.scope.CampaignID)
		if err != nil {
			return err
		}
		seq := min(c.AppliedSeq, c.HighWaterSeq) // a watermark may contradict the journal
		behind := seq - m.expected.Seq
		if behind <= fewEvents || behind >= before {
			return nil
		}
		before = behind
		if err := m.endUnsound(m.expected.To(ctx, seq)); err != nil {
			return err
		}
	}
	return nil
}

func (m *rebuilding) endUnsound(err error) error {
	unsound := asInconsistent(err)
	if unsound == nil {
		return err
	}
	m.fail(unsound.seq, unsound.reason)
	return nil
}

// fail ends the rebuild of this campaign without changing anything.
func (m *rebuilding) fail(seq int64, why string) {
	m.ended = true
	m.result.Outcome, m.result.Seq, m.result.Error = replay.OutcomeFailed, seq, why
}

// exchange leases the campaigns, replays what was applied meanwhile, and swaps the rows. A campaign
// that another run has leased is retried later.
func (r *runner) exchange(ctx context.Context, f *Replayer, remakes []*rebuilding) error {
	f.hurry = true
	defer func() { f.hurry = false }()
	for len(remakes) > 0 {
		ids := make([]string, len(remakes))
		for i, m := range remakes {
			ids[i] = m.scope.CampaignID
		}
		err := r.withLeases(ctx, ids, func(claims []outbox.RunClaim) error {
			held := func(m *rebuilding) int {
				return slices.IndexFunc(claims, func(c outbox.RunClaim) bool { return c.CampaignID == m.scope.CampaignID })
			}
			var mine, later []*rebuilding
			for _, m := range remakes {
				i := held(m)
				if i < 0 {
					later = append(later, m)
					continue
				}
				mine = append(mine, m)
				if err := m.finish(ctx, f, claims[i]); err != nil {
					return err
				}
			}
			remakes = later
			return r.swap(context.WithoutCancel(ctx), f, mine)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withLeases calls do under the leases of those campaigns that can be leased, and releases them. If
// the journal is down for longer than a lease after ctx has ended, they expire.
func (r *runner) withLeases(ctx context.Context, ids []string, do func([]outbox.RunClaim) error) (err error) {
	w, finish := r.worker, context.WithoutCancel(ctx)
	who := outbox.Worker{ID: campaign.RunOwner(r.lease.Run.ID, w.Worker.ID), Build: w.Worker.Build}
	claims, err := w.Runs.ClaimCampaigns(ctx, r.lease, who, ids, w.Lease)
	if err != nil {
		return err
	}
	stop := loop.Keep(w.Lease, w.Logger, func() error {
		_, err := w.Runs.queue.RenewForRun(finish, who, claims, w.Lease)
		return err
	})
	defer func() {
		stop()
		err = errors.Join(err, loop.UntilFree(ctx, w.Lease, func() error {
			_, err := w.Runs.queue.ReleaseForRun(finish, who, claims)
			return err
		}))
	}()
	return do(claims)
}

// finish replays up to the campaign's position under its lease, and composes what is to be swapped.
func (m *rebuilding) finish(ctx context.Context, f *Replayer, claim outbox.RunClaim) error {
	if m.ended {
		return nil
	}
	mark := claim.Watermark
	if err := m.catchUpFrom(ctx, f, mark); err != nil || m.ended {
		return err
	}
	m.diverged = mark.AppliedSeq > 0 && (m.expected.Seq != mark.AppliedSeq || m.expected.Hash != mark.AppliedHash)
	if m.diverged {
		if err := m.fixWatermark(ctx, f); err != nil || m.ended {
			return err
		}
	}
	if err := m.compose(ctx, f); err != nil {
		return err
	}
	m.swap.CampaignID, m.swap.Epoch = m.scope.CampaignID, claim.Epoch
	m.swap.AppliedSeq, m.swap.AppliedHash = mark.AppliedSeq, mark.AppliedHash
	return nil
}

// catchUpFrom replays up to the watermark, from the start if the replay is no longer valid: the
// watermark was set back, a skip was made or undone, or a projection was paused, quarantined or
// caught up.
func (m *rebuilding) catchUpFrom(ctx context.Context, f *Replayer, mark readmodel.Watermark) error {
	before := m.stands
	if _, err := m.readPositions(ctx, f); err != nil {
		return err
	}
	c, err := f.store.Campaign(ctx, m.scope.CampaignID)
	if err != nil {
		return err
	}
	seq := min(mark.AppliedSeq, c.HighWaterSeq) // the journal of a diverged campaign may end before
	if !maps.Equal(before, m.stands) {
		return m.begin(ctx, f, seq)
	}
	return m.goOn(ctx, f, seq, m.begin)
}

// goOn replays what was applied meanwhile, up to seq. If the replay is further than that, or a skip was
// made or undone, it is made again.
func (m *rebuilding) goOn(ctx context.Context, f *Replayer, seq int64, again func(context.Context, *Replayer, int64) error) error {
	skips, err := f.store.ActiveSkips(ctx, m.scope.CampaignID, m.expected.Seq)
	if err != nil {
		return err
	}
	if m.expected.Seq > seq || !m.expected.passedOver(skips) {
		return again(ctx, f, seq)
	}
	return m.endUnsound(m.expected.To(ctx, seq))
}

// rebuildTogether refuses to rebuild only some projections of a campaign whose watermark is rebuilt with them.
const rebuildTogether = "the projections were built from another journal; rebuild all projections of the campaign together"

// fixWatermark replays a campaign whose projections contradict the journal as far as all of its
// projections can go, and has the watermark set to that. It requires every projection of the set.
func (m *rebuilding) fixWatermark(ctx context.Context, f *Replayer) error {
	if all, _ := f.set.Needs(); len(m.names) < len(all) {
		m.fail(m.expected.Seq, rebuildTogether)
		return nil
	}
	var err error
	// Events that fail live have to fail there, in their turn.
	m.expected, err = m.expected.beforeFailures(ctx, m.names...)
	if err = m.endUnsound(err); err != nil || m.ended {
		return err
	}
	m.swap.Watermark = &readmodel.NewWatermark{Seq: m.expected.Seq, Hash: m.expected.Hash, Passed: m.expected.Skips}
	return nil
}

// compose sets what replaces the rows of each projection of the run. A projection that refused an
// event keeps its rows.
func (m *rebuilding) compose(ctx context.Context, f *Replayer) error {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return err
	}
	defer live.Close()
	id := m.scope.CampaignID
	before, _, err := f.set.Digests(ctx, live, id, m.names...)
	if err != nil {
		return err
	}
	after, full, err := m.expected.Digests(ctx, m.names...)
	if err != nil {
		return err
	}
	m.result.Seq, m.result.Full = m.expected.Seq, full
	for _, name := range m.names {
		p := replay.ProjectionResult{Projection: name, Digest: after[name], Before: before[name], Seq: m.expected.Seq, Verdict: campaign.VerdictMatch}
		if failed := m.expected.failure(name); failed != nil {
			refuse(&m.result, &p, failed)
			m.result.Projections = append(m.result.Projections, p)
			continue
		}
		if stop, stays := m.stops[name]; stays {
			p.Seq = min(stop, m.expected.Seq)
		}
		stand, known := m.stands[name]
		if !known {
			stand = readmodel.Position{Generation: 1, State: campaign.CursorLive}
		}
		state := campaign.CursorLive
		if stand.State == campaign.CursorPaused {
			state = campaign.CursorPaused
		} else if stand.State != campaign.CursorLive && 0 < stand.AppliedSeq && stand.AppliedSeq < p.Seq {
			p.Verdict = "" // its rows were those of an earlier seq; at 0 it had lost all of them, or never had any
		}
		if p.Verdict != "" && p.Digest != p.Before {
			p.Verdict = campaign.VerdictDrift
			if m.result.Outcome != replay.OutcomeFailed {
				m.result.Outcome = replay.OutcomeDrift
			}
		}
		if state == campaign.CursorPaused {
			leaveOut(&m.result, &p, stand, m.expected.Seq)
		}
		m.swap.Projections = append(m.swap.Projections, readmodel.SwapProjection{Name: name, Version: f.set.Named(name).Version, Tables: f.tables([]string{name}), Seq: p.Seq, Expect: &stand, State: state})
		m.result.Projections = append(m.result.Projections, p)
	}
	m.ended = len(m.swap.Projections) == 0
	return nil
}

// swap replaces the rows and reports the result of every campaign.
func (r *runner) swap(ctx context.Context, f *Replayer, remakes []*rebuilding) error {
	var plan []readmodel.Swap
	for _, m := range remakes {
		if !m.ended {
			plan = append(plan, m.swap)
		}
	}
	swapped, err := f.scratch.Swap(ctx, plan)
	if err != nil {
		return err
	}
	for _, m := range remakes {
		if !m.ended {
			i := slices.IndexFunc(swapped, func(s readmodel.Swapped) bool { return s.CampaignID == m.scope.CampaignID })
			m.recordSwap(swapped[i])
		}
		r.report(m.scope, m.result)
	}
	return nil
}

// recordSwap records the result of the swap.
func (m *rebuilding) recordSwap(s readmodel.Swapped) {
	switch {
	case errors.Is(s.Err, event.ErrLeaseLost):
		m.fail(m.expected.Seq, "another worker took over the campaign during the rebuild; its rows are unchanged. Start a new run")
	case s.Err != nil:
		m.fail(m.expected.Seq, fmt.Sprintf("its rows are unchanged: %v", s.Err))
	default:
		for i := range m.result.Projections {
			p := &m.result.Projections[i]
			if p.Error == "" {
				stand := m.stands[p.Projection]
				if p.Generation = nextGeneration(stand); lags(stand) {
					p.From = &stand.AppliedSeq
				}
				p.Rows = s.Rows[p.Projection]
			}
		}
	}
}

// nextGeneration returns the generation of replacement rows.
func nextGeneration(was readmodel.Position) int64 { return max(was.Generation, 1) + 1 }
