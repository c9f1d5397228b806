package main

import (
	"database/sql"
	"flag"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

var (
	benchRows      = flag.Int("bench.rows", 200_000, "outbox rows beside which pages are measured")
	benchCampaigns = flag.Int("bench.campaigns", 2_000, "campaigns they are spread over")
	benchReal      = flag.Int("bench.real", 250, "events of each campaign that can be applied")
)

// deepQueue is a store with very many rows: the first events of each campaign are real, the rows
// behind them are inserted with SQL, since no page and no claim reads their events.
func deepQueue(b *testing.B, rows, campaigns int) *engine.Engine {
	b.Helper()
	return deepQueueIn(b, b.TempDir(), rows, campaigns)
}

// deepQueueIn is deepQueue with its databases in a directory.
func deepQueueIn(b *testing.B, dir string, rows, campaigns int) *engine.Engine {
	b.Helper()
	path := filepath.Join(dir, "journal.db")
	opened := must.Get(store.Open(b.Context(), store.Options{Journal: "sqlite:" + path, Projections: "sqlite:" + filepath.Join(dir, "projections.db")})).Or(b)
	s := engine.Wire(opened)
	b.Cleanup(func() { s.Close() })
	each := rows / campaigns
	real := min(each, *benchReal)
	var events []outbox.Event
	for c := range campaigns {
		for i := range real {
			events = append(events, outbox.Event{CampaignID: fmt.Sprintf("c-%05d", c), EventType: "character.moved",
				EntityID: fmt.Sprint(i), Payload: []byte(`{"x":1,"y":2,"note":"a step to the side"}`)})
		}
		if len(events) >= 5_000 || c == campaigns-1 {
			must.Get(s.Append(b.Context(), store.Append{Events: events})).Or(b)
			events = events[:0]
		}
	}
	db := must.Get(sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_txlock=immediate")).Or(b)
	defer db.Close()
	for _, statement := range []string{
		fmt.Sprintf(`insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
			select c.campaign_id, n.value, 'character.moved', c.oldest_enqueued_at, c.oldest_enqueued_at, c.oldest_enqueued_at
			from campaigns c cross join generate n where n.value > %d`, real),
		fmt.Sprintf(`update campaigns set high_water_seq = %d, pending = %d`, each, each),
		// A few campaigns with problems, so that the overview is not empty.
		`update projection_apply_outbox set status = 'dead', attempt_count = 8, last_error = 'UNIQUE constraint failed', fingerprint = 'UNIQUE constraint failed'
			where seq = 1 and campaign_id in (select campaign_id from campaigns order by campaign_id limit 40)`,
		`update campaigns set pending = pending - 1, dead = 1, head_status = 'dead', due_at = null
			where campaign_id in (select campaign_id from campaigns order by campaign_id limit 40)`,
	} {
		statement = "with recursive generate(value) as (select 1 union all select value + 1 from generate where value < " + fmt.Sprint(each) + ") " + statement
		must.Get(db.ExecContext(b.Context(), statement)).Or(b)
	}
	return s
}

// offering is a server of a store's pages.
func offering(b *testing.B, s *engine.Engine) *httptest.Server {
	b.Helper()
	server := httptest.NewServer(handlers.New(handlers.Config{Store: s.Store, Search: s.Search, Operations: s.Operations, Runs: s.Runs, Publishers: s.Publishing, Intake: s.Intake, Mode: outbox.ModeOutbox, Version: "bench", Metrics: metrics.New(s.Summary)}))
	b.Cleanup(server.Close)
	return server
}

const placesProjection = `-- projection: places
-- tables: places

-- schema
create table places (campaign_id text not null, entity_id text not null, x bigint not null, y bigint not null, primary key (campaign_id, entity_id));

-- on: character.moved
insert into places (campaign_id, entity_id, x, y) values (:campaign_id, :entity_id, :payload.x, :payload.y)
on conflict (campaign_id, entity_id) do update set x = excluded.x, y = excluded.y;
`
