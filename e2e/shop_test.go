package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/must"
)

// shopTables are the service's own: a row for each campaign, which its writers lock, and the events
// that were committed.
const shopTables = `
create table orders (campaign text primary key, n bigint not null);
create table ledger (campaign text not null, n bigint not null, event text not null, primary key (campaign, n));`

func lists(t *testing.T, place, query string) map[string][]string {
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
	db := must.Get(openShop(place)).Or(t)
	defer db.Close()
	schema := mustCommand(t, newDatabases(t), nil, "intake", "schema", kind)
	if kind == "postgres" {
		schema = mustCommand(t, newDatabases(t), nil, "intake", "schema", "postgres", "--notify")
	}
	for _, text := range []string{schema, schema, shopTables} {
		must.Get(db.Exec(text)).Or(t)
	}
	for i := range shopCampaigns {
		must.Get(db.Exec(`insert into orders values ($1, 0)`, fmt.Sprintf("order-%02d", i))).Or(t)
	}
}

// writerPlace names the database in the environment of a writer's process, which is this test program.
const writerPlace = "OUTBOXWEB_E2E_SHOP"

func startWriter(t *testing.T, place string) *exec.Cmd {
	w := exec.Command(os.Args[0])
	w.Env = append(os.Environ(), writerPlace+"="+place)
	w.Stdout, w.Stderr = io.Discard, os.Stderr
	must.Get(w.StdinPipe()).Or(t) // it ends with this program
	must.OK(t, w.Start())
	t.Cleanup(func() { killWriter(w) })
	return w
}

func killWriter(w *exec.Cmd) {
	_ = w.Process.Kill()
	_ = w.Wait()
}

// writeIntake writes with two writers until its standard input ends.
func writeIntake(place string) int {
	db, err := openShop(place)
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	for range 2 {
		writing.Go(func() {
			for ctx.Err() == nil {
				_ = writeOnce(ctx, db, strings.HasPrefix(place, "postgres")) // the database may be away
				wait(50 * time.Millisecond)                                  // so that the servers keep up
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
		campaign, query := fmt.Sprintf("order-%02d", i), `select n from orders where campaign = $1`
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
		if err := intake.Append(ctx, tx, intake.Event{CampaignID: campaign, EventID: event, EventType: "order.changed", Payload: []byte(`{"n": 1}`)}); err != nil {
			return err
		}
		wait(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
	if rand.IntN(5) == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}
