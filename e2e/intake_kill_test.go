package e2e

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/pgtest"
)

var intakeKills = flag.Int("intake-kills", 0, "how often the tests of the intake kill a process; 0 is 24, and 6 in a short run")

// Eight writers in two processes commit rows of their own together with events, and roll back;
// writers, servers and PostgreSQL are killed again and again. The journal must have exactly the
// committed events, each once, in the order in which their campaign's lock was held.
func TestIntakeKill9(t *testing.T) {
	t.Parallel()
	shop := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	killIntake(t, newDatabases(t), shop, nil)
}

func TestPostgresIntakeKill9(t *testing.T) {
	t.Parallel()
	service, err := pgtest.Start() // of the service, to be killed
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Stop() })
	if err := service.CreateDatabase(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	killIntake(t, newPostgres(t), service.URL("shop"), func() {
		if err := service.Crash(); err != nil {
			t.Error(err)
		}
		wait(100 * time.Millisecond)
		if err := service.Launch(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// shopTables are the service's own: a row for each campaign, which its writers lock, and the events
// that were committed.
const shopTables = `
create table orders (campaign text primary key, n bigint not null);
create table ledger (campaign text not null, n bigint not null, event text not null, primary key (campaign, n));`

func killIntake(t *testing.T, d databases, shop string, crash func()) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kind, _, _ := strings.Cut(shop, ":")
	prepareShop(t, kind, shop)
	config := d.config(t, fmt.Sprintf("lease: 300ms\npoll_interval: 50ms\nsources:\n  shop: {url: %q, poll_interval: 20ms, batch_size: 100}\n", shop))

	writers := []*exec.Cmd{startWriter(t, shop), startWriter(t, shop)}
	servers := []*server{start(t, d, config...), start(t, d, config...)}
	rounds := amount(intakeKills, 6, 24)
	for round := range rounds {
		wait(100*time.Millisecond + time.Duration(random.Int64N(int64(300*time.Millisecond))))
		switch i := random.IntN(2); {
		case round%6 == 5 && crash != nil:
			crash()
		case round%3 == 0:
			killWriter(writers[i])
			writers[i] = startWriter(t, shop)
		default:
			servers[i].kill()
			servers[i] = start(t, d, config...)
		}
	}
	wait(300 * time.Millisecond)
	for _, w := range writers {
		killWriter(w)
	}
	place := strings.TrimPrefix(shop, "sqlite:")
	eventually(t, patience, "the table is drained", func() (bool, string) {
		left := scalar[int64](t, place, `select count(*) from outboxweb_intake`)
		return left == 0, fmt.Sprint(left, " rows")
	})
	for _, s := range servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	want := lists(t, place, `select campaign as campaign, event as event from ledger order by campaign, n`)
	got := lists(t, d.journal(), `select campaign_id as campaign, event_id as event from events order by campaign_id, seq`)
	total := 0
	for campaign, events := range want {
		if total += len(events); !slices.Equal(got[campaign], events) {
			t.Errorf("campaign %s has %d events in the journal of %d committed, or in another order", campaign, len(got[campaign]), len(events))
		}
	}
	if len(got) != len(want) || total < 20*rounds/2 {
		t.Errorf("%d campaigns in the journal, %d committed, with %d events", len(got), len(want), total)
	}
	if n := scalar[int64](t, d.journal(), `select count(*) from intake_rejections`); n != 0 {
		t.Errorf("%d rows were rejected", n)
	}
	t.Logf("%d kills, %d events of %d campaigns", rounds, total, len(want))
	checkClean(t, d)
}

// lists reads campaigns with their events.
func lists(t *testing.T, place, query string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	each(t, place, query, func(row map[string]any) {
		campaign := fmt.Sprint(row["campaign"])
		all[campaign] = append(all[campaign], fmt.Sprint(row["event"]))
	})
	return all
}

func openShop(place string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(place, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
	}
	return sql.Open("pgx", place)
}

const shopCampaigns = 12

func prepareShop(t *testing.T, kind, place string) {
	t.Helper()
	db, err := openShop(place)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	schema := mustCommand(t, newDatabases(t), nil, "intake", "schema", kind)
	if kind == "postgres" {
		schema = mustCommand(t, newDatabases(t), nil, "intake", "schema", "postgres", "--notify")
	}
	for _, text := range []string{schema, schema, shopTables} {
		if _, err := db.Exec(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	for i := range shopCampaigns {
		if _, err := db.Exec(`insert into orders values ($1, 0)`, fmt.Sprintf("order-%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// writerPlace names the database in the environment of a writer's process, which is this test program.
const writerPlace = "OUTBOXWEB_E2E_SHOP"

func startWriter(t *testing.T, place string) *exec.Cmd {
	t.Helper()
	w := exec.Command(os.Args[0])
	w.Env = append(os.Environ(), writerPlace+"="+place)
	w.Stdout, w.Stderr = io.Discard, os.Stderr
	if _, err := w.StdinPipe(); err != nil { // it ends with this program
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killWriter(w) })
	return w
}

func killWriter(w *exec.Cmd) {
	_ = w.Process.Kill()
	_ = w.Wait()
}

// writeIntake writes with four writers until its standard input ends.
func writeIntake(place string) int {
	db, err := openShop(place)
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for ctx.Err() == nil {
				if err := writeOnce(ctx, db, strings.HasPrefix(place, "postgres")); err != nil {
					wait(10 * time.Millisecond) // the database is away
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	writing.Wait()
	return 0
}

// writeOnce changes one to three campaigns in a transaction, and rolls a fifth of them back.
func writeOnce(ctx context.Context, db *sql.DB, lock bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	picked := rand.Perm(shopCampaigns)[:1+rand.IntN(3)]
	slices.Sort(picked) // or they would deadlock
	for _, i := range picked {
		campaign := fmt.Sprintf("order-%02d", i)
		query := `select n from orders where campaign = $1`
		if lock {
			query += ` for update`
		}
		var n int64
		if err := tx.QueryRowContext(ctx, query, campaign).Scan(&n); err != nil {
			return err
		}
		event := fmt.Sprintf("%s-%d-%d", campaign, n+1, rand.Uint32())
		if _, err := tx.ExecContext(ctx, `update orders set n = $2 where campaign = $1`, campaign, n+1); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `insert into ledger values ($1, $2, $3)`, campaign, n+1, event); err != nil {
			return err
		}
		if err := intake.Append(ctx, tx, intake.Event{CampaignID: campaign, EventID: event, EventType: "order.changed", Payload: []byte(`{}`)}); err != nil {
			return err
		}
		wait(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
	if rand.IntN(5) == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}
