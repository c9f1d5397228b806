package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/outboxweb/outboxweb/intake"
)

// errRefused is an order that the shop does not take. Its text is for the customer.
type errRefused string

func (e errRefused) Error() string { return string(e) }

// Shop is the service: its own database, and the read models that are built from its events.
type Shop struct {
	url        string // of its own database
	db         *sql.DB
	readModels *sql.DB
}

//go:embed schema.sql
var schema string

// openShop opens the shop's database and creates its tables, with the outbox among them.
func openShop(ctx context.Context, db string) (*Shop, error) {
	own, err := place(db, "shop")
	if err != nil {
		return nil, err
	}
	readModels, err := place(db, "projections")
	if err != nil {
		return nil, err
	}
	s := &Shop{url: own}
	dialect, first := "sqlite", ""
	if strings.HasPrefix(own, "postgres") {
		// Of several processes that start at once, one creates them: PostgreSQL's "if not exists" does
		// not wait for another transaction. The statements are one, which holds the lock to its end.
		dialect, first = "postgres", "select pg_advisory_xact_lock(7367536); create schema if not exists shop;"
	}
	outbox, err := intake.Schema(dialect)
	if err != nil {
		return nil, err
	}
	if s.db, err = openDB(own); err != nil {
		return nil, err
	}
	if s.readModels, err = openDB(readModels); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if _, err := s.db.ExecContext(ctx, first+schema+outbox); err != nil {
		return nil, errors.Join(fmt.Errorf("create the shop's tables: %w", err), s.Close())
	}
	return s, nil
}

func openDB(url string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	}
	return sql.Open("pgx", url)
}

// Close closes the databases.
func (s *Shop) Close() error { return errors.Join(s.db.Close(), s.readModels.Close()) }

// place takes an order: the stock, the order and its event change in one transaction, or none does.
func (s *Shop) place(ctx context.Context, customer, product string, quantity int) (id string, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback() // does nothing after a commit
	taken, err := tx.ExecContext(ctx, `update products set stock = stock - $1 where name = $2 and stock >= $1`, quantity, product)
	if err != nil {
		return "", err
	}
	if n, err := taken.RowsAffected(); err != nil || n == 0 {
		return "", errors.Join(err, errRefused(fmt.Sprintf("There are not %d of %s in stock.", quantity, product)))
	}
	id = "order-" + strings.ToLower(rand.Text()[:8])
	_, err = tx.ExecContext(ctx, `insert into orders (id, customer, product, quantity, placed_at) values ($1, $2, $3, $4, $5)`,
		id, customer, product, quantity, time.Now().UnixMicro())
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(map[string]any{"product": product, "quantity": quantity})
	if err != nil {
		return "", err
	}
	err = intake.Append(ctx, tx, intake.Event{CampaignID: id, EventID: id + "-placed", EventType: "order.placed", ActorID: customer, Payload: payload})
	if err != nil {
		return "", err
	}
	return id, tx.Commit()
}

// ship sends an order. Changing its row first locks it, so that the order's events are in order.
func (s *Shop) ship(ctx context.Context, by, id string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	sent, err := tx.ExecContext(ctx, `update orders set shipped = 1 where id = $1 and shipped = 0`, id)
	if err != nil {
		return err
	}
	if n, err := sent.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errRefused("This order is unknown, or shipped already."))
	}
	err = intake.Append(ctx, tx, intake.Event{CampaignID: id, EventID: id + "-shipped", EventType: "order.shipped", ActorID: by, Payload: json.RawMessage(`{}`)})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// Product is what the shop sells.
type Product struct {
	Name  string
	Stock int
}

// Order is an order, with what the read models say of it.
type Order struct {
	ID, Customer, Product string
	Quantity              int
	Shipped               bool
	State                 string // empty while its event is not applied
	Grams                 int64
}

func (s *Shop) products(ctx context.Context) (all []Product, err error) {
	err = each(ctx, s.db, func(rows *sql.Rows) error {
		var p Product
		err := rows.Scan(&p.Name, &p.Stock)
		all = append(all, p)
		return err
	}, `select name, stock from products order by name`)
	return all, err
}

// orders returns the last orders, newest first.
func (s *Shop) orders(ctx context.Context) (all []Order, err error) {
	err = each(ctx, s.db, func(rows *sql.Rows) error {
		var o Order
		err := rows.Scan(&o.ID, &o.Customer, &o.Product, &o.Quantity, &o.Shipped)
		all = append(all, o)
		return err
	}, `select id, customer, product, quantity, shipped <> 0 from orders order by placed_at desc limit 20`)
	if err != nil {
		return nil, err
	}
	for i := range all {
		o := &all[i]
		err := s.readModels.QueryRowContext(ctx, `
select state, grams
from order_states join parcels on parcels.campaign_id = order_states.campaign_id
where order_states.campaign_id = $1`, o.ID).Scan(&o.State, &o.Grams)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
	}
	return all, nil
}

// each calls scan for each row of a query.
func each(ctx context.Context, db *sql.DB, scan func(*sql.Rows) error, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
