package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outboxweb/internal/loop"
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
)

// appliedHub is the callers of this process that wait for projections. One
// goroutine looks at the watermarks for all of them, while there are any.
type appliedHub struct {
	mu       sync.Mutex
	waiting  map[string][]*waiter // by campaign
	due      map[string]bool      // campaigns to look at now
	kick     loop.Signal          // something is due, or nobody waits any more
	watching bool
	looks    atomic.Int64 // at watermarks so far
}

type waiter struct {
	seq  int64
	done chan struct{} // closed once mark or err is there
	mark readmodel.Watermark
	err  error
}

// announce tells which watermarks have advanced.
func (h *appliedHub) announce(reached map[string]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return
	}
	for campaign, seq := range reached {
		if slices.ContainsFunc(h.waiting[campaign], func(w *waiter) bool { return w.seq <= seq }) {
			h.lookAt(campaign)
		}
	}
}

// lookAt has the watermark of a campaign looked at now.
func (h *appliedHub) lookAt(campaign string) {
	h.due[campaign] = true
	h.kick.Raise()
}

// add adds a waiter. first is true when nobody watches yet: then the caller
// has to see to it.
func (h *appliedHub) add(campaign string, seq int64) (w *waiter, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kick == nil {
		h.waiting, h.due, h.kick = make(map[string][]*waiter), make(map[string]bool), loop.NewSignal(1)
	}
	w = &waiter{seq: seq, done: make(chan struct{})}
	h.waiting[campaign] = append(h.waiting[campaign], w)
	h.lookAt(campaign)
	first, h.watching = !h.watching, true
	return w, first
}

func (h *appliedHub) remove(campaign string, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retain(campaign, func(other *waiter) bool { return other != w })
	if len(h.waiting) == 0 {
		h.kick.Raise()
	}
}

// retain forgets the waiters of a campaign that are not to be kept.
func (h *appliedHub) retain(campaign string, kept func(*waiter) bool) {
	still := slices.DeleteFunc(h.waiting[campaign], func(w *waiter) bool { return !kept(w) })
	if h.waiting[campaign] = still; len(still) == 0 {
		delete(h.waiting, campaign)
	}
}

// toLookAt lists the campaigns that are due, or all that somebody waits for.
// When there is no waiter any more, it returns none and watching ends.
func (h *appliedHub) toLookAt(all bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watching = len(h.waiting) > 0; !h.watching {
		clear(h.due)
		return nil
	}
	due := slices.Collect(maps.Keys(h.due))
	if all || len(due) == 0 {
		due = slices.Collect(maps.Keys(h.waiting))
	}
	clear(h.due)
	return due
}

// deliver tells the waiters of campaigns what was seen.
func (h *appliedHub) deliver(campaigns []string, marks map[string]readmodel.Watermark, err error) {
	h.looks.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, campaign := range campaigns {
		mark := marks[campaign]
		h.retain(campaign, func(w *waiter) bool {
			if err == nil && mark.AppliedSeq < w.seq {
				return true
			}
			w.mark, w.err = mark, err
			close(w.done)
			return false
		})
	}
}

// Another process may be the one that applies, so that the watermarks are looked
// at every otherProcessPoll. When that takes long, since many campaigns are
// waited for, it rests restAfterLook times as long.
const (
	otherProcessPoll = 25 * time.Millisecond
	restAfterLook    = 20
)

// watchApplied looks at watermarks until nobody waits.
func (s *Store) watchApplied() {
	h := &s.applied
	poll := time.NewTimer(otherProcessPoll)
	defer poll.Stop()
	for {
		all := false
		select {
		case <-h.kick:
		case <-poll.C:
			all = true
		}
		campaigns := h.toLookAt(all)
		if len(campaigns) == 0 {
			return
		}
		began := time.Now()
		marks, err := s.readmodel.Watermarks(context.Background(), campaigns)
		h.deliver(campaigns, marks, err)
		if all {
			poll.Reset(max(otherProcessPoll, restAfterLook*time.Since(began)))
		}
	}
}

// WaitApplied returns the applied seq once the projections of the campaign
// have seq. When ctx ends first, or at once when the projections were built from
// another journal, it returns an outbox.ErrNotYet refusal that says what is
// missing; an unknown campaign is outbox.ErrNotFound.
func (s *Store) WaitApplied(ctx context.Context, campaign string, seq int64) (int64, error) {
	beyond := context.WithoutCancel(ctx)
	if err := s.mustExist(beyond, campaign); err != nil {
		return 0, err
	}
	w, first := s.applied.add(campaign, seq)
	defer s.applied.remove(campaign, w)
	if first {
		go s.watchApplied()
	}
	select {
	case <-w.done:
		if w.err != nil {
			return 0, w.err
		}
		return w.mark.AppliedSeq, s.mustFit(beyond, campaign, w.mark, seq)
	case <-ctx.Done():
	}
	mark, err := s.WatermarkOf(beyond, campaign)
	if err != nil {
		return 0, err
	}
	if mark.AppliedSeq >= seq {
		return mark.AppliedSeq, s.mustFit(beyond, campaign, mark, seq)
	}
	return mark.AppliedSeq, s.notYet(beyond, campaign, seq, mark.AppliedSeq)
}

// mustFit refuses when the watermark counts events of another journal.
func (s *Store) mustFit(ctx context.Context, campaign string, w readmodel.Watermark, seq int64) error {
	reason, err := s.Divergence(ctx, campaign, w)
	if err == nil && reason != "" {
		err = &outbox.Refusal{Err: outbox.ErrNotYet, Detail: fmt.Sprintf("event %d is not applied to campaign %q, which has diverged: %s; nothing is applied to it until this is resolved: %s", seq, campaign, reason, outbox.RightJournalFirst)}
	}
	return err
}

func (s *Store) mustExist(ctx context.Context, campaign string) error {
	return s.journal.Read(ctx, func(t *Tx) error {
		_, err := t.ExistingCampaign(campaign)
		return err
	})
}

// AppliedSeq reads how far the projections of a campaign are; 0 for a campaign
// they do not know.
func (s *Store) AppliedSeq(ctx context.Context, campaign string) (int64, error) {
	w, err := s.WatermarkOf(ctx, campaign)
	return w.AppliedSeq, err
}

func (s *Store) notYet(ctx context.Context, campaign string, seq, applied int64) error {
	c, err := s.Campaign(ctx, campaign)
	if err != nil {
		return err
	}
	summary, err := s.Summary(ctx)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("the projections of campaign %q are at event %d and not yet at event %d: %s",
		campaign, applied, seq, c.Why(s.options.Now(), summary.Surroundings()))
	if seq > c.HighWaterSeq {
		detail = fmt.Sprintf("campaign %q has no event %d yet; its last one is %d", campaign, seq, c.HighWaterSeq)
	}
	return &outbox.Refusal{Err: outbox.ErrNotYet, Detail: detail}
}
