package main

import (
	"context"
	"log/slog"
	"time"
)

// keepEvery is the interval between deletions of expired records.
const keepEvery = time.Hour

func (c *serveCmd) checkKept() error {
	switch tooShort := func(d daysFlag) bool { return d != 0 && time.Duration(d) < 24*time.Hour }; {
	case tooShort(c.KeepAudit):
		return usagef("--keep-audit must be 24h or more, or 0 to keep audit records forever")
	case tooShort(c.KeepHistory):
		return usagef("--keep-history must be 24h or more, or 0 to keep the history of events forever")
	}
	return nil
}

// keeper deletes audit records and event history older than their retention; 0 keeps them forever.
// It belongs to the server rather than to the worker: a server without a worker runs it too.
type keeper struct {
	store          *engine
	audit, history time.Duration
	log            *slog.Logger
}

// run deletes at once and then every keepEvery until ctx ends. If the database cannot be written
// to, it tries again the next time.
func (k keeper) run(ctx context.Context) {
	if k.audit == 0 && k.history == 0 || k.store.ReadOnly() {
		return
	}
	again := time.NewTicker(keepEvery)
	defer again.Stop()
	for {
		k.delete(ctx, "audit records", k.audit, k.store.maintenance.PruneAuditLog)
		k.delete(ctx, "history of events", k.history, k.store.maintenance.PruneHistory)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// delete deletes records older than keep, batch by batch.
func (k keeper) delete(ctx context.Context, what string, keep time.Duration, prune func(context.Context, time.Time) (bool, error)) {
	before := time.Now().Add(-keep)
	for more := keep > 0; more && ctx.Err() == nil; {
		var err error
		if more, err = prune(ctx, before); err != nil && ctx.Err() == nil {
			k.log.Warn("expired records could not be deleted; retrying", "what", what, "error", err)
			return
		}
	}
}
