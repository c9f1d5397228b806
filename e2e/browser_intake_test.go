package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rows that cannot be journalled are seen on the overview. An operator reads why, fixes one in the
// service's table and retries it, discards the other, and sees their campaigns continue.
func TestBrowser_rejectedRowsAreRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			shop := filepath.Join(t.TempDir(), "shop.db")
			d := newDatabases(t)
			db, err := openShop("sqlite:" + shop)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			if _, err := db.Exec(mustCommand(t, d, nil, "intake", "schema", "sqlite") + `
insert into outboxweb_intake (campaign_id, event_id, event_type, payload)
values ('order-1', 'broken', 'order.paid', '{"amount"'), ('order-1', 'behind', 'order.shipped', '{}'),
  ('order-2', 'test', 'order.paid', '[]'), ('order-2', 'next', 'order.paid', '{}')`); err != nil {
				t.Fatal(err)
			}
			s := start(t, d, d.config(t, fmt.Sprintf("sources:\n  shop: {url: %q, poll_interval: 20ms}\n", "sqlite:"+shop))...)
			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("the overview names the source", telling(marked("rejected-rows"), "2 intake rows are rejected")+" && "+telling(marked("rejected-rows"), "shop"))
			b.inBothSizes("the overview with rejected rows")
			b.open("/intake")
			b.await("the source has rejected rows", telling(marked("source-shop"), "rejected"))
			b.inBothSizes("the sources")
			b.open("/")
			b.click(marked("rejected-rows") + " .act a")
			b.at("/intake/shop")
			b.await("the reasons are shown", telling(marked("rejection-1"), "Payload is not JSON")+" && "+telling(marked("rejection-2"), "Payload must be a JSON object"))
			b.inBothSizes("the rejected rows")
			var api struct {
				Items []struct {
					ID             int64
					Status, Reason string
				}
			}
			s.get(t, "/api/v1/intake/shop/rejections", &api)
			for _, r := range api.Items {
				b.await("page and API agree", telling(marked(fmt.Sprint("rejection-", r.ID)), r.Status)+" && "+telling(marked(fmt.Sprint("rejection-", r.ID)), r.Reason[1:]))
			}
			if len(api.Items) != 2 {
				t.Errorf("the API has %+v", api.Items)
			}

			change(t, shop, `update outboxweb_intake set payload = '{"amount": 12}' where event_id = 'broken'`)
			b.typeInto("#retry-reason-1", "the payload is complete now")
			b.click(marked("retry-1-button"))
			b.await("the retry is confirmed", telling(marked("flash"), "Rejected row 1 of source shop is retried at the next read."))
			b.lookUntil("the row is gone", `!document.querySelector(`+js(marked("rejection-1"))+`)`)
			b.click(marked("discard-2-open"))
			b.typeInto("#discard-reason-2", "an order of a test")
			b.typeInto("#discard-confirm-2", "discard shop 2")
			b.click(marked("discard-2-button"))
			b.await("the discard is confirmed", telling(marked("flash"), "Rejected row 2 of source shop is deleted at the next read."))
			b.lookUntil("the row is discarded, and its reason kept", telling(marked("rejection-2"), "discarded")+" && "+telling(marked("rejection-2"), "an order of a test"))
			b.inBothSizes("a discarded row")

			b.open("/")
			b.lookUntil("the overview is calm", saying(".health .sentence", "All 2 campaigns are current.")+` && !document.querySelector(`+js(marked("rejected-rows"))+`)`)
			b.agrees()
			b.open("/audit")
			b.await("the audit log has both", telling("tbody", "the payload is complete now")+" && "+telling("tbody", "an order of a test"))
			got := lists(t, d.journal(), `select campaign_id as campaign, event_id as event from events order by campaign_id, seq`)
			if !slices.Equal(got["order-1"], strings.Fields("broken behind")) || !slices.Equal(got["order-2"], []string{"next"}) {
				t.Errorf("the journal has %v", got)
			}
		})
	}
}

// inBothSizes is sound in a large and in a small window.
func (b *tab) inBothSizes(where string) {
	b.t.Helper()
	for _, size := range []viewport{narrow, wide} {
		b.size(size)
		b.sound(fmt.Sprintf("%s, %d wide", where, size.width))
	}
}
