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

// part is one campaign's share of a wave on its way through it.
type part struct {
	claim store.Claim
	stretch
	result store.Result
	gap    bool // events are missing between the watermark and the first row

	// cut is the seq of an event that took the transaction down with it; 0
	// when none did. It is not tried again in this wave.
	cut     int64
	failure *store.Failure
}

// Pass claims one wave and works it off: load, apply, settle, release. It
// returns true when it had anything to do. It is safe for concurrent use. Once
// the wave is claimed it is finished even if ctx ends, cut short between
// campaigns.
func (w *Worker) Pass(ctx context.Context) (bool, error) {
	began := time.Now()
	claims, err := w.Store.Claim(ctx, w.who, store.ClaimLimits{Rows: w.BatchSize, Lease: w.Lease})
	if err != nil || len(claims) == 0 {
		return false, err
	}
	if rowsOf(claims) >= int64(w.BatchSize) {
		w.Wake() // there is likely more: let the other loop join in
	}
	finish := context.WithoutCancel(ctx)
	stop := w.keepLeases(finish, claims)
	parts, applyErr := w.work(ctx, claims)
	stop()
	if err := w.settle(finish, parts); err != nil {
		return false, errors.Join(applyErr, err)
	}
	if w.Metrics != nil {
		w.Metrics.Waves.Inc()
		w.Metrics.WaveSeconds.Observe(time.Since(began).Seconds())
	}
	return true, applyErr
}

// work loads and applies the claims. Whatever happens, it returns a part for
// each of them, so that every lease is given back.
func (w *Worker) work(ctx context.Context, claims []store.Claim) ([]*part, error) {
	parts := make([]*part, len(claims))
	for i, c := range claims {
		parts[i] = &part{claim: c, result: store.Result{Claim: c, Applied: c.First - 1}}
	}
	auditOnly, err := w.load(context.WithoutCancel(ctx), parts)
	if err != nil {
		return parts, err
	}
	defer w.lookAhead(context.WithoutCancel(ctx), claims)()
	return parts, w.apply(ctx, parts, auditOnly)
}

// apply runs the parts in one projections transaction. An event that hangs or
// panics takes the transaction with it; the wave is then applied again without it.
func (w *Worker) apply(ctx context.Context, parts []*part, auditOnly map[string]bool) error {
	finish := context.WithoutCancel(ctx)
	for {
		var at *part
		err := w.Store.Apply(finish, func(tx *store.ApplyTx) error {
			for _, p := range parts {
				if at = p; ctx.Err() != nil {
					return nil // shutting down: the rest is given back
				}
				a := application{worker: w, tx: tx, part: p, auditOnly: auditOnly}
				if err := a.run(finish); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			return nil
		}
		for _, p := range parts { // nothing of this transaction has happened
			p.result = store.Result{Claim: p.claim, Applied: p.claim.First - 1}
			p.gap = false
		}
		var lethal *lethalError
		if !errors.As(err, &lethal) || at.cut != 0 && lethal.seq >= at.cut {
			return fmt.Errorf("apply wave: %w", err)
		}
		at.cut, at.failure = lethal.seq, lethal.failure
	}
}

// settle gives the results to the store, again and again until the journal is
// free, and counts them.
func (w *Worker) settle(ctx context.Context, parts []*part) error {
	results := make([]store.Result, len(parts))
	for i, p := range parts {
		results[i] = p.result
	}
	var settled store.Settled
	err := retryBusy(ctx, w.Lease, func() (err error) {
		settled, err = w.Store.Settle(ctx, w.who, results)
		return err
	})
	if err != nil {
		return err
	}
	w.count(settled)
	for _, p := range parts {
		if !p.gap {
			continue
		}
		if _, err := w.Store.ReconcileCampaign(ctx, p.claim.CampaignID); err != nil {
			return fmt.Errorf("repair the gap of campaign %q: %w", p.claim.CampaignID, err)
		}
	}
	return nil
}

func (w *Worker) count(s store.Settled) {
	w.applied.Add(s.Applied)
	w.failed.Add(s.Failed)
	w.fenced.Add(s.Fenced)
	if w.Metrics != nil {
		w.Metrics.Applied.Add(float64(s.Applied))
		w.Metrics.Failed.Add(float64(s.Failed))
		w.Metrics.Fenced.Add(float64(s.Fenced))
	}
}

// retryBusy repeats an act while the database is busy, for at most limit.
func retryBusy(ctx context.Context, limit time.Duration, act func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := act()
		if err == nil || !errors.Is(err, outbox.ErrBusy) || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// keepLeases renews the leases of a wave that takes long, until stopped.
func (w *Worker) keepLeases(ctx context.Context, claims []store.Claim) (stop func()) {
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(w.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if err := w.Store.Renew(ctx, w.who, claims, w.Lease); err != nil {
				w.Logger.Warn("leases of a long wave could not be renewed", "error", err)
			}
		}
	})
	return func() {
		close(done)
		renewing.Wait()
	}
}
