package store_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Load reads the texts of an event as one column. The result is the same event as from any
// other reader, whatever its texts contain, even if they were changed without the store.
func TestLoad_readsEventsAsTheyAre(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.MaxPayload = 2 << 20 })
	full := storetest.Event("a", "noted")
	full.ActorType, full.ActorID, full.EntityType, full.EntityID = "person", "ana 'ü'", "seat", "7"
	full.SessionID, full.RequestID, full.CorrelationID, full.CausationID = "s", "r", "cor", "cau"
	full.Tags, full.Metadata = []byte(`{"seat":"7"}`), []byte(`{"a":[1,2],"b":"\u001f"}`)
	full.Payload = []byte(`{"n":1}`)
	large := storetest.Event("a", "noted")
	large.Payload = []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	odd := storetest.Event("a", "noted")
	odd.ActorID = "someone"
	f.MustAppend(full, storetest.Event("a", "plain"), odd, large)
	f.Tamper(`update events set actor_id = $1 where seq = 3`, "some\x1fone")

	loaded, _, err := f.Load(f.Ctx, []store.Range{{CampaignID: "a", First: 1, Last: 4}}, 8<<20)
	must.Need(t, err == nil && len(loaded) == 1 && !loaded[0].Partial, "loaded %+v, %v", loaded, err)
	var want []outbox.Event
	for seq := range int64(4) {
		e := must.Get(f.Event(f.Ctx, "a", seq+1)).Or(t)
		e.Altered = false // set only where an event is shown
		want = append(want, e)
	}
	if !reflect.DeepEqual(want, loaded[0].Events) { // cmp compares documents byte by byte
		t.Errorf("want -, got +\n%s", cmp.Diff(want, loaded[0].Events))
	}
}
