package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

func TestReveal_leavesARecordEachTimeWithoutWhatItShows(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := context.Background()
	const secret = "hunterdeux"
	f.must(f.Append(ctx, store.Append{Events: []outbox.Event{{CampaignID: "c", EventType: "x", Payload: json.RawMessage(`{"password":"` + secret + `"}`)}}}))
	order := outbox.Command{By: outbox.Operator{Name: "ana", Via: "page", Auth: outbox.AuthLocal, Role: outbox.RoleAdmin}, IdempotencyKey: "k"}
	if _, err := f.Reveal(ctx, order, "c", 1); !errors.Is(err, outbox.ErrInvalid) {
		t.Fatalf("without a reason: %v", err)
	}
	order.Reason = "the call of eve"
	if _, err := f.Reveal(ctx, order, "c", 2); !errors.Is(err, outbox.ErrNotFound) {
		t.Fatalf("an event that is not there: %v", err)
	}
	for _, who := range []string{"ana", "ana", "eve"} {
		order.By.Name = who
		revealed := must.Get(f.Reveal(ctx, order, "c", 1)).Or(t)
		if !strings.Contains(string(revealed.Event.Payload), secret) || revealed.Row == nil {
			t.Errorf("revealed %+v", revealed)
		}
	}
	acts, err := f.AuditLog(ctx, outbox.AuditFilter{Action: outbox.ActionReveal, Outcome: outbox.AuditDone})
	if err != nil {
		t.Fatal(err)
	}
	done := slices.DeleteFunc(acts.Items, func(a outbox.AuditEntry) bool { return a.Outcome != outbox.AuditDone })
	if len(done) != 3 || done[0].Actor != "eve" || done[2].Actor != "ana" || done[0].Reason != order.Reason || done[0].Seq != 1 {
		t.Errorf("the records are %+v", acts.Items)
	}
	var stored int
	err = f.JournalDB.QueryRowContext(ctx, `select count(*) from audit_log where result like $1 or before like $1 or after like $1`, "%"+secret+"%").Scan(&stored)
	if err != nil || stored != 0 {
		t.Errorf("%d records have what was revealed (%v)", stored, err)
	}
}
