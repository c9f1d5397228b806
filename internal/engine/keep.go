package engine

import (
	"context"
	"log/slog"
	"time"
)

// keepEvery is the interval between deletions of expired records.
const keepEvery = time.Hour

// Keeper deletes audit records and event history older than their retention; 0 keeps them forever.
// It belongs to the server rather than to the worker: a server without a worker runs it too.
type Keeper struct {
	Engine         *Engine
	Audit, History time.Duration
	Logger         *slog.Logger
}

// Run deletes at once and then every keepEvery until ctx ends. If the database cannot be written
// to, it tries again the next time.
func (k Keeper) Run(ctx context.Context) {
	if k.Audit == 0 && k.History == 0 || k.Engine.ReadOnly() {
		return
	}
	again := time.NewTicker(keepEvery)
	defer again.Stop()
	for {
		k.delete(ctx, "audit records", k.Audit, k.Engine.Maintenance.PruneAuditLog)
		k.delete(ctx, "history of events", k.History, k.Engine.Maintenance.PruneHistory)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// delete deletes records older than keep, batch by batch.
func (k Keeper) delete(ctx context.Context, what string, keep time.Duration, prune func(context.Context, time.Time) (bool, error)) {
	before := time.Now().Add(-keep)
	for more := keep > 0; more && ctx.Err() == nil; {
		var err error
		if more, err = prune(ctx, before); err != nil && ctx.Err() == nil {
			k.Logger.Warn("expired records could not be deleted; retrying", "what", what, "error", err)
			return
		}
	}
}
