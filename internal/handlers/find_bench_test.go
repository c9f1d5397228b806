package handlers

import (
	"net/url"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

// BenchmarkFind finds what readers paste, among 1,000,000 campaigns of an event each, one in a thousand of which is
// blocked. The limit is what a page costs that finds nothing to show: the frame of the same search without a text.
func BenchmarkFind(b *testing.B) {
	s := newSite(b)
	const numbers = `with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000) `
	for _, insert := range []string{
		`insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
select 'account-' || i, 1, 'ev-' || i, 'opened', 1, 1, 'user', 'u-' || i % 1000, 'card', 'k-' || i, '', 'req-' || i, '', '', '{}', '{}', '{}', '', '' from n`,
		`insert into campaigns (campaign_id, high_water_seq, applied_seq, head_seq, head_status, dead, created_at, updated_at)
select 'account-' || i, 1, case when i % 1000 = 0 then 0 else 1 end, case when i % 1000 = 0 then 1 end, case when i % 1000 = 0 then 'dead' end, case when i % 1000 = 0 then 1 else 0 end, 1, 1 from n`,
		`insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, last_error, fingerprint, enqueued_at, updated_at)
select 'account-' || i, 1, 'opened', 'dead', 1, 0, 'no seat is free', 'no seat is free', 1, 1 from n where i % 1000 = 0`,
	} {
		s.kit.Exec(numbers + insert)
	}
	s.kit.Exec(`analyze`)
	for _, text := range []string{"", "account-4242", "account-42", "account-4242/1", "ev-4242", "k-4242", "req-4242", "u-42", "no seat", "nothing at all", "pause account-4242"} {
		path := campaign.PagePath(url.Values{"q": {text}}, "api", "v1", "find")
		s.get(path) // reads what searches share
		b.Run("text="+text, func(b *testing.B) {
			for b.Loop() {
				s.get(path).want(b, 200)
			}
		})
	}
}
