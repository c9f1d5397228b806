package store_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Then's refusal undoes its own append, and none that shares the commit.
func TestAppend_thenRefusesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	f := open(t)
	var seen []store.Appended
	fence := func(t *store.Tx, result []store.Appended) error {
		seen = append([]store.Appended(nil), result...)
		return &outbox.Refusal{Err: outbox.ErrLeaseLost, Detail: "another process has it"}
	}
	_, errs := f.AppendTogether([]store.Append{
		{Events: []outbox.Event{storetest.Event("a", "counted")}},
		{Events: []outbox.Event{storetest.Event("b", "counted")}, Then: fence},
		{Events: []outbox.Event{storetest.Event("c", "counted")}},
	})
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("appends beside it: %v, %v", errs[0], errs[2])
	}
	refused(t, errs[1], outbox.ErrLeaseLost, "another process has it")
	if len(seen) != 1 || seen[0].Seq != 1 || seen[0].Existed {
		t.Errorf("it saw %+v", seen)
	}
	if n := f.Number(`select count(*) from events where campaign_id = 'b'`); n != 0 {
		t.Errorf("%d events were appended nevertheless", n)
	}
	f.Sound()
}
