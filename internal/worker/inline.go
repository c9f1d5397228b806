package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/outbox"
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

// ApplyInline applies every unapplied event of the campaign, on the caller's path. When an
// event cannot be applied it is an event.ErrConflict refusal, and when the campaign may not be
// applied now an event.ErrNotYet refusal; the remaining events then have rows and are left to
// a worker.
func (w *Worker) ApplyInline(ctx context.Context, campaign string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outbox.InlineWait)
	defer cancel()
	err := w.catchUpInline(ctx, campaign)
	if err == nil {
		return nil
	}
	err = errors.Join(err, loop.UntilFree(ctx, w.Lease, func() error { return w.Queue.EnqueueMissing(context.WithoutCancel(ctx), campaign) }))
	w.Wake() // a failed event is due later
	return err
}

func (w *Worker) catchUpInline(ctx context.Context, campaign string) error {
	if err := w.inline.lock(ctx, campaign); err != nil {
		return busyInline(campaign)
	}
	defer w.inline.unlock(campaign)
	for {
		claim, ok, err := w.claimInline(ctx, campaign)
		if err != nil || !ok {
			return err
		}
		if more, err := w.applyInline(ctx, claim); err != nil || !more {
			return err
		}
	}
}

func busyInline(campaign string) error {
	return &event.Refusal{Err: event.ErrNotYet, Detail: fmt.Sprintf("the event is appended but not applied: another process is applying events of campaign %q", campaign)}
}

// claimInline claims the campaign's unapplied events, waiting for another process that holds
// it. It returns false when everything is applied.
func (w *Worker) claimInline(ctx context.Context, campaignID string) (outbox.Claim, bool, error) {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		claim, hold, err := w.Queue.ClaimInline(ctx, w.who, campaignID, outbox.ClaimLimits{Rows: w.BatchSize, Lease: w.Lease})
		if err != nil && claim.Epoch > 0 {
			err = errors.Join(err, w.releaseUncertain(ctx, []outbox.Claim{claim}))
		}
		if err != nil || hold != campaign.BlockerLease {
			return claim, hold == campaign.BlockerNone, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return claim, false, busyInline(campaignID)
		}
	}
}

// applyInline applies the claimed events and settles. more is true when the claim was lost
// meanwhile, or may not have reached the campaign's end.
func (w *Worker) applyInline(ctx context.Context, claim outbox.Claim) (more bool, err error) {
	defer w.busy.enter(time.Now())()
	claims := []outbox.Claim{claim}
	stop := w.renewLeases(context.WithoutCancel(ctx), claims)
	wave, err := w.Apply(ctx, claims)
	stop()
	if settleErr := wave.Settle(ctx); err != nil || settleErr != nil {
		return false, errors.Join(err, settleErr)
	}
	switch r := wave.parts[0].result; {
	case r.Failure != nil && r.Failure.Permanent:
		return false, event.Conflict("event %d of campaign %q is in the journal but can never be applied with this version of the projection: %s", r.Applied+1, claim.CampaignID, r.Failure.Message)
	case r.Failure != nil:
		return false, event.Conflict("event %d of campaign %q is in the journal but cannot be applied: %s", r.Applied+1, claim.CampaignID, r.Failure.Message)
	case r.Diverged != "":
		return false, event.Conflict("campaign %q has diverged: %s; %s", claim.CampaignID, r.Diverged, campaign.RightJournalFirst)
	default:
		return !claim.Bare || r.Applied < claim.Last || rowsOf(claims) == int64(w.BatchSize), nil
	}
}
