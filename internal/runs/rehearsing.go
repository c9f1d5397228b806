package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// rehearsalTime is how long a rehearsal may work. Campaigns that are left then are not rehearsed.
const rehearsalTime = 15 * time.Minute

// rehearsing is a rehearsal in progress.
type rehearsing struct {
	*runner
	changed  *Replayer // of set; nil before its first use
	copies   *Replayer // of set, for blocked campaigns; nil before its first use
	loaded   *Replayer // of the loaded set; nil before its first use
	opened   []*Replayer
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
	return r.eachPage(ctx, groupCampaigns, func(page []Campaign) error {
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
		return nil
	})
}

// clear empties the scratch tables, so that no row of a campaign meets those of the next.
func (m *rehearsing) clear(ctx context.Context) error {
	for _, f := range m.opened {
		if err := f.scratch.Clear(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

func (m *rehearsing) close() {
	for _, f := range m.opened {
		f.Close()
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
	*f, m.opened = made, append(m.opened, made)
	return made, nil
}

// unrehearsed ends the rehearsal of one campaign; its text is the reason.
type unrehearsed struct{ reason string }

func (e *unrehearsed) Error() string { return e.reason }

func unrehearsedf(format string, args ...any) error {
	return &unrehearsed{fmt.Sprintf(format, args...)}
}

// campaign rehearses one campaign, again if it changes meanwhile.
func (m *rehearsing) campaign(ctx context.Context, id string) (result replay.RunResult, err error) {
	head, blocked := m.asked.blocked[id]
	within, cancel := context.WithDeadline(ctx, m.deadline)
	defer cancel()
	err = untilStill(func() error {
		result = replay.RunResult{Projections: []replay.ProjectionResult{}, Rehearsed: &replay.Rehearsed{Head: head.Seq, Quarantined: head.Projection}}
		if err := m.inBounds(); err != nil {
			return err
		}
		if !blocked {
			return m.healthy(within, id, &result)
		}
		if err := m.attempt(within, id, head, &result); err != nil || result.Outcome != replay.OutcomeReplayed {
			return err
		}
		return m.alsoQuarantined(within, id, head.Projection, &result)
	})
	if reason := m.whyNot(ctx, within, err); reason != "" {
		result.Outcome, result.Error, err = replay.OutcomeNotCompared, reason, nil
	}
	return result, err
}

// inBounds refuses more work than a rehearsal may do.
func (m *rehearsing) inBounds() error {
	switch {
	case !time.Now().Before(m.deadline):
		return unrehearsedf("the rehearsal reached its limit of %s", event.Limit(rehearsalTime))
	case m.events >= replay.MaxRehearsalEvents:
		return unrehearsedf("the rehearsal reached its limit of %s", event.Count(replay.MaxRehearsalEvents, "event", "events"))
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
		return "the rehearsal reached its limit of " + event.Limit(rehearsalTime)
	case errors.Is(err, event.ErrNotFound):
		return "the campaign is gone"
	}
	return ""
}

// attempt applies the event that blocks a campaign, or at which a projection is quarantined, and those
// behind it, to copies of its rows, as a worker or a replay does once the changed files are loaded.
func (m *rehearsing) attempt(ctx context.Context, id string, head blockedHead, result *replay.RunResult) error {
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
	before, err := f.standsNow(ctx, id)
	if err != nil {
		return err
	}
	at, last := before.at(head.Projection), c.HighWaterSeq
	if head.Projection != "" {
		last = before.mark.AppliedSeq
	}
	result.Seq = at
	if reason := head.outdated(c, before); reason != "" {
		return &unrehearsed{reason}
	}
	expected, err := m.copied(ctx, f, id, head, before)
	if err == nil {
		err = m.forgetOrder(f)
	}
	if err != nil {
		return err
	}
	failed, err := expected.try(ctx, min(head.Seq+m.asked.behind, last))
	result.Events = expected.Events
	if err != nil {
		return err
	}
	if _, skipped := expected.Skips[head.Seq]; skipped {
		return unrehearsedf("the campaign moved: event %d was skipped after the rehearsal was started", head.Seq)
	}
	if failed != nil {
		m.fails(result, head, failed)
		after, err := f.standsNow(ctx, id)
		if err == nil && !before.same(after, head.Projection) {
			err = errMoved
		}
		return err
	}
	result.Outcome, result.Seq = replay.OutcomeReplayed, expected.Seq
	result.Rehearsed.Applied, result.Rehearsed.Left = expected.Seq-at, last-expected.Seq
	if result.Projections, err = f.compareLive(ctx, expected, head.Projection, before); err != nil {
		return err
	}
	if err := m.vouches(expected); err != nil {
		return err
	}
	return m.orderDecides(ctx, f)
}

// outdated says why a head is not the event to try any more; empty if it is.
func (h blockedHead) outdated(c campaign.Campaign, now standsAt) string {
	at := now.at(h.Projection)
	switch {
	case h.Projection != "" && (now.stands[h.Projection].State != campaign.CursorQuarantined || at+1 != h.Seq):
		return fmt.Sprintf("the campaign moved: projection %s is not quarantined at event %d any more", h.Projection, h.Seq)
	case h.Projection != "" && now.paused[h.Projection]:
		return fmt.Sprintf("projection %s is paused", h.Projection)
	case h.Projection != "":
		return ""
	case c.Diverged != "":
		return "the campaign has diverged: " + c.Diverged
	case at >= h.Seq:
		return fmt.Sprintf("the campaign moved: event %d was applied after the rehearsal was started", h.Seq)
	case at+1 != h.Seq:
		return fmt.Sprintf("event %d is not the next one: the campaign is at event %d", h.Seq, at)
	}
	return ""
}

// alsoQuarantined tries the events at which the other changed projections are quarantined in a campaign that
// passes: what is rehearsed passes only if all of them do.
func (m *rehearsing) alsoQuarantined(ctx context.Context, id, tried string, result *replay.RunResult) error {
	order := replay.RehearsalRequest{Campaigns: []string{id}} // by whichever error
	for _, name := range slices.Sorted(maps.Keys(m.asked.versions)) {
		if name == tried {
			continue
		}
		heads, err := m.worker.Runs.quarantinedHeads(ctx, order, []string{name})
		if err != nil {
			return err
		}
		head, is := heads[id]
		if !is {
			continue
		}
		also := replay.RunResult{Projections: []replay.ProjectionResult{}, Rehearsed: &replay.Rehearsed{Head: head.Seq, Quarantined: name}}
		err = m.attempt(ctx, id, head, &also)
		result.Events += also.Events
		var not *unrehearsed
		switch {
		case errors.As(err, &not): // it is paused, or passed the event since
		case err != nil:
			return err
		case also.Outcome != replay.OutcomeReplayed:
			also.Events = result.Events
			*result = also
			return nil
		default:
			result.Rehearsed.Also = append(result.Rehearsed.Also, replay.TriedQuarantine{Projection: name, Head: head.Seq})
			result.Projections = slices.DeleteFunc(result.Projections, func(p replay.ProjectionResult) bool { return p.Projection == name })
			result.Projections = append(result.Projections, also.Projections...)
		}
	}
	return nil
}

// copyable reports whether the live rows can be copied: the changed files leave all tables as they
// are.
func (m *rehearsing) copyable() bool { return len(m.asked.otherSchema) == 0 }

// copied returns a replay that stands where the live rows do: with copies of them or with rows replayed
// from the journal, if the changed files give tables another form, or a quarantined projection reads those
// of others, which are further ahead.
func (m *rehearsing) copied(ctx context.Context, f *Replayer, id string, head blockedHead, before standsAt) (*Expected, error) {
	needs, err := m.set.Needs(head.projections()...)
	if err != nil {
		return nil, err
	}
	if m.copyable() && (head.Projection == "" || len(needs) == 1) {
		expected, err := f.copies(ctx, id, head.Projection, before)
		if err == nil {
			err = m.madeAlike(ctx, f, expected)
		}
		return expected, err
	}
	expected, err := f.beginOn(ctx, id, head.Projection, before)
	if err == nil {
		err = m.fromStart(ctx, expected, before.at(head.Projection))
	}
	if err == nil && head.Projection == "" && expected.Hash != before.mark.AppliedHash {
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
	if at > replay.MaxRehearsalReplay {
		return unrehearsedf("the campaign must be replayed from its start, and it has %s; the limit is %s", event.Count(at, "applied event", "applied events"), event.Number(replay.MaxRehearsalReplay))
	}
	err := expected.To(ctx, at)
	if u := asInconsistent(err); u != nil {
		return unrehearsedf("the journal cannot be replayed: %s", u.reason)
	}
	return err
}

// fails records that an event would fail. That a projection would be quarantined by it instead of blocking
// does not matter: its rows are not fixed.
func (m *rehearsing) fails(result *replay.RunResult, head blockedHead, failed *ReplayFailure) {
	f := m.worker.Failure(failed.Err)
	at := result.Rehearsed
	result.Outcome, result.Error, result.Seq = replay.OutcomeFailed, f.Message, failed.Seq-1
	at.FailedSeq, at.EventType, at.Projection = failed.Seq, failed.EventType, failed.Projection
	at.SameError = failed.Seq == head.Seq && f.Fingerprint == head.Fingerprint
	at.Applied = max(0, failed.Seq-head.Seq)
}

// vouches refuses to say that events would pass if rows that are not copied may conflict.
func (m *rehearsing) vouches(expected *Expected) error {
	var shared []string // tables with a key that rows of several campaigns share
	for _, name := range expected.names {
		shared = append(shared, m.set.Named(name).Shared()...)
	}
	if len(shared) > 0 {
		return unrehearsedf("it would pass on a copy of its own rows, but a key of %s has no campaign_id: rows of other campaigns, which are not copied, may conflict", strings.Join(shared, ", "))
	}
	return nil
}

// healthy compares the live rows of a campaign with what the changed files make of its journal, and those
// with what the loaded files make.
func (m *rehearsing) healthy(ctx context.Context, id string, result *replay.RunResult) error {
	was, err := m.open(ctx, &m.loaded, m.worker.Set)
	if err != nil {
		return err
	}
	is, err := m.open(ctx, &m.changed, m.set)
	if err != nil {
		return err
	}
	was.foreign, is.foreign = false, !m.copyable()
	at, err := is.standsNow(ctx, id)
	if err != nil {
		return err
	}
	if result.Seq = at.mark.AppliedSeq; result.Seq > replay.MaxRehearsalReplay {
		return unrehearsedf("it has %s by now; the limit is %s", event.Count(result.Seq, "applied event", "applied events"), event.Number(replay.MaxRehearsalReplay))
	}
	loaded, err := was.Verify(ctx, id, 0)
	if err != nil {
		return err
	}
	changed, err := is.Verify(ctx, id, 0)
	if err != nil {
		return err
	}
	changed.Events, changed.Unsound, changed.Rehearsed = loaded.Seq+changed.Seq, 0, result.Rehearsed
	*result = changed
	return m.judge(ctx, result, loaded)
}

// judge says of a healthy campaign what the changed files change: rows that are not those of the loaded files
// either, and events that these refuse alike, are not their doing.
func (m *rehearsing) judge(ctx context.Context, result *replay.RunResult, loaded replay.RunResult) error {
	at, others, alike := result.Rehearsed, false, false
	var first *replay.ProjectionResult // that refuses an event
	for i := range result.Projections {
		p, was := &result.Projections[i], loaded.Of(result.Projections[i].Projection)
		if was.Verdict == campaign.VerdictDrift {
			at.Drifted = append(at.Drifted, p.Projection)
		}
		others = others || p.Verdict == campaign.VerdictDrift && p.Digest != was.Digest
		same := was.ErrorSeq == p.ErrorSeq && m.likeness(was.Error) == m.likeness(p.Error)
		if p.ErrorSeq > 0 && (first == nil || alike && !same || alike == same && p.ErrorSeq < first.ErrorSeq) {
			first, alike = p, same
		}
	}
	switch {
	case len(at.Drifted) > 0 && loaded.Seq != result.Seq:
		return errMoved
	case first == nil && result.Outcome == replay.OutcomeFailed:
		result.Outcome = replay.OutcomeNotCompared
	case first == nil && result.Outcome == replay.OutcomeDrift && !others:
		result.Outcome = replay.OutcomeMatch
	case first == nil:
	case alike:
		result.Outcome, result.Error = replay.OutcomeNotCompared, fmt.Sprintf("event %d fails alike with the loaded files: %s", first.ErrorSeq, first.Error)
	default:
		event, err := m.worker.Runs.core.Event(ctx, result.CampaignID, first.ErrorSeq)
		result.Error, at.FailedSeq, at.EventType, at.Projection = first.Error, first.ErrorSeq, event.EventType, first.Projection
		return err
	}
	return nil
}

// likeness is the same text for errors that are alike.
func (m *rehearsing) likeness(message string) string {
	return m.worker.Failure(errors.New(message)).Fingerprint
}
