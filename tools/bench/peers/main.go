// Command peers inserts the events that outboxweb bench appends in batches into queues of other libraries, as durable,
// beside outboxweb itself: backlite on SQLite; river (InsertManyFast) and watermill on PostgreSQL. They keep no journal:
// no hashes, no chain, no order within a campaign, and no answer to an event that comes twice.
//
//	go run . -outboxweb ../../../bin/outboxweb -dir ../../.. -db postgres://…
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/mikestefanello/backlite"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

const (
	all   = 50_000
	batch = 100
)

type job struct {
	CampaignID string          `json:"campaign_id"`
	EventID    string          `json:"event_id"`
	EventType  string          `json:"event_type"`
	EntityID   string          `json:"entity_id"`
	Payload    json.RawMessage `json:"payload"`
}

func (job) Kind() string { return "moved" }
func (job) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "moved", MaxAttempts: 5, Timeout: time.Minute}
}

func jobs(first int) (made []job) {
	for n := first; n < first+batch; n++ {
		made = append(made, job{"c-1", fmt.Sprintf("e-%d", n), "bench.moved", fmt.Sprintf("t-%d", n%10_000),
			fmt.Appendf(nil, `{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}`, n%97)})
	}
	return made
}

type peer struct {
	name string
	open func(context.Context) (insert func([]job) error, err error)
}

func main() {
	program := flag.String("outboxweb", "bin/outboxweb", "the `program` to measure beside")
	dir := flag.String("dir", ".", "the `directory` for temporary SQLite files")
	server := flag.String("db", "", "the postgres:// `URL` of a database of the benchmark's own; without one, SQLite alone")
	rounds := flag.Int("rounds", 3, "how often, in turns")
	flag.Parse()
	ctx := context.Background()
	peers := []peer{
		{"outboxweb, SQLite", func(ctx context.Context) (func([]job) error, error) {
			return nil, outboxweb(ctx, *program, "--dir", *dir)
		}},
		{"backlite, SQLite", func(ctx context.Context) (func([]job) error, error) { return openBacklite(*dir) }},
	}
	if *server != "" {
		peers = append(peers,
			peer{"outboxweb, PostgreSQL", func(ctx context.Context) (func([]job) error, error) {
				return nil, outboxweb(ctx, "PostgreSQL", *program, "--journal-db", *server)
			}},
			peer{"river, PostgreSQL", func(ctx context.Context) (func([]job) error, error) { return openRiver(ctx, *server) }},
			peer{"watermill, PostgreSQL", func(ctx context.Context) (func([]job) error, error) { return openWatermill(ctx, *server) }})
	}
	for range *rounds {
		for _, p := range peers {
			if err := p.run(ctx); err != nil {
				fmt.Fprintf(os.Stderr, "peers: %s: %v\n", p.name, err)
				os.Exit(1)
			}
		}
	}
}

func (p peer) run(ctx context.Context) error {
	insert, err := p.open(ctx)
	if err != nil || insert == nil {
		return err
	}
	began := time.Now()
	for n := 0; n < all && err == nil; n += batch {
		err = insert(jobs(n))
	}
	fmt.Printf("%-24s %8.0f/s\n", p.name, all/time.Since(began).Seconds())
	return err
}

// outboxweb prints what its own benchmark measures.
func outboxweb(ctx context.Context, database, program string, where ...string) error {
	cmd := exec.CommandContext(ctx, program, append([]string{"bench", "--json", "--only", "append_batches", "--scale", "0.5"}, where...)...)
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var result struct {
		Results []struct {
			EventsPerSecond float64 `json:"events_per_second"`
		} `json:"results"`
	}
	err = json.Unmarshal(out, &result)
	for _, r := range result.Results {
		fmt.Printf("%-24s %8.0f/s\n", "outboxweb, "+database, r.EventsPerSecond)
	}
	return err
}

func openBacklite(dir string) (func([]job) error, error) {
	file, err := os.MkdirTemp(dir, "peers-")
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(file, "queue.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(8000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	client, err := backlite.NewClient(backlite.ClientConfig{DB: db, NumWorkers: 1, ReleaseAfter: time.Hour})
	if err != nil {
		return nil, err
	}
	client.Register(backlite.NewQueue[job](func(context.Context, job) error { return nil }))
	return func(made []job) error {
		tasks := make([]backlite.Task, len(made))
		for i := range made {
			tasks[i] = made[i]
		}
		_, err := client.Add(tasks...).Save()
		if made[len(made)-1].EventID == fmt.Sprintf("e-%d", all-1) {
			err = cmp.Or(err, db.Close(), os.RemoveAll(file))
		}
		return err
	}, client.Install()
}

func openRiver(ctx context.Context, server string) (func([]job) error, error) {
	pool, err := pgxpool.New(ctx, server)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	client, err := river.NewClient(driver, &river.Config{})
	return func(made []job) error {
		params := make([]river.InsertManyParams, len(made))
		for i := range made {
			params[i].Args = made[i]
		}
		_, err := client.InsertManyFast(ctx, params)
		return err
	}, err
}

func openWatermill(ctx context.Context, server string) (func([]job) error, error) {
	pool, err := pgxpool.New(ctx, server)
	if err != nil {
		return nil, err
	}
	publisher, err := wsql.NewPublisher(wsql.BeginnerFromPgx(pool), wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true}, watermill.NopLogger{})
	return func(made []job) error {
		messages := make([]*message.Message, len(made))
		for i := range made {
			text, err := json.Marshal(made[i])
			if err != nil {
				return err
			}
			messages[i] = message.NewMessage(watermill.NewUUID(), text)
		}
		return publisher.Publish("moved", messages...)
	}, err
}
