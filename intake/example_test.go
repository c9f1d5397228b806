package intake_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/outboxweb/outboxweb/intake"
)

// A service marks an order as paid and appends the event in the same transaction.
func ExampleAppend() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	schema, err := intake.Schema("sqlite")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, schema+`create table orders (id text primary key, status text); insert into orders values ('order-17', 'open')`); err != nil {
		log.Fatal(err)
	}

	pay := func(order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `update orders set status = 'paid' where id = $1`, order); err != nil {
			return err
		}
		err = intake.Append(ctx, tx, intake.Event{CampaignID: order, EventID: order + "-paid", EventType: "order.paid", Payload: []byte(`{"amount": 1250}`)})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := pay("order-17"); err != nil {
		log.Fatal(err)
	}

	var status, event string
	if err := db.QueryRowContext(ctx, `select status, event_type from orders, outboxweb_intake where campaign_id = orders.id`).Scan(&status, &event); err != nil {
		log.Fatal(err)
	}
	fmt.Println(status, event)
	// Output: paid order.paid
}

// With pgx the transaction is passed through Pgx.
func ExamplePgx() {
	pay := func(ctx context.Context, conn *pgx.Conn, order string) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `update orders set status = 'paid' where id = $1`, order); err != nil {
				return err
			}
			return intake.Append(ctx, intake.Pgx(tx), intake.Event{CampaignID: order, EventID: order + "-paid", EventType: "order.paid", Payload: []byte(`{"amount": 1250}`)})
		})
	}
	_ = pay // with a connection to PostgreSQL
	// Output:
}

// Only an event that could never be journalled is an error; whether the journal takes it is known
// later.
func ExampleEvent() {
	first := int64(0)
	e := intake.Event{CampaignID: "order-17", EventID: "e-1", EventType: "order.placed", ExpectedSeq: &first,
		Payload: []byte(`{"items": 3}`), Tags: map[string]string{"shop": "berlin"}}
	fmt.Println(e.CampaignID, *e.ExpectedSeq, e.Tags["shop"])
	// Output: order-17 0 berlin
}
