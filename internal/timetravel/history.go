package timetravel

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// history is the row changes of one campaign. Its log and recording belong to the replaying
// goroutine, of which there is one at most; readers share the log. mu of the Travel guards the rest.
type history struct {
	travel   *Travel
	campaign string
	lineage  int64 // of the journal that is replayed

	log        *changeLog
	recording  *runs.Recording
	statements []projection.Statement
	built      map[string]campaign.ReplayedWith // what the events are replayed with, by projection
	compared   []ModelStanding
	skipped    map[int64]int64 // ids of the skips that the replay passed over, by seq
	checked    int64           // up to this event
	comparedAt time.Time

	users     int       // readers that use it
	read      time.Time // by the last of them
	replaying bool
	target    int64         // the event up to which the replay goes
	done      int64         // the event that it has reached
	failure   error         // that ended the last replay
	told      chan struct{} // closed at progress
	dropped   bool
}

// abandoned is after how long without readers a replay ends; pages that show its progress ask once
// a second.
const abandoned = 10 * time.Second

// freshly is how often at most live rows are compared with replayed ones while events arrive.
const freshly = 10 * time.Second

func (h *history) size() int64 {
	if h.log == nil {
		return 0
	}
	_, _, size := h.log.span()
	return size
}

func (h *history) standings() []ModelStanding {
	h.travel.mu.Lock()
	defer h.travel.mu.Unlock()
	return append([]ModelStanding{}, h.compared...)
}

// close closes what is open. The caller holds mu; nobody uses it.
func (h *history) close() {
	if h.log != nil {
		_ = h.log.close() // a temporary file that has no name
		h.log = nil
	}
	if h.recording != nil {
		_ = h.recording.Close()
		h.recording = nil
	}
}

// reach waits, no longer than until, for the log to have seq, and has the replay go on to the last applied event.
func (h *history) reach(ctx, until context.Context, seq, applied int64) (*changeLog, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	for began := false; ; began = true {
		l, s := h.look(seq, applied, began)
		switch {
		case l != nil && (!s.comparing || until.Err() != nil):
			return l, nil
		case s.ended && s.failure != nil:
			return nil, s.failure
		}
		select {
		case <-s.told:
		case <-until.Done():
			if l != nil {
				return l, nil
			}
			return nil, &s.progress
		}
	}
}

// sight is the state of a replay as a reader sees it.
type sight struct {
	told      chan struct{} // closed at the next progress
	ended     bool
	failure   error
	comparing bool // no comparison with the live rows has ended yet
	progress  Replaying
}

// look returns the log if it has seq, and begins to replay what it lacks, but not again after a
// failure.
func (h *history) look(seq, applied int64, again bool) (*changeLog, sight) {
	h.travel.mu.Lock()
	defer h.travel.mu.Unlock()
	last := int64(-1)
	if h.log != nil {
		_, last, _ = h.log.span()
	}
	if last < applied && (!again || h.failure == nil || errors.Is(h.failure, errAbandoned)) {
		h.start(applied)
	}
	s := sight{told: h.told, ended: !h.replaying, failure: h.failure, comparing: h.replaying && h.compared == nil && last >= applied,
		progress: Replaying{Done: h.done, Total: max(h.target, seq)}}
	if last < seq {
		return nil, s
	}
	return h.log, s
}

// errStale is a history whose events are not the journal's any more.
var errStale = errors.New("other events are skipped now than in the replay, other versions built the rows, or the journal went back")

// check returns errStale if other events are skipped now than in the replay, other versions built the rows of them
// since, or the journal went back.
func (h *history) check(ctx context.Context) error {
	h.travel.mu.Lock()
	skipped, seq, replayed := h.skipped, h.checked, h.built
	h.travel.mu.Unlock()
	if h.lineage != h.travel.Store.Lineage() {
		return errStale
	}
	if seq == 0 {
		return nil
	}
	skips, err := h.travel.Store.ActiveSkips(ctx, h.campaign, seq)
	if err != nil {
		return err
	}
	for _, k := range skips {
		if skipped[k.Seq] != k.ID {
			return errStale
		}
	}
	if len(skips) != len(skipped) {
		return errStale
	}
	built, err := runs.Built(ctx, h.travel.Store, h.travel.Set, h.campaign)
	for name, b := range built {
		with := replayed[name]
		if b.AsBuilt = with.AsBuilt; with.AsBuilt && !b.Built.SameUpTo(seq, with.Built, with.Version) {
			return errStale
		}
		built[name] = b
	}
	if err == nil {
		h.travel.mu.Lock()
		h.built = built
		h.travel.mu.Unlock()
	}
	return err
}

// replayedWith is what each projection is replayed with.
func (h *history) replayedWith() map[string]campaign.ReplayedWith {
	h.travel.mu.Lock()
	defer h.travel.mu.Unlock()
	return h.built
}

// start begins a replay unless there is one. The caller holds mu.
func (h *history) start(target int64) {
	t := h.travel
	h.target = max(target, h.target)
	if h.replaying || t.closed {
		return
	}
	h.replaying, h.failure, h.target = true, nil, target
	t.working.Go(func() {
		err := h.replay(t.ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		h.replaying, h.failure = false, err
		if err != nil && !errors.Is(err, errAbandoned) || h.dropped && h.users == 0 {
			t.drop(h)
		}
		h.tell()
	})
}

// tell wakes those who wait. The caller holds mu.
func (h *history) tell() {
	close(h.told)
	h.told = make(chan struct{})
}

var errAbandoned = errors.New("nobody waits for the replay any more")

// progress notes how far the replay is; it ends the replay if nobody waits for it.
func (h *history) progress(seq int64) error {
	t := h.travel
	t.mu.Lock()
	defer t.mu.Unlock()
	h.done = seq
	h.tell()
	if h.dropped || h.users == 0 && time.Since(h.read) > abandoned {
		return errAbandoned
	}
	return nil
}

func (h *history) goal() int64 {
	h.travel.mu.Lock()
	defer h.travel.mu.Unlock()
	return h.target
}

// replay replays up to the target and compares the rows with the live ones.
func (h *history) replay(ctx context.Context) error {
	if h.recording == nil {
		if err := h.open(ctx); err != nil {
			h.travel.mu.Lock()
			defer h.travel.mu.Unlock()
			h.close()
			return err
		}
	}
	for h.recording.Seq() < h.goal() {
		err := h.recording.To(ctx, h.goal(), func(changes []runs.Change) error {
			seq := h.recording.Seq()
			if err := h.log.append(ctx, seq, changes); err != nil {
				return err
			}
			if err := h.trim(ctx); err != nil {
				return err
			}
			return h.progress(seq)
		})
		h.travel.mu.Lock()
		h.skipped, h.checked = h.recording.Skips(), h.recording.Seq()
		h.travel.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return h.compare(ctx)
}

// open begins the replay of a campaign: without recording up to the events that are kept.
func (h *history) open(ctx context.Context) error {
	t := h.travel
	r, err := runs.NewRecording(ctx, t.Store, t.Set, h.campaign)
	if err != nil {
		return err
	}
	built, err := r.AsBuilt(ctx)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	l, err := openLog(ctx, r.Tables)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	t.mu.Lock()
	h.recording, h.log, h.statements, h.built, h.done = r, l, r.Statements, built, 0
	t.opened++
	t.mu.Unlock()
	base := max(0, h.goal()-t.Events)
	if base > 0 {
		if err := r.Skim(ctx, base, h.progress); err != nil {
			return err
		}
	}
	return l.begin(ctx, base, func(table int, visit func([]json.RawMessage) error) error {
		if base == 0 {
			return nil
		}
		return r.Rows(ctx, table, visit)
	})
}

// trim forgets the oldest events beyond the limits.
func (h *history) trim(ctx context.Context) error {
	base, seq, size := h.log.span()
	events := h.travel.Events
	switch {
	case seq-base > events+events/2:
		return h.log.trim(ctx, seq-events)
	case size > h.travel.Bytes/2 && seq > base:
		return h.log.trim(ctx, base+(seq-base+1)/2)
	}
	return nil
}

// compare compares the replayed rows with the live ones, not more often than freshly.
func (h *history) compare(ctx context.Context) error {
	h.travel.mu.Lock()
	due := time.Since(h.comparedAt) > freshly
	h.travel.mu.Unlock()
	if !due {
		return nil
	}
	results, err := h.recording.Compare(ctx)
	if err != nil {
		return err
	}
	standings := make([]ModelStanding, len(results))
	for i, p := range results {
		s := ModelStanding{Projection: p.Projection, Verdict: string(p.Verdict), Error: p.Error, FailedSeq: p.ErrorSeq}
		if c := p.Comparison; c != nil {
			s.Differ = c.Added + c.Changed + c.Removed
		}
		standings[i] = s
	}
	h.travel.mu.Lock()
	defer h.travel.mu.Unlock()
	h.compared, h.comparedAt = standings, time.Now()
	return nil
}
