package intake_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
)

// benchRows is how many rows a drain moves, of benchCampaigns campaigns.
const benchRows, benchCampaigns = 50_000, 500

func benchEvent(n int) writers.Event {
	return writers.Event{CampaignID: fmt.Sprintf("c-%d", n%benchCampaigns), EventID: fmt.Sprintf("e-%d", n), EventType: "bench.moved", EntityType: "token", EntityID: fmt.Sprintf("t-%d", n%10_000),
		Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}`, n%97))}
}

func (s *shop) fill(from, rows int) {
	var events []writers.Event
	for n := from; n < from+rows; n++ {
		if events = append(events, benchEvent(n)); len(events) == 1000 || n+1 == from+rows {
			s.put(events...)
			events = events[:0]
		}
	}
}

// BenchmarkDrain moves rows to the journal, and beside it measures what copying them to a plain table
// and deleting them costs with the driver alone, in the same batches. Run it with
//
//	make bench-intake
func BenchmarkDrain(b *testing.B) {
	for b.Loop() {
		s := newShop(b)
		s.fill(0, benchRows)
		bare := s.copyBare(b)
		appended := s.appendOnly(b)
		s.fill(0, benchRows)
		began := time.Now()
		s.drain()
		rate := benchRows / time.Since(began).Seconds()
		left := s.rows()
		must.Need(b, left == "" && s.Number(`select count(*) from events`) == 2*benchRows, "rows left: %.200s", left)
		b.ReportMetric(rate, "events/s")
		b.ReportMetric(rate/bare, "of-bare")
		b.ReportMetric(rate/appended, "of-append")
		b.ReportMetric(0, "ns/op")
	}
}

// appendOnly appends as many events, in the same batches but without a table, and returns the rate.
func (s *shop) appendOnly(b *testing.B) float64 {
	began := time.Now()
	for batch := range benchRows / 1000 {
		events := make([]event.Event, 1000)
		for i := range events {
			e := benchEvent(batch*1000 + i)
			events[i] = event.Event{CampaignID: "append-" + e.CampaignID, EventID: e.EventID, EventType: e.EventType, EntityType: e.EntityType, EntityID: e.EntityID, Payload: e.Payload}
		}
		must.Get(s.Append(s.Ctx, store.Append{Events: events})).Or(b)
	}
	return benchRows / time.Since(began).Seconds()
}

// copyBare moves the rows to a plain table of the journal database, and returns the rate.
func (s *shop) copyBare(b *testing.B) float64 {
	to := s.durable(b, s.Pair.Journal)
	mustExec(b, to, `create table bare (id bigint primary key, campaign_id text, event_id text, event_type text, payload text)`)
	began := time.Now()
	for {
		n := must.Get(copyBatch(s.db, to)).Or(b)
		if n == 0 {
			return benchRows / time.Since(began).Seconds()
		}
	}
}

func copyBatch(from, to *sql.DB) (n int, err error) {
	rows, err := from.Query(`select id, campaign_id, event_id, event_type, payload from outboxweb_intake order by id limit 1000`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	tx, err := to.Begin()
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	insert, err := tx.Prepare(`insert into bare values ($1, $2, $3, $4, $5)`)
	last := int64(0)
	for ; err == nil && rows.Next(); n++ {
		var campaign, event, kind, payload string
		if err = rows.Scan(&last, &campaign, &event, &kind, &payload); err == nil {
			_, err = insert.Exec(last, campaign, event, kind, payload)
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err == nil {
		err = tx.Commit()
	}
	if err == nil {
		_, err = from.Exec(`delete from outboxweb_intake where id <= $1`, last)
	}
	return n, err
}

// Writers of BenchmarkWriters: how many, how often each writes, and for how long a phase lasts.
const (
	benchWriters = 8
	benchPace    = 10 * time.Millisecond
	benchPhase   = 3 * time.Second
	benchPhases  = 3
	benchBacklog = 20_000 // rows that are there before a phase
)

// BenchmarkWriters measures how long transactions of eight writers take, in turns: alone, beside a
// server that drains another service's table, and beside one that drains theirs. The second is what a
// busy server costs on the same cores; what is more in the third is waiting. Either server has a
// backlog, so that it is busy all the time.
func BenchmarkWriters(b *testing.B) {
	for b.Loop() {
		s, other := newShop(b), newShop(b)
		mustExec(b, s.db, `create table orders (id bigint primary key, n bigint not null)`)
		for i := range benchWriters {
			mustExec(b, s.db, `insert into orders values ($1, 0)`, i)
		}
		var alone, elsewhere, drained []time.Duration
		next := 0
		for phase := range benchPhases {
			alone = append(alone, s.writePhase(b, &next)...)
			other.fill(phase*benchBacklog, benchBacklog)
			elsewhere = append(elsewhere, s.writeBeside(b, other, &next)...)
			s.fill(1_000_000+phase*benchBacklog, benchBacklog)
			drained = append(drained, s.writeBeside(b, s, &next)...)
		}
		for _, at := range []float64{0.5, 0.99} {
			a, e, d := quantile(alone, at), quantile(elsewhere, at), quantile(drained, at)
			name := fmt.Sprintf("p%.0f", at*100)
			b.ReportMetric(float64(a.Microseconds())/1000, name+"-alone-ms")
			b.ReportMetric(float64(e.Microseconds())/1000, name+"-elsewhere-ms")
			b.ReportMetric(float64(d.Microseconds())/1000, name+"-drained-ms")
			b.ReportMetric(float64(d)/float64(e), name+"-ratio")
		}
		b.ReportMetric(0, "ns/op")
	}
}

// writeBeside is writePhase while a server drains the table of a shop.
func (s *shop) writeBeside(b *testing.B, of *shop, next *int) []time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	var draining sync.WaitGroup
	draining.Go(func() { of.worker.Run(ctx) })
	defer draining.Wait()
	defer cancel()
	return s.writePhase(b, next)
}

func quantile(all []time.Duration, at float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(at*float64(len(all))))]
}

// durable opens a database whose commits are synced, as a service does.
func (s *shop) durable(b *testing.B, url string) *sql.DB {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		url = "file:" + path + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(full)"
	}
	db := must.Get(sql.Open(map[string]string{"sqlite": "sqlite", "postgres": "pgx"}[dialect()], url)).Or(b)
	b.Cleanup(func() { db.Close() })
	return db
}

// writePhase writes for a while at a steady pace, and returns how long each transaction took.
func (s *shop) writePhase(b *testing.B, next *int) []time.Duration {
	db := s.durable(b, s.url)
	defer db.Close()
	db.SetMaxIdleConns(benchWriters)
	took := make([][]time.Duration, benchWriters)
	first := *next
	var writing sync.WaitGroup
	for w := range benchWriters {
		writing.Go(func() {
			pace := time.NewTicker(benchPace)
			defer pace.Stop()
			for n := range int(benchPhase / benchPace) {
				<-pace.C
				began := time.Now()
				if err := writeOrder(db, w, first+n*benchWriters+w); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	writing.Wait()
	*next += benchWriters * int(benchPhase/benchPace)
	return slices.Concat(took...)
}

func writeOrder(db *sql.DB, order, n int) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	_, err = tx.Exec(`update orders set n = n + 1 where id = $1`, order)
	if err == nil {
		err = writers.Append(context.Background(), tx, benchEvent(n))
	}
	if err == nil {
		err = tx.Commit()
	}
	return err
}
