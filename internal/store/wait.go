package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"outboxweb/internal/outbox"
)

// appliedHub tells waiting callers of this process when a campaign's
// projections have advanced.
type appliedHub struct {
	mu      sync.Mutex
	waiting map[string][]waiter
}

type waiter struct {
	seq  int64
	done chan struct{}
}

func (h *appliedHub) announce(reached map[string]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return
	}
	for campaign, seq := range reached {
		still := h.waiting[campaign][:0]
		for _, w := range h.waiting[campaign] {
			if w.seq <= seq {
				close(w.done)
			} else {
				still = append(still, w)
			}
		}
		h.keep(campaign, still)
	}
}

func (h *appliedHub) keep(campaign string, waiters []waiter) {
	if len(waiters) == 0 {
		delete(h.waiting, campaign)
		return
	}
	h.waiting[campaign] = waiters
}

func (h *appliedHub) enter(campaign string, seq int64) waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = make(map[string][]waiter)
	}
	w := waiter{seq: seq, done: make(chan struct{})}
	h.waiting[campaign] = append(h.waiting[campaign], w)
	return w
}

func (h *appliedHub) leave(campaign string, w waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	still := h.waiting[campaign][:0]
	for _, other := range h.waiting[campaign] {
		if other.done != w.done {
			still = append(still, other)
		}
	}
	h.keep(campaign, still)
}

// otherProcessPoll is how often a waiter looks at the watermark itself, since
// another process may be the one that applies.
const otherProcessPoll = 25 * time.Millisecond

// WaitApplied returns the applied seq once the projections of the campaign
// have seq. When ctx ends first, or at once when the projections were built from
// another journal, it returns an outbox.ErrNotYet refusal that says what is
// missing; an unknown campaign is outbox.ErrNotFound.
func (s *Store) WaitApplied(ctx context.Context, campaign string, seq int64) (int64, error) {
	if err := s.mustExist(context.WithoutCancel(ctx), campaign); err != nil {
		return 0, err
	}
	w := s.applied.enter(campaign, seq)
	defer s.applied.leave(campaign, w)
	announced := w.done
	poll := time.NewTicker(otherProcessPoll)
	defer poll.Stop()
	for {
		mark, err := s.watermarkOf(context.WithoutCancel(ctx), campaign)
		if err != nil {
			return 0, err
		}
		applied := mark.AppliedSeq
		if applied >= seq {
			return applied, s.mustFit(context.WithoutCancel(ctx), campaign, mark, seq)
		}
		select {
		case <-announced:
			announced = nil // a part rolled back to its savepoint may have been announced too far
		case <-poll.C:
		case <-ctx.Done():
			return applied, s.notYet(context.WithoutCancel(ctx), campaign, seq, applied)
		}
	}
}

// mustFit refuses when the watermark counts events of another journal.
func (s *Store) mustFit(ctx context.Context, campaign string, w Watermark, seq int64) error {
	reason, err := s.Divergence(ctx, campaign, w)
	if err == nil && reason != "" {
		err = &outbox.Refusal{Err: outbox.ErrNotYet, Detail: fmt.Sprintf("the projections do not have event %d of campaign %q, which has diverged: %s; nothing is applied to it meanwhile: %s", seq, campaign, reason, outbox.RightJournalFirst)}
	}
	return err
}

func (s *Store) mustExist(ctx context.Context, campaign string) error {
	return s.journal.read(ctx, func(t *tx) error {
		_, err := t.existingCampaign(campaign)
		return err
	})
}

// AppliedSeq reads how far the projections of a campaign are; 0 for a campaign
// they do not know.
func (s *Store) AppliedSeq(ctx context.Context, campaign string) (int64, error) {
	w, err := s.watermarkOf(ctx, campaign)
	return w.AppliedSeq, err
}

func (s *Store) notYet(ctx context.Context, campaign string, seq, applied int64) error {
	c, err := s.Campaign(ctx, campaign)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("the projections of campaign %q have event %d and not yet event %d: %s",
		campaign, applied, seq, c.Why(s.options.Now(), outbox.Surroundings{Mode: s.options.Mode}))
	if seq > c.HighWaterSeq {
		detail = fmt.Sprintf("campaign %q has no event %d yet; its last one is %d", campaign, seq, c.HighWaterSeq)
	}
	return &outbox.Refusal{Err: outbox.ErrNotYet, Detail: detail}
}
