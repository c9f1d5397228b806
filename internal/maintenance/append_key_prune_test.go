package maintenance_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestAppendOnce_forgetsAKeyAfterADay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.MustAppendOnce(storetest.UnderKey("ana", "old", "1"), storetest.Event("a", "counted"))
	f.MustAppendOnce(storetest.UnderKey("ana", "older", "1"), storetest.Event("a", "counted"))
	f.Clock.Advance(store.AppendKeyLife)
	if _, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "old", "2"), storetest.Event("a", "counted")); repeated {
		t.Error("a key of yesterday counts")
	}
	for {
		more, err := f.PruneAppendKeys(f.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if n := f.Number(`select count(*) from append_keys`); n != 1 {
		t.Errorf("%d keys are kept, want the one of today", n)
	}
}
