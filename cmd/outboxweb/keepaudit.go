package main

import (
	"context"
	"log/slog"
	"time"

	"outboxweb/internal/store"
)

// keepAuditEvery is how often audit records that are no longer kept are
// deleted.
const keepAuditEvery = time.Hour

func (c *serveCmd) checkKeepAudit() error {
	if c.KeepAudit != 0 && time.Duration(c.KeepAudit) < 24*time.Hour {
		return usagef("--keep-audit must be 24h or more, or 0 to keep audit records for good")
	}
	return nil
}

// auditKeeper deletes audit records that are older than they are kept. It is
// the server's, not the worker's: a server without one keeps records too.
type auditKeeper struct {
	store *store.Store
	keep  time.Duration // 0 keeps them for good
	log   *slog.Logger
}

// run deletes at once, and then again and again, until ctx ends. A database that
// cannot be written to is tried again the next time.
func (k auditKeeper) run(ctx context.Context) {
	if k.keep == 0 || k.store.ReadOnly() {
		return
	}
	again := time.NewTicker(keepAuditEvery)
	defer again.Stop()
	for {
		if err := k.prune(ctx, time.Now().Add(-k.keep)); err != nil && ctx.Err() == nil {
			k.log.Warn("audit records that are no longer kept could not be deleted; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// prune deletes what is from before a time, a portion after the other.
func (k auditKeeper) prune(ctx context.Context, before time.Time) error {
	for ctx.Err() == nil {
		more, err := k.store.PruneActs(ctx, before)
		if err != nil || !more {
			return err
		}
	}
	return nil
}
