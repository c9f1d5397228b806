package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/readmodel"
)

// appliedHub holds the callers of this process that wait for projections. One goroutine polls
// the watermarks for all of them, while there are any.
type appliedHub struct {
	mu       sync.Mutex
	waiting  map[string][]*waiter // by campaign
	due      map[string]bool      // campaigns to poll now
	kick     loop.Signal          // a campaign is due, or the last waiter is gone
	watching bool
	looks    atomic.Int64 // polls of watermarks so far
}

type waiter struct {
	seq     int64
	lineage int64         // see Store.Lineage
	done    chan struct{} // closed once mark or err is set
	mark    readmodel.Watermark
	err     error
}

// announce tells waiters which watermarks have advanced.
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

// lookAt has the watermark of a campaign polled now.
func (h *appliedHub) lookAt(campaign string) {
	h.due[campaign] = true
	h.kick.Raise()
}

// add adds a waiter. first is true when no goroutine is watching yet: the caller must then
// start one.
func (h *appliedHub) add(campaign string, seq, lineage int64) (w *waiter, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kick == nil {
		h.waiting, h.due, h.kick = make(map[string][]*waiter), make(map[string]bool), loop.NewSignal(1)
	}
	w = &waiter{seq: seq, lineage: lineage, done: make(chan struct{})}
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

// retain removes the waiters of a campaign for which kept is false.
func (h *appliedHub) retain(campaign string, kept func(*waiter) bool) {
	still := slices.DeleteFunc(h.waiting[campaign], func(w *waiter) bool { return !kept(w) })
	if h.waiting[campaign] = still; len(still) == 0 {
		delete(h.waiting, campaign)
	}
}

// toLookAt lists the due campaigns, or all that have waiters. Without any waiter left it
// returns none and watching ends.
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

// deliver passes the watermarks read under a lineage, or the error, to the waiters of campaigns.
func (h *appliedHub) deliver(campaigns []string, lineage int64, marks map[string]readmodel.Watermark, err error) {
	h.looks.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, campaign := range campaigns {
		mark := marks[campaign]
		h.retain(campaign, func(w *waiter) bool {
			switch {
			case w.lineage != lineage:
				w.err = errWentBack(campaign, w.seq)
			case err == nil && mark.AppliedSeq < w.seq:
				return true
			default:
				w.mark, w.err = mark, err
			}
			close(w.done)
			return false
		})
	}
}

// Another process may be the one that applies, so watermarks are polled every otherProcessPoll.
// When a poll takes long, because of many waiting callers, the next one waits restAfterLook
// times as long.
const (
	otherProcessPoll = 25 * time.Millisecond
	restAfterLook    = 20
)

// watchApplied polls watermarks while there are waiters.
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
		h.deliver(campaigns, s.Lineage(), marks, err)
		if all {
			poll.Reset(max(otherProcessPoll, restAfterLook*time.Since(began)))
		}
	}
}

// WaitApplied waits until the projections of the campaign have applied seq, and returns the
// applied seq. When ctx ends first, or at once when the projections were built from another
// journal, or when the journal went back meanwhile, it returns an event.ErrNotYet refusal that says
// what is missing; an unknown campaign is event.ErrNotFound.
func (s *Store) WaitApplied(ctx context.Context, campaign string, seq int64) (int64, error) {
	return s.WaitAppliedSince(ctx, s.Lineage(), campaign, seq)
}

// WaitAppliedSince is WaitApplied for an event that was appended under a lineage.
func (s *Store) WaitAppliedSince(ctx context.Context, lineage int64, campaign string, seq int64) (int64, error) {
	beyond := context.WithoutCancel(ctx)
	if _, err := Reading(beyond, s, "", func(t *Tx) (*CampaignRow, error) { return t.ExistingCampaign(campaign) }); err != nil {
		return 0, err
	}
	w, first := s.applied.add(campaign, seq, lineage)
	defer s.applied.remove(campaign, w)
	if first {
		go s.watchApplied()
	}
	select {
	case <-w.done:
		if w.err != nil {
			return 0, w.err
		}
		return w.mark.AppliedSeq, s.mustFit(beyond, lineage, campaign, w.mark, seq)
	case <-ctx.Done():
	}
	mark, err := s.WatermarkOf(beyond, campaign)
	if err == nil && lineage != s.Lineage() {
		err = errWentBack(campaign, seq)
	}
	if err != nil {
		return 0, err
	}
	if mark.AppliedSeq >= seq {
		return mark.AppliedSeq, s.mustFit(beyond, lineage, campaign, mark, seq)
	}
	return mark.AppliedSeq, s.notYet(beyond, campaign, seq, mark.AppliedSeq)
}

// mustFit refuses when the watermark is from another journal, or the journal went back.
func (s *Store) mustFit(ctx context.Context, lineage int64, campaignID string, w readmodel.Watermark, seq int64) error {
	reason, err := s.Divergence(ctx, campaignID, w)
	if err == nil && lineage != s.Lineage() {
		return errWentBack(campaignID, seq)
	}
	if err == nil && reason != "" {
		err = &event.Refusal{Err: event.ErrNotYet, Detail: fmt.Sprintf("event %d is not applied to campaign %q, which has diverged: %s; nothing is applied to it until this is resolved: %s", seq, campaignID, reason, campaign.RightJournalFirst)}
	}
	return err
}

// AppliedSeq reads the applied seq of a campaign's projections; 0 for a campaign without any.
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
	return &event.Refusal{Err: event.ErrNotYet, Detail: detail}
}
