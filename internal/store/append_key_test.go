package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestAppendOnce_isAnsweredAlikeAndDoneOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	there := storetest.Event("a", "counted")
	there.EventID = "e-1"
	f.MustAppend(there)
	events := []outbox.Event{storetest.Event("a", "counted"), there, storetest.Event("a", "counted")}
	first, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "k", "1"), events...)
	must.Need(t, !repeated && len(first) == 3 && first[0].Seq == 2 && first[1].Existed && first[2].Seq == 3, "the first is answered with %+v, repeated %v", first, repeated)
	f.AppendN("a", 1)
	again, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "k", "1"), events...)
	must.Hold(t, repeated && cmp.Equal(first, again), "the second is answered with %+v, repeated %v", again, repeated)
	_, repeated = f.MustAppendOnce(storetest.UnderKey("bo", "k", "1"), storetest.Event("a", "counted"))
	must.Hold(t, !repeated, "somebody else's key counts")
	_, _, err := f.AppendOnce(f.Ctx, store.Append{Events: events[:1]}, storetest.UnderKey("ana", "k", "2"))
	must.Hold(t, errors.Is(err, outbox.ErrInvalid), "another request under the key: %v", err)
	must.Equal(t, f.Number(`select count(*) from events`), 5, "the events there")
	f.Sound()
}

func TestAppendOnce_refusedLeavesItsKeyFree(t *testing.T) {
	t.Parallel()
	f := open(t)
	zero := int64(7)
	_, _, err := f.AppendOnce(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}, ExpectedSeq: &zero}, storetest.UnderKey("ana", "k", "1"))
	must.Need(t, errors.Is(err, outbox.ErrConflict), "%v", err)
	_, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "k", "2"), storetest.Event("a", "counted"))
	must.Hold(t, !repeated, "the refused append has kept its key")
}

func TestAppendOnce_ofSeveralProcessesIsDoneOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	done := make(chan bool)
	for _, by := range []*fixture{f, other, f, other} {
		go func() {
			result, repeated, err := by.AppendOnce(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}}, storetest.UnderKey("ana", "k", "1"))
			must.Hold(t, err == nil && len(result) == 1 && result[0].Seq == 1, "answered with %+v, %v", result, err)
			done <- repeated
		}()
	}
	first := 0
	for range 4 {
		if !<-done {
			first++
		}
	}
	n := f.Number(`select count(*) from events`)
	must.Hold(t, first == 1 && n == 1, "%d of four were the first, and there are %d events", first, n)
}
