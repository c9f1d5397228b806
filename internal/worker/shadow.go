package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// rehearsals remembers how far each campaign was rehearsed, so that only changed ones are
// rehearsed again.
type rehearsals struct {
	mu      sync.Mutex
	done    map[string]outbox.Outstanding
	lineage int64 // of the journal that they are of
}

// Rehearse goes once over every campaign with unapplied events that have not been rehearsed
// yet, applies them in a transaction that is rolled back, and records the result. Rows,
// attempts, watermarks and projections do not change.
func (w *Worker) Rehearse(ctx context.Context) (bool, error) {
	w.rehearse.mu.Lock()
	defer w.rehearse.mu.Unlock()
	if now := w.Store.Lineage(); w.rehearse.done == nil || w.rehearse.lineage != now {
		w.rehearse.done, w.rehearse.lineage = make(map[string]outbox.Outstanding), now
	}
	after := ""
	for ctx.Err() == nil {
		page, err := w.Queue.OutstandingCampaigns(ctx, after, 500)
		if err != nil || len(page) == 0 {
			return false, err
		}
		for _, o := range page {
			if ctx.Err() != nil || w.rehearse.done[o.CampaignID] == o {
				continue
			}
			if err := w.rehearseCampaign(ctx, o); err != nil {
				return false, err
			}
			w.rehearse.done[o.CampaignID] = o
		}
		after = page[len(page)-1].CampaignID
	}
	return false, nil
}

func (w *Worker) rehearseCampaign(ctx context.Context, o outbox.Outstanding) error {
	outcome := outbox.Rehearsal{CampaignID: o.CampaignID}
	p := &part{}
	err := w.Store.ReadModel().Rehearse(ctx, func(tx *readmodel.ApplyTx) error {
		mark, err := tx.Watermark(o.CampaignID)
		if err != nil {
			return err
		}
		outcome.RehearsedSeq = mark.AppliedSeq
		for first := mark.AppliedSeq + 1; first <= o.HighWaterSeq && p.result.Failure == nil && ctx.Err() == nil; first += int64(w.BatchSize) {
			p, err = w.rehearseSpan(ctx, tx, o.CampaignID, mark.FenceEpoch, first, min(o.HighWaterSeq, first+int64(w.BatchSize)-1))
			if err != nil {
				return err
			}
			outcome.RehearsedSeq = max(mark.AppliedSeq, p.result.Applied)
			if aside := p.result.Quarantines; len(aside) > 0 { // applied without that projection; it would fail there
				p.result.Failure, outcome.RehearsedSeq = &aside[0].Failure, aside[0].Seq-1
				break
			}
			if p.result.Diverged != "" {
				p.result.Failure = w.Failure(fmt.Errorf("diverged: %s", p.result.Diverged))
			}
			if p.result.Applied < first {
				break
			}
		}
		return nil
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	if f := p.result.Failure; f != nil {
		outcome.FailedSeq, outcome.Error, outcome.Fingerprint = outcome.RehearsedSeq+1, f.Message, f.Fingerprint
		w.count(outbox.Settled{Failed: 1})
	}
	return w.Queue.RecordRehearsal(ctx, outcome)
}

// rehearseSpan applies the events first to last inside the rehearsal's transaction, which has
// applied the earlier ones.
func (w *Worker) rehearseSpan(ctx context.Context, tx *readmodel.ApplyTx, campaign string, epoch, first, last int64) (*part, error) {
	claim := outbox.Claim{CampaignID: campaign, Epoch: epoch, First: first, Last: last}
	loaded, auditOnly, err := w.Store.Load(ctx, []store.Range{claim.Range()}, w.BatchBytes)
	if err != nil {
		return nil, err
	}
	p := &part{claim: claim, stretch: inspectLoaded(loaded[0]), result: outbox.Result{Claim: claim, Applied: first - 1}}
	a := application{worker: w, tx: tx, part: p, auditOnly: auditOnly}
	err = a.run(ctx)
	var fatal *fatalError
	if errors.As(err, &fatal) {
		p.result = outbox.Result{Claim: claim, Applied: fatal.seq - 1, Failure: fatal.failure}
		return p, nil
	}
	return p, err
}
