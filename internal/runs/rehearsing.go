package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// rehearsalTime is how long a rehearsal may work. Campaigns that are left then are not rehearsed.
const rehearsalTime = 15 * time.Minute

// rehearsing is a rehearsal in progress.
type rehearsing struct {
	*runner
	asked    rehearsalRow
	set      *projection.Set // with the changed files
	changed  *Replayer       // of set; nil before its first use
	copies   *Replayer       // of set, for blocked campaigns; nil before its first use
	loaded   *Replayer       // of the loaded set; nil before its first use
	keys     []projection.UniqueKey
	captured []readmodel.CapturedTable // of keys, in the same order; see watchOrder
	alike    map[string]bool           // live tables that have the form of the scratch ones
	deadline time.Time
	events   int64 // replayed so far, also by processes that worked on it before
}

// rehearse executes a rehearsal, campaign by campaign.
func (r *runner) rehearse(ctx context.Context, _ context.CancelCauseFunc) error {
	run := r.lease.Run
	left := rehearsalTime - sqldb.At(r.worker.Runs.core.Now()).Sub(*run.StartedAt)
	m := &rehearsing{runner: r, alike: make(map[string]bool), deadline: time.Now().Add(left), events: run.Events.Done}
	defer m.close()
	err := r.worker.Runs.read(ctx, func(t *tx) (err error) {
		m.asked, err = t.rehearsal(run.ID)
		return err
	})
	if err != nil {
		return err
	}
	if len(m.asked.files) == 0 {
		return outbox.Conflict("the files of rehearsal %d have been deleted; start a new one", run.ID)
	}
	if m.set, _, err = r.worker.Set.Changed(ctx, m.asked.files); err != nil {
		return err
	}
	for after := ""; ; {
		page, err := r.worker.Runs.Scope(ctx, r.lease, after, groupCampaigns)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].CampaignID
		for _, c := range page {
			result, err := m.campaign(ctx, c.CampaignID)
			if err == nil {
				err = m.clear(ctx)
			}
			if err != nil {
				return err
			}
			m.events += result.Events
			result.CampaignID, result.At = c.CampaignID, time.Now().UTC()
			r.results <- result
		}
	}
}

// clear empties the scratch tables, so that no row of a campaign meets those of the next.
func (m *rehearsing) clear(ctx context.Context) error {
	for _, f := range []*Replayer{m.changed, m.copies, m.loaded} {
		if f == nil {
			continue
		}
		if err := f.scratch.Clear(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

func (m *rehearsing) close() {
	for _, f := range []*Replayer{m.changed, m.copies, m.loaded} {
		if f != nil {
			f.Close()
		}
	}
}

// open returns the replayer in *f, which it creates at its first use.
func (m *rehearsing) open(ctx context.Context, f **Replayer, set *projection.Set) (*Replayer, error) {
	if *f != nil {
		return *f, nil
	}
	made, err := NewReplayer(ctx, m.worker.Runs.core, set)
	if err != nil {
		return nil, err
	}
	made.OtherVersion()
	made.pace, made.say = m.throttle, m.say
	*f = made
	return made, nil
}

// unrehearsed ends the rehearsal of one campaign; its text is the reason.
type unrehearsed struct{ reason string }

func (e *unrehearsed) Error() string { return e.reason }

func unrehearsedf(format string, args ...any) error {
	return &unrehearsed{fmt.Sprintf(format, args...)}
}

// campaign rehearses one campaign, again if it changes meanwhile.
func (m *rehearsing) campaign(ctx context.Context, id string) (outbox.RunResult, error) {
	head, blocked := m.asked.blocked[id]
	within, cancel := context.WithDeadline(ctx, m.deadline)
	defer cancel()
	for try := 1; ; try++ {
		result := outbox.RunResult{Projections: []outbox.ProjectionResult{}, Rehearsed: &outbox.Rehearsed{Head: head.Seq, Quarantined: head.Projection}}
		err := m.inBounds()
		switch {
		case err != nil:
		case head.Projection != "":
			err = m.quarantined(within, id, head, &result)
		case blocked:
			err = m.blocked(within, id, head, &result)
		default:
			err = m.healthy(within, id, &result)
		}
		if err == nil && result.Outcome == outbox.OutcomePasses {
			err = m.alsoQuarantined(within, id, head.Projection, &result)
		}
		if errors.Is(err, errMoved) && try < verifyTries {
			continue
		}
		if reason := m.whyNot(ctx, within, err); reason != "" {
			result.Outcome, result.Error, err = outbox.OutcomeNotRehearsed, reason, nil
			if !blocked {
				result.Outcome = outbox.OutcomeNotCompared
			}
		}
		return result, err
	}
}

// inBounds refuses more work than a rehearsal may do.
func (m *rehearsing) inBounds() error {
	switch {
	case !time.Now().Before(m.deadline):
		return unrehearsedf("the rehearsal reached its limit of %s", outbox.Limit(rehearsalTime))
	case m.events >= outbox.MaxRehearsalEvents:
		return unrehearsedf("the rehearsal reached its limit of %s", outbox.Count(outbox.MaxRehearsalEvents, "event", "events"))
	}
	return nil
}

// whyNot returns the reason if the error is about the campaign alone, so that the next one can be
// rehearsed.
func (m *rehearsing) whyNot(ctx, within context.Context, err error) string {
	var not *unrehearsed
	switch {
	case errors.As(err, &not):
		return not.reason
	case errors.Is(err, errMoved):
		return "the campaign keeps changing"
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return "the rehearsal reached its limit of " + outbox.Limit(rehearsalTime)
	case errors.Is(err, outbox.ErrNotFound):
		return "the campaign is gone"
	}
	return ""
}

// standsAt is the state of a campaign's live rows.
type standsAt struct {
	mark   readmodel.Watermark
	stands map[string]readmodel.Position
	paused map[string]bool // projections that are paused for all campaigns
}

func (m *rehearsing) standsAt(ctx context.Context, live *readmodel.Live, id string) (s standsAt, err error) {
	if s.mark, s.stands, err = standing(ctx, live, id); err != nil {
		return s, err
	}
	s.paused, err = live.PausedForAll(ctx)
	return s, err
}

// asNow is standsAt in a snapshot of its own.
func (m *rehearsing) asNow(ctx context.Context, id string) (standsAt, error) {
	live, err := m.worker.Runs.core.ReadModel().Live(ctx)
	if err != nil {
		return standsAt{}, err
	}
	defer live.Close()
	return m.standsAt(ctx, live, id)
}

// same reports whether no event was applied and no projection moved between two states.
func (s standsAt) same(other standsAt) bool {
	return s.mark.AppliedSeq == other.mark.AppliedSeq && s.mark.AppliedHash == other.mark.AppliedHash &&
		maps.Equal(s.stands, other.stands) && maps.Equal(s.paused, other.paused)
}

// blocked applies the event that blocks a campaign, and those behind it, to copies of its rows.
func (m *rehearsing) blocked(ctx context.Context, id string, head blockedHead, result *outbox.RunResult) error {
	f, err := m.open(ctx, &m.copies, m.set)
	if err == nil {
		err = m.watchOrder(f)
	}
	if err != nil {
		return err
	}
	c, err := f.store.Campaign(ctx, id)
	if err != nil {
		return err
	}
	before, err := m.asNow(ctx, id)
	if err != nil {
		return err
	}
	result.Seq = before.mark.AppliedSeq
	switch at := before.mark.AppliedSeq; {
	case c.Diverged != "":
		return unrehearsedf("the campaign has diverged: %s", c.Diverged)
	case at >= head.Seq:
		return unrehearsedf("the campaign moved: event %d was applied after the rehearsal was started", head.Seq)
	case at+1 != head.Seq:
		return unrehearsedf("event %d is not the next one: the campaign is at event %d", head.Seq, at)
	}
	expected, err := m.copied(ctx, f, id, before)
	if err != nil {
		return err
	}
	if err := m.forgetOrder(f); err != nil {
		return err
	}
	until := min(head.Seq+m.asked.behind, c.HighWaterSeq)
	err = expected.To(ctx, until)
	result.Events = expected.Events
	if u := asInconsistent(err); u != nil {
		err = nil
		m.fails(result, head, ReplayFailure{Seq: u.seq, Err: errors.New(u.reason)})
	}
	if err != nil {
		return err
	}
	if _, skipped := expected.Skips[head.Seq]; skipped {
		return unrehearsedf("the campaign moved: event %d was skipped after the rehearsal was started", head.Seq)
	}
	if first := expected.firstFailure(); first != nil && (result.Outcome == "" || first.Seq <= result.Rehearsed.FailedSeq) {
		m.fails(result, head, *first)
	}
	if result.Outcome != "" {
		after, err := m.asNow(ctx, id)
		if err == nil && !before.same(after) {
			err = errMoved
		}
		return err
	}
	result.Outcome, result.Seq = outbox.OutcomePasses, expected.Seq
	result.Rehearsed.Applied, result.Rehearsed.Left = expected.Seq-before.mark.AppliedSeq, c.HighWaterSeq-expected.Seq
	if err := m.compareLive(ctx, f, expected, before, result); err != nil {
		return err
	}
	if err := m.vouches(expected); err != nil {
		return err
	}
	return m.orderDecides(ctx, f)
}

// copyable reports whether the live rows can be copied: the changed files leave all tables as they
// are.
func (m *rehearsing) copyable() bool { return len(m.asked.otherSchema) == 0 }

// copied returns a replay that stands where the live rows do: with copies of them or, if the changed
// files give tables another form, with rows replayed from the journal.
func (m *rehearsing) copied(ctx context.Context, f *Replayer, id string, before standsAt) (*Expected, error) {
	expected, err := f.Begin(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range expected.names {
		if s, known := before.stands[name]; before.paused[name] || known && s.State != outbox.CursorLive {
			expected.drop(name)
		}
	}
	at := before.mark.AppliedSeq
	if m.copyable() {
		mark, stands, err := f.scratch.LoadLive(ctx, id, f.tables(expected.names)...)
		if err != nil {
			return nil, err
		}
		if !before.same(standsAt{mark, stands, before.paused}) {
			return nil, errMoved
		}
		expected.Seq, expected.Hash = at, before.mark.AppliedHash
		return expected, m.madeAlike(ctx, f, expected)
	}
	err = m.fromStart(ctx, expected, at)
	if err == nil && expected.Hash != before.mark.AppliedHash {
		err = unrehearsedf("the projections were built from another journal")
	}
	return expected, err
}

// madeAlike refuses live tables of another form than the projection's file gives them.
func (m *rehearsing) madeAlike(ctx context.Context, f *Replayer, expected *Expected) error {
	tables := slices.DeleteFunc(f.tables(expected.names), func(table string) bool { return m.alike[table] })
	if len(tables) == 0 {
		return nil
	}
	others, err := f.scratch.MadeOtherwise(ctx, tables)
	if err == nil && len(others) == 0 {
		for _, table := range tables {
			m.alike[table] = true
		}
	}
	if len(others) > 0 {
		err = unrehearsedf("the database has %s in a different form from the projection's file: what passes on a copy may fail there", strings.Join(others, ", "))
	}
	return err
}

// fromStart replays a campaign up to an event, if it is not too long.
func (m *rehearsing) fromStart(ctx context.Context, expected *Expected, at int64) error {
	if at > outbox.MaxRehearsalReplay {
		return unrehearsedf("the campaign must be replayed from its start, and it has %s; the limit is %s", outbox.Count(at, "applied event", "applied events"), outbox.Number(outbox.MaxRehearsalReplay))
	}
	err := expected.To(ctx, at)
	if u := asInconsistent(err); u != nil {
		return unrehearsedf("the journal cannot be replayed: %s", u.reason)
	}
	return err
}

// firstFailure returns the first event that a projection refused; nil if none did. That the
// projection would be quarantined instead of blocking does not matter: its rows are not fixed.
func (d *Expected) firstFailure() *ReplayFailure {
	var first *ReplayFailure
	for _, name := range d.names {
		if failed, is := d.Failed[name]; is && (first == nil || failed.Seq < first.Seq) {
			first = &failed
		}
	}
	return first
}

// refuses returns the first event of a healthy campaign that a projection refuses with the changed
// files: one that the loaded files do not refuse alike or, if there is none, one that both do.
func (m *rehearsing) refuses(loaded, changed *Expected) (first *ReplayFailure, alike bool) {
	for _, name := range changed.names {
		failed, is := changed.Failed[name]
		if !is {
			continue
		}
		was, before := loaded.Failed[name]
		same := before && was.Seq == failed.Seq && m.worker.Failure(was.Err).Fingerprint == m.worker.Failure(failed.Err).Fingerprint
		if first == nil || alike && !same || alike == same && failed.Seq < first.Seq {
			first, alike = &failed, same
		}
	}
	return first, alike
}

// fails records that an event would fail.
func (m *rehearsing) fails(result *outbox.RunResult, head blockedHead, failed ReplayFailure) {
	f := m.worker.Failure(failed.Err)
	result.Outcome, result.Error, result.Seq = outbox.OutcomeFailsDifferently, f.Message, failed.Seq-1
	if failed.Seq == head.Seq && f.Fingerprint == head.Fingerprint {
		result.Outcome = outbox.OutcomeFailsSame
	}
	result.Rehearsed.FailedSeq, result.Rehearsed.EventType = failed.Seq, failed.EventType
	result.Rehearsed.Applied = max(0, failed.Seq-head.Seq)
}

// shared lists the tables with a key that rows of several campaigns share.
func (m *rehearsing) shared(expected *Expected) (tables []string) {
	for _, name := range expected.names {
		tables = append(tables, m.set.Named(name).Shared()...)
	}
	return tables
}

// vouches refuses to say that events would pass if rows that are not copied may conflict.
func (m *rehearsing) vouches(expected *Expected) error {
	if shared := m.shared(expected); len(shared) > 0 {
		return unrehearsedf("it would pass on a copy of its own rows, but a key of %s has no campaign_id: rows of other campaigns, which are not copied, may conflict", strings.Join(shared, ", "))
	}
	return nil
}

// compareLive records how the live rows differ from a replay with the changed files.
func (m *rehearsing) compareLive(ctx context.Context, f *Replayer, expected *Expected, before standsAt, result *outbox.RunResult) error {
	live, err := f.store.ReadModel().Live(ctx)
	if err != nil {
		return err
	}
	defer live.Close()
	after, err := m.standsAt(ctx, live, expected.campaign)
	if err == nil && !before.same(after) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	for _, name := range expected.names {
		p := outbox.ProjectionResult{Projection: name, Seq: expected.Seq}
		if expected.left[name] {
			p.Seq, p.LeftOut = before.mark.AppliedSeq, outbox.CursorPaused
			if s := before.stands[name]; s.State != "" && s.State != outbox.CursorLive {
				p.Seq, p.LeftOut = s.AppliedSeq, s.State
			}
		} else if _, err := f.compare(ctx, live, expected.campaign, &p); err != nil {
			return fmt.Errorf("compare what a rehearsal made: %w", err)
		}
		result.Projections = append(result.Projections, p)
	}
	return f.noteVersions(ctx, expected.campaign, result.Projections)
}

// healthy replays a campaign with the loaded and with the changed files and compares the rows. If the
// loaded files cannot replay it, the rows that an earlier version made are compared instead.
func (m *rehearsing) healthy(ctx context.Context, id string, result *outbox.RunResult) error {
	was, err := m.open(ctx, &m.loaded, m.worker.Set)
	if err != nil {
		return err
	}
	is, err := m.open(ctx, &m.changed, m.set)
	if err != nil {
		return err
	}
	at, err := m.asNow(ctx, id)
	if err != nil {
		return err
	}
	result.Seq = at.mark.AppliedSeq
	if result.Seq > outbox.MaxRehearsalReplay {
		return unrehearsedf("it has %s by now; the limit is %s", outbox.Count(result.Seq, "applied event", "applied events"), outbox.Number(outbox.MaxRehearsalReplay))
	}
	var sides [2]*Expected
	for i, f := range []*Replayer{was, is} {
		if sides[i], err = f.Begin(ctx, id, stopsOf(at.stands)); err != nil {
			return err
		}
		if err = sides[i].To(ctx, result.Seq); err != nil {
			break
		}
		result.Events += sides[i].Events
	}
	if u := asInconsistent(err); u != nil {
		return unrehearsedf("its journal cannot be replayed: %s", u.reason)
	}
	if err != nil {
		return err
	}
	if !maps.Equal(sides[0].Skips, sides[1].Skips) {
		return errMoved
	}
	if first, alike := m.refuses(sides[0], sides[1]); first != nil {
		result.Outcome, result.Error = outbox.OutcomeBreaks, m.worker.Failure(first.Err).Message
		result.Rehearsed.FailedSeq, result.Rehearsed.EventType = first.Seq, first.EventType
		if alike {
			result.Outcome, result.Error = outbox.OutcomeNotCompared, fmt.Sprintf("event %d fails alike with the loaded files: %s", first.Seq, result.Error)
		}
		return nil
	}
	if sides[0].firstFailure() != nil {
		err = m.compareWithLive(ctx, is, sides[1], at, result)
	} else {
		err = m.compareSides(ctx, was, is, sides[1], at, result)
	}
	if left := result.NotCompared(); err == nil && result.Outcome == outbox.OutcomeSameRows && len(left) > 0 {
		var lacking []string
		for _, n := range left {
			lacking = append(lacking, fmt.Sprintf("projection %s is %s: the events that it lacks were not compared", n.Projection, n.State))
		}
		result.Outcome, result.Error = outbox.OutcomeNotCompared, strings.Join(lacking, "; ")
	}
	return err
}

// compareSides compares the rows of both replays.
func (m *rehearsing) compareSides(ctx context.Context, was, is *Replayer, expected *Expected, at standsAt, result *outbox.RunResult) error {
	result.Outcome = outbox.OutcomeSameRows
	for _, name := range expected.names {
		c, _, err := m.set.Compare(ctx, was.scratch, is.scratch, expected.campaign, name)
		if err != nil {
			return err
		}
		p := outbox.ProjectionResult{Projection: name, Seq: expected.positionOf(name, at.stands), Comparison: &c, Verdict: outbox.VerdictMatch}
		if p.Seq < expected.Seq {
			p.LeftOut = at.stands[name].State
		}
		if c.Differs() {
			p.Verdict, result.Outcome = outbox.VerdictDrift, outbox.OutcomeOtherRows
			p.Comparison.RowsBuilt = outbox.Installed{Built: []string{was.set.Named(name).Version}}.Rows(c.Version)
		}
		result.Projections = append(result.Projections, p)
	}
	return m.noteDrift(ctx, was, expected, at, result)
}

// noteDrift records the projections whose live rows are not those that the loaded files make, unless
// events were applied since they were replayed.
func (m *rehearsing) noteDrift(ctx context.Context, was *Replayer, expected *Expected, at standsAt, result *outbox.RunResult) error {
	live, err := was.store.ReadModel().Live(ctx)
	if err != nil {
		return err
	}
	defer live.Close()
	if now, err := m.standsAt(ctx, live, expected.campaign); err != nil || !now.same(at) {
		return err
	}
	for _, name := range expected.names {
		if at.stands[name].State == outbox.CursorBehind || !was.set.CoversAll(name) {
			continue
		}
		c, _, err := was.set.Compare(ctx, live, was.scratch, expected.campaign, name)
		if err != nil {
			return err
		}
		if c.Differs() {
			result.Rehearsed.Drifted = append(result.Rehearsed.Drifted, name)
		}
	}
	return nil
}

// compareWithLive compares the rows of the replay with the changed files with the live ones.
func (m *rehearsing) compareWithLive(ctx context.Context, f *Replayer, expected *Expected, at standsAt, result *outbox.RunResult) error {
	if expected.Hash != at.mark.AppliedHash {
		return unrehearsedf("the projections were built from another journal")
	}
	result.Outcome, result.Rehearsed.Live = outbox.OutcomeSameRows, true
	if err := m.compareLive(ctx, f, expected, at, result); err != nil {
		return err
	}
	for _, p := range result.Projections {
		if p.Verdict == outbox.VerdictDrift {
			result.Outcome = outbox.OutcomeOtherRows
		}
	}
	return nil
}
