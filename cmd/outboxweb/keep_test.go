package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestKeeper_deletesAtStartWhatIsTooOld(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	must.Get(d.st.RecordRefusal(t.Context(), outbox.Command{By: outbox.Operator{Name: "ana"}}, outbox.RefusedAction{Action: outbox.ActionPause, Refusal: "no"})).Or(t)
	journal := dbtest.Open(t, d.JournalDB)
	must.Get(journal.Exec(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
values ('a', 1, 1, 1, 'w', 'v1', 'boom', 'boom')`)).Or(t)
	must.Get(journal.Exec(`
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values (1, 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null')`)).Or(t)
	kept := func() int {
		var attempts int
		must.OK(t, journal.QueryRow(`select count(*) from attempts`).Scan(&attempts))
		page := must.Get(d.st.AuditLog(t.Context(), outbox.AuditFilter{})).Or(t)
		return len(page.Items) + attempts
	}
	log := slog.New(slog.DiscardHandler)
	engine.Keeper{Engine: d.st, Logger: log}.Run(t.Context()) // 0 keeps records forever, so it returns at once
	if n := kept(); n != 3 {
		t.Fatalf("%d records are kept for good, want all", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		engine.Keeper{Engine: d.st, Audit: 24 * time.Hour, History: 24 * time.Hour, Logger: log}.Run(ctx)
		close(ended)
	}()
	deadline, look := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer look.Stop()
	for kept() != 1 {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatal("what is old is still there")
		}
	}
	stop()
	<-ended
	if before, err := d.st.Maintenance.AuditLogRemovedBefore(t.Context()); err != nil || time.Since(before) < 24*time.Hour || time.Since(before) > 25*time.Hour {
		t.Errorf("records are gone from before %s, %v", before, err)
	}
}
