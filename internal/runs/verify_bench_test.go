package runs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// joined joins its tables at each event: plans for empty tables read all rows of the campaign each time.
const joined = `-- projection: orders
-- tables: orders, order_lines, products

-- schema
create table orders (campaign_id text not null, order_id bigint not null, total bigint not null default 0, best text, primary key (campaign_id, order_id));
create table order_lines (campaign_id text not null, line bigint not null, order_id bigint not null, product bigint not null, amount bigint not null, primary key (campaign_id, line));
create index order_lines_by_order on order_lines (campaign_id, order_id);
create table products (campaign_id text not null, product bigint not null, name text not null, sold bigint not null default 0, primary key (campaign_id, product));

-- on: order.opened
insert into orders (campaign_id, order_id) values (:campaign_id, :payload.order!);
insert into products (campaign_id, product, name) values (:campaign_id, :payload.order!, :payload.name!);

-- on: order.line
insert into order_lines (campaign_id, line, order_id, product, amount) values (:campaign_id, :seq, :payload.order!, :payload.product!, :payload.amount!);
update orders
set total = (select sum(l.amount) from order_lines as l join products as p on p.campaign_id = l.campaign_id and p.product = l.product
      where l.campaign_id = orders.campaign_id and l.order_id = orders.order_id),
  best = (select max(p.name) from products as p join order_lines as l on p.campaign_id = l.campaign_id and p.product = l.product
      where l.campaign_id = orders.campaign_id and l.order_id = orders.order_id)
where campaign_id = :campaign_id
  and order_id = :payload.order!;
`

// orderLines is how many lines an order has.
const orderLines = 10

// ordered returns the events of a campaign with so many events.
func ordered(campaign string, events int) []event.Event {
	all := make([]event.Event, 0, events)
	for i := range events {
		order := i / (orderLines + 1)
		if i%(orderLines+1) == 0 {
			all = append(all, enginetest.EventOf(campaign, "order.opened", fmt.Sprintf(`{"order":%d,"name":"product %d"}`, order, order)))
		} else {
			all = append(all, enginetest.EventOf(campaign, "order.line", fmt.Sprintf(`{"order":%d,"product":%d,"amount":%d}`, order, i*7919%(order+1), i%97)))
		}
	}
	return all
}

// driftLimit is how many times as long as a clean verification one may take that finds wrong rows.
const driftLimit = 3

// BenchmarkVerify measures verifications that find wrong rows beside clean ones of the same journal. It fails beyond driftLimit.
func BenchmarkVerify(b *testing.B) {
	for _, bb := range []struct {
		name              string
		campaigns, events int
		wrong             string
	}{
		{"one campaign of 22,000 events", 1, 22_000, `update orders set total = -1 where order_id in (500, 1900)`},
		{"20 of 1,400 campaigns", 1400, 22, `update orders set total = -1 where order_id = 1 and (campaign_id like 'c-12_0' or campaign_id like 'c-13_0')`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			e := enginetest.Open(b, enginetest.Define(b, joined), enginetest.BatchSize(5000))
			for i := range bb.campaigns {
				e.MustAppend(ordered(fmt.Sprint("c-", i), bb.events)...)
			}
			e.Drain()
			verify := func(want campaign.Verdict) time.Duration {
				began := time.Now()
				run := e.RunToEnd(enginetest.Everything)
				must.Need(b, run.Verdict == want, "run %+v", run)
				return time.Since(began)
			}
			var clean, drift time.Duration
			for b.Loop() {
				clean += verify(campaign.VerdictMatch)
				e.ExecProjections(bb.wrong)
				drift += verify(campaign.VerdictDrift)
				e.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
			}
			ratio := drift.Seconds() / clean.Seconds()
			b.ReportMetric(clean.Seconds()/float64(b.N), "s/clean")
			b.ReportMetric(ratio, "drift/clean")
			must.Hold(b, ratio <= driftLimit, "with wrong rows a verification took %.1f times as long as without", ratio)
		})
	}
}
