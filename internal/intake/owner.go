package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// owner is the journal that a source's table belongs to: only its servers move the rows. It is a row
// beside the table, made at the first use.
type owner struct {
	journal string // its id
	since   int64  // microseconds; larger with each hand-over
}

// foreign is the error of a source that belongs to another journal.
type foreign struct {
	owner
	source, journal string // of this server
}

func (f foreign) Error() string {
	return fmt.Sprintf("source %s belongs to journal %s, since %s; this server moves rows to journal %s. Take the source out of this server's configuration; or, if its rows belong here, hand it over: outboxweb intake hand-over %s --reason WHY --confirm 'hand over %s'",
		f.source, f.owner.journal, sqldb.At(f.since).Format(time.DateTime+" MST"), f.journal, f.source, f.source)
}

// ownerTexts are the SQL of a table's owner. The names are known once the table is open.
type ownerTexts struct {
	table, name string // of the owners, as written in statements, and of the source's table there
	kept        string // the table of kept events
	owns        string // the condition that the table belongs to this server's journal
	lock        string // of the functions that lock the ownership on PostgreSQL: shared while rows move
}

// ownerLocks is the class of advisory locks on the ownership of tables; that of the trigger is one less.
const ownerLocks = 1869967466

const (
	selectOwner = "select journal, since\nfrom %s\nwhere source_table = $1"
	insertOwner = "insert into %s (source_table, journal, since)\nvalues ($1, $2, $3)\non conflict (source_table) do nothing"
	changeOwner = "update %s\nset journal = $2, since = case when since < $3 then $3 else since + 1 end\nwhere source_table = $1\n  and journal = $4\n  and since = $5"
)

// ownedBy names the table of owners beside the source's table.
func (t *table) ownedBy(schema, name string) {
	o := &t.owners
	o.name, o.table, o.kept = name, quoted(inbound.IntakeOwners), quoted(keptTable)
	if schema != "" {
		o.table, o.kept = quoted(schema)+"."+o.table, quoted(schema)+"."+o.kept
	}
	literal := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	o.owns = "exists (select 1 from " + o.table + " as o where o.source_table = " + literal(name) + " and o.journal = " + literal(t.journal) + ")"
}

// own makes this server's journal the owner of a table that has none.
func (t *table) own(ctx context.Context) error {
	_, err := t.currentOwner(ctx)
	if err == nil {
		return nil
	}
	if !errors.Is(err, sql.ErrNoRows) { // there is no such table, or this user may not read it
		if _, err := t.deleters.ExecContext(ctx, inbound.CreateIntakeOwners(t.owners.table)); err != nil {
			return t.mayNotOwn(err)
		}
	}
	_, err = t.deleters.ExecContext(ctx, fmt.Sprintf(insertOwner, t.owners.table), t.owners.name, t.journal, t.now())
	return t.mayNotOwn(err)
}

// mayNotOwn adds what helps a user of PostgreSQL without the rights on the table of owners.
func (t *table) mayNotOwn(err error) error {
	return t.mayNot(err, inbound.CreateIntakeOwners(t.owners.table), t.owners.table)
}

// mayNot adds the statements that help a user of PostgreSQL without the rights on a table.
func (t *table) mayNot(err error, create, table string) error {
	denied, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || denied.Code != "42501" {
		return err
	}
	user := quoted(t.postgres.User)
	return fmt.Errorf("user %s may not make or change the table %s, which intake needs (%s). Let the owner of the database run: %s; grant select, insert, update, delete on %s to %s",
		user, table, denied.Message, create, table, user)
}

func (t *table) currentOwner(ctx context.Context) (o owner, err error) {
	err = t.readers.QueryRowContext(ctx, fmt.Sprintf(selectOwner, t.owners.table), t.owners.name).Scan(&o.journal, &o.since)
	return o, err
}

// begin returns the table's owner. On PostgreSQL a hand-over then waits for end, or for an error: rows
// that were read are in the journal, and deleted, before another journal reads the table.
func (t *table) begin(ctx context.Context) (o owner, err error) {
	err = t.locking(ctx, func(ctx context.Context) (err error) {
		o, err = t.currentOwner(ctx)
		return t.mayNotOwn(err)
	})
	return o, err
}

// locking is call, after which no hand-over happens before end on PostgreSQL.
func (t *table) locking(ctx context.Context, do func(context.Context) error) error {
	return t.call(ctx, func(ctx context.Context) error {
		if err := t.lock(ctx); err != nil {
			return err
		}
		return do(ctx)
	})
}

func (t *table) lock(ctx context.Context) error {
	if t.postgres == nil || t.locked {
		return nil
	}
	_, err := t.readers.ExecContext(ctx, "begin isolation level read committed; select pg_advisory_xact_lock_shared("+t.owners.lock+")")
	t.locked = err == nil
	return err
}

// end commits what was deleted since begin, and lets a hand-over happen.
func (t *table) end(ctx context.Context) error {
	if !t.locked {
		return nil
	}
	return t.call(ctx, func(ctx context.Context) error {
		_, err := t.readers.ExecContext(ctx, "commit")
		t.locked = false
		return err
	})
}

// take makes this server's journal the owner, unless another one has become it meanwhile.
func (t *table) take(ctx context.Context, from owner) error {
	return t.call(ctx, func(ctx context.Context) error {
		change := fmt.Sprintf(changeOwner, t.owners.table)
		args := []any{t.owners.name, t.journal, t.now(), from.journal, from.since}
		tx, err := t.deleters.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after a commit
		if t.postgres != nil {
			if _, err := tx.ExecContext(ctx, "select pg_advisory_xact_lock("+t.owners.lock+")"); err != nil {
				return fmt.Errorf("wait until journal %s has moved what it has read: %s", from.journal, err)
			}
		}
		if _, err := tx.ExecContext(ctx, change, args...); err != nil {
			return t.mayNotOwn(err)
		}
		return tx.Commit()
	})
}
