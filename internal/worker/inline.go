package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// keyedMutex serializes work per key within the process.
type keyedMutex struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the key until ctx ends.
func (k *keyedMutex) lock(ctx context.Context, key string) error {
	for {
		k.mu.Lock()
		if k.held == nil {
			k.held = make(map[string]chan struct{})
		}
		busy, taken := k.held[key]
		if !taken {
			k.held[key] = make(chan struct{})
			k.mu.Unlock()
			return nil
		}
		k.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (k *keyedMutex) unlock(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.held[key])
	delete(k.held, key)
}

const inlineWait = 10 * time.Second

// ApplyInline applies every event of the campaign that is not applied yet, on
// the caller's path. An event that cannot be applied is an outbox.ErrConflict
// refusal: it stays in the journal, and those behind it wait for it.
func (w *Worker) ApplyInline(ctx context.Context, campaign string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), inlineWait)
	defer cancel()
	if err := w.inline.lock(ctx, campaign); err != nil {
		return busyInline(campaign)
	}
	defer w.inline.unlock(campaign)
	claim, err := w.claimInline(ctx, campaign)
	if err != nil {
		return err
	}
	for {
		more, err := w.applyInline(ctx, &claim)
		if err != nil || !more {
			return err
		}
	}
}

func busyInline(campaign string) error {
	return &outbox.Refusal{Err: outbox.ErrNotYet, Detail: fmt.Sprintf("the event is appended, but another process is applying events of campaign %q", campaign)}
}

// claimInline takes the campaign's lease, waiting for another process that
// holds it.
func (w *Worker) claimInline(ctx context.Context, campaign string) (store.Claim, error) {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		claim, ok, err := w.Store.ClaimInline(ctx, w.who, campaign, w.Lease)
		if err != nil && ok {
			return claim, errors.Join(err, w.giveBack(ctx, []store.Claim{claim}))
		}
		if err != nil || ok {
			return claim, err
		}
		c, err := w.Store.Campaign(ctx, campaign)
		switch {
		case err != nil:
			return claim, err
		case c.Lease == nil && !free(c):
			return claim, &outbox.Refusal{Err: outbox.ErrNotYet, Detail: fmt.Sprintf("the event is appended, but campaign %q does not move: %s", campaign, c.Why(time.Now(), outbox.Surroundings{Mode: w.Mode}))}
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return claim, busyInline(campaign)
		}
	}
}

// free reports whether nothing but another's lease keeps the campaign from
// being applied inline.
func free(c outbox.Campaign) bool {
	return c.Diverged == "" && c.Paused == nil
}

// applyInline applies the next events under the claim and settles. The claim
// is taken anew as long as there is more, and when it was lost on the way.
func (w *Worker) applyInline(ctx context.Context, claim *store.Claim) (more bool, err error) {
	applied, err := w.Store.AppliedSeq(ctx, claim.CampaignID)
	if err != nil {
		return false, errors.Join(err, w.settle(ctx, []*part{released(*claim, 0)}))
	}
	span := store.Claim{CampaignID: claim.CampaignID, Epoch: claim.Epoch, First: applied + 1, Last: applied + int64(w.BatchSize),
		Attempts: w.tries.of(claim.CampaignID, applied+1), Unskipped: claim.Unskipped}
	parts, err := w.work(ctx, []store.Claim{span})
	p := parts[0]
	p.result.Claim = *claim // no rows are held
	full := len(p.events) == w.BatchSize
	lost := len(p.events) > 0 && p.result.Applied < p.events[len(p.events)-1].Seq
	failure := p.result.Failure
	w.tries.note(claim.CampaignID, p.result.Applied+1, failure != nil)
	p.result.Failure = nil
	done := p.result.Applied - applied
	if settleErr := w.settle(ctx, parts); err != nil || settleErr != nil {
		return false, errors.Join(err, settleErr)
	}
	w.count(store.Settled{Applied: max(0, done)})
	switch {
	case failure != nil:
		w.count(store.Settled{Failed: 1})
		return false, outbox.Conflict("event %d of campaign %q is in the journal but cannot be applied: %s", p.result.Applied+1, claim.CampaignID, failure.Message)
	case p.result.Diverged != "":
		return false, outbox.Conflict("campaign %q has diverged: %s; rebuild all its projections", claim.CampaignID, p.result.Diverged)
	case !full && !lost:
		return false, nil
	}
	*claim, err = w.claimInline(ctx, claim.CampaignID)
	return err == nil, err
}

// inlineTries counts how often the next event of a campaign has failed on the
// request path, where no row keeps that number; it is forgotten with the
// process. It decides when a projection has had its last attempt.
type inlineTries struct {
	mu     sync.Mutex
	failed map[string]try
}

type try struct {
	seq   int64
	times int
}

func (t *inlineTries) of(campaign string, seq int64) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.failed[campaign]; last.seq == seq {
		return last.times
	}
	return 0
}

// note records what became of trying the event at seq.
func (t *inlineTries) note(campaign string, seq int64, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.failed[campaign]
	switch {
	case !failed:
		delete(t.failed, campaign)
		return
	case t.failed == nil:
		t.failed = make(map[string]try)
	}
	if last.seq != seq {
		last = try{seq: seq}
	}
	last.times++
	t.failed[campaign] = last
}

func released(c store.Claim, applied int64) *part {
	return &part{claim: c, result: store.Result{Claim: c, Applied: applied}}
}

// catchUpInline applies what is outstanding in every campaign; one that
// cannot move is logged and left.
func (w *Worker) catchUpInline(ctx context.Context) error {
	after := ""
	for {
		page, err := w.Store.OutstandingCampaigns(ctx, after, 500)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, o := range page {
			if ctx.Err() != nil {
				return nil
			}
			if err := w.ApplyInline(ctx, o.CampaignID); err != nil {
				w.Logger.Warn("campaign cannot be applied", "campaign", o.CampaignID, "error", err)
			}
		}
		after = page[len(page)-1].CampaignID
	}
}
