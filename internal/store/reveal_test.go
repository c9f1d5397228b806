package store_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestReveal_leavesARecordEachTimeWithoutWhatItShows(t *testing.T) {
	t.Parallel()
	f := open(t)
	const secret = "hunterdeux"
	f.MustAppend(outbox.Event{CampaignID: "c", EventType: "x", Payload: []byte(`{"password":"` + secret + `"}`)})
	o := outbox.Command{By: outbox.Operator{Name: "ana", Via: "page", Auth: outbox.AuthLocal, Role: outbox.RoleAdmin}, IdempotencyKey: "k"}
	refused(t, storetest.No(f.Reveal(f.Ctx, o, "c", 1)), outbox.ErrInvalid, "reason")
	o.Reason = "the call of eve"
	refused(t, storetest.No(f.Reveal(f.Ctx, o, "c", 2)), outbox.ErrNotFound)
	for _, o.By.Name = range []string{"ana", "ana", "eve"} {
		got := must.Get(f.Reveal(f.Ctx, o, "c", 1)).Or(t)
		must.Hold(t, strings.Contains(string(got.Event.Payload), secret) && got.Row != nil, "revealed %+v", got)
	}
	done := f.ActionsOf(string(outbox.ActionReveal))
	must.Hold(t, len(done) == 3 && done[0].Actor == "eve" && done[2].Actor == "ana" && done[0].Reason == o.Reason && done[0].Seq == 1, "the records are %+v", done)
	must.Equal(t, f.Number(`select count(*) from audit_log where result like $1 or before like $1 or after like $1`, "%"+secret+"%"), 0, "records have what was revealed")
}
