package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"outboxweb/internal/outbox"
)

// openPostgres makes a connection of the Scratch's own. database/sql reads
// digests on it, everything else goes past that, never both at a time.
func (c *Scratch) openPostgres(ctx context.Context) error {
	d := c.store.projections
	if d.proxied {
		return outbox.Conflict("the %s database %s stands behind a proxy that hands out connections by the transaction, and a scratch copy needs one for itself; give --projections-db the address of the server", d.name, d.place)
	}
	c.pool = stdlib.OpenDB(*d.url.config.Copy())
	c.pool.SetMaxOpenConns(1)
	var err error
	if c.conn, err = c.pool.Conn(ctx); err != nil {
		return fmt.Errorf("%w: connect to the %s database: %w", outbox.ErrBusy, d.name, err)
	}
	err = c.conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		c.link = &postgresLink{conn: conn}
		_, err := conn.PgConn().Exec(ctx, script("set", []setting{{"search_path", "pg_temp, " + d.schema},
			{"idle_in_transaction_session_timeout", c.store.options.Lease / 2},
			{"statement_timeout", readLimit}, {"lock_timeout", lockWaitLimit},
			{"enable_seqscan", "off"}, {"jit", "off"}})).ReadAll()
		return err
	})
	if err != nil {
		return fmt.Errorf("set up the scratch database: %w", err)
	}
	return nil
}

// beginFold is how a transaction for events begins.
func (c *Scratch) beginFold() string {
	if !c.store.projections.dialect.several {
		return "begin"
	}
	return "begin" + script("set local", []setting{{"statement_timeout", c.store.options.EventTimeout}})
}

// queryMode is how a query for digests is sent: on PostgreSQL as those on the
// live rows are.
func (c *Scratch) queryMode() []any {
	if !c.store.projections.dialect.several {
		return nil
	}
	return []any{pgx.QueryExecModeExec}
}

// quietly runs fn while no trigger of the tables fires, and foreign keys between
// them are looked at in the end, where the database can do that. schema is empty
// for that of the search path.
func (t *tx) quietly(ctx context.Context, schema string, tables []string, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !t.database.dialect.several {
		return t.quietlySQLite(tables, fn)
	}
	switches, err := t.triggerSwitches(schema, tables)
	if err != nil {
		return err
	}
	for _, s := range switches {
		if err := t.define(s.off); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	for _, s := range switches {
		if err := t.define(s.on); err != nil {
			return err
		}
	}
	return nil
}

// triggerSwitch is the statements that keep a trigger of PostgreSQL from firing
// and let it fire again.
type triggerSwitch struct{ off, on string }

const selectTriggers = `
select tgname, tgenabled = 'A'
from pg_trigger
where tgrelid = to_regclass($1)
  and not tgisinternal
  and tgenabled in ('O', 'A')`

func (t *tx) triggerSwitches(schema string, tables []string) ([]triggerSwitch, error) {
	var switches []triggerSwitch
	var b batch
	for _, table := range tables {
		name := qualified(schema, table)
		b.each(func(row scanner) error {
			var trigger string
			var always bool
			err := row.Scan(&trigger, &always)
			enable := " enable trigger "
			if always {
				enable = " enable always trigger "
			}
			switches = append(switches, triggerSwitch{
				off: "alter table " + name + " disable trigger " + quoteName(trigger),
				on:  "alter table " + name + enable + quoteName(trigger),
			})
			return err
		}, selectTriggers, name)
	}
	if err := t.runAll(&b); err != nil {
		return nil, fmt.Errorf("read triggers: %w", err)
	}
	return switches, nil
}
