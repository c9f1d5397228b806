package handlers

import (
	"net/url"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// reject gives the site a source with a rejected row, of a payload with a secret.
func (s *site) reject() {
	s.t.Helper()
	for _, query := range []string{
		`insert into intake_sources (source, place, lease_owner, lease_epoch, lease_expires_at, waiting, journalled) values ('shop', 'postgres://shop', 'host-1', 1, 9000000000000000, 3, 7)`,
		`insert into intake_rejections (source, row_key, campaign_id, event_id, event_type, content, content_bytes, reason, rejected_at)
values ('shop', '12', 'c-1', 'e-1', 'order.paid', '{"payload":{"password":"` + leak + `","note":"` + htmlScript + `"}}', 2, 'payload is not JSON ` + htmlScript + `', 1)`,
	} {
		if _, err := dbtest.Open(s.t, s.sub.Journal).Exec(query); err != nil {
			s.t.Fatal(err)
		}
	}
	s.store.Changed()
}

func TestIntakePage_saysHowSourcesAreConfigured(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.get("/intake").want(t, 200, "No service's database is read yet", "sources:", `href="/docs/intake"`).lacks(t, "<table")
	if v := decodeAs[intakeList](t, s.get(apiPrefix+"/intake").want(t, 200)); len(v.Sources) != 0 {
		t.Errorf("sources: %+v", v)
	}
	s.get("/intake/none").want(t, 404, "There is no source")
	s.get(apiPrefix+"/intake/none/rejections").want(t, 404)
}

func TestIntakePage_retriesAndDiscards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.reject()
	s.get("/intake").want(t, 200, "1 row is rejected and holds its campaign.", `href="/intake/shop"`, "postgres://shop", "not in this server's configuration")
	s.get("/intake/shop").want(t, 200, "Payload is not JSON &lt;script&gt;", "order.paid", "discard shop 1", `data-testid="retry-1-button"`, "outboxweb intake retry").lacks(t, leak, htmlScript)
	list := decodeAs[outbox.Page[outbox.IntakeRejection]](t, s.get(apiPrefix+"/intake/shop/rejections").want(t, 200).lacks(t, leak))
	if len(list.Items) != 1 || list.Items[0].RowKey != "12" {
		t.Fatalf("rejections: %+v", list)
	}
	s.post(apiPrefix+"/intake/shop/rejections/1/discard", `{"reason":"r","confirm":"discard"}`).want(t, 422, "discard shop 1")
	s.submitted("/intake/shop/rejections/1/retry", url.Values{"reason": {"fixed"}}).want(t, 200, "Row 12 of source shop is retried at the next read.").lacks(t, `data-testid="retry-1-button"`)
	s.post(apiPrefix+"/intake/shop/rejections/1/retry", `{}`).want(t, 409, "rejected row 1 is retrying, not open")
	if _, err := dbtest.Open(s.t, s.sub.Journal).Exec(`update intake_rejections set status = 'open'`); err != nil {
		t.Fatal(err)
	}
	s.submit("/intake/shop/rejections/1/discard", "confirm=discard+shop+1").want(t, 422, "requires a reason")
	s.submitted("/intake/shop/rejections/1/discard", url.Values{"reason": {"a test order"}, "confirm": {"discard shop 1"}}).want(t, 200, "Row 12 of source shop is deleted at the next read.", "discarding", "a test order")
	s.get("/audit").want(t, 200, "intake_discard", `href="/intake/shop"`)
}
