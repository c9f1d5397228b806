package intake

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver

	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Limits on what is asked of a source's database, which belongs to a service with users of its own.
const (
	callTime     = 30 * time.Second // of one statement, including the connection
	maxReadBytes = 16 << 20         // of rows in memory
	countLimit   = 10_000           // rows counted
	// deleteTime is about how long a deletion keeps SQLite's write lock, and deleteRows the most rows
	// that it deletes meanwhile. The pause after it is as long, for a writer to get its turn.
	deleteTime = 2 * time.Millisecond
	deleteRows = 200
	writerWait = 5 * time.Second // for SQLite's write lock
)

// table is a source's table, over connections of its own. It is opened at the first use, and is not
// safe for concurrent use.
type table struct {
	Source
	maxPayload int
	journal    string       // its id: rows are read and deleted only while the table belongs to it
	now        func() int64 // microseconds
	readers    runner
	deleters   runner
	closers    []io.Closer
	owners     ownerTexts
	locked     bool   // begin has begun a transaction
	keyType    string // the order column's type on PostgreSQL
	limit      int    // rows of the next read; fewer than batch while rows are large
	texts      statements
}

// execer runs statements in a transaction: a *sql.Tx, or a *sql.Conn on which one was begun.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// runner runs statements: a *sql.DB or *sql.Conn.
type runner interface {
	execer
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// statements are the SQL of a table.
type statements struct{ read, readHeld, one, count, first, remove string }

// write makes the texts of the statements.
func (t *table) write() {
	s := &t.Source
	bytes, in := "length(cast(%s as blob))", func(value, param string) string {
		return value + " not in (select value from json_each(" + param + "))"
	}
	if s.postgres != nil {
		bytes, in = "octet_length(%s)", func(value, param string) string { return value + " <> all(cast(" + param + " as text[]))" }
	}
	l, from := s.layout, "\nfrom "+s.name()+" as t\n"
	all := "select " + l.columns(bytes, t.maxPayload) + from
	read := all + "where " + t.owners.owns + "\n"
	ordered := "order by " + l.order() + "\nlimit "
	campaign := l.short("campaign_id")
	t.texts = statements{
		read:     read + ordered + "$1",
		readHeld: read + "  and " + in(campaign, "$1") + "\n  and " + in(l.key(), "$2") + "\n" + ordered + "$3",
		count:    "select count(*)\nfrom (select 1 as one" + from + "limit $1) as counted",
		first:    "select " + l.key() + ", " + l.plain("occurred_at") + from + ordered + "1",
		// A key that is used again, for another row, is not deleted: the event must be the same.
		remove: "delete from " + s.name() + " as t\nwhere " + l.order() + " = $1\n  and " + campaign + " = $2\n  and " + l.short("event_id") + " = $3\n  and " + t.owners.owns,
		one:    all + "where " + l.order() + " = $1",
	}
	if s.postgres == nil {
		return
	}
	t.texts.one = all + "where " + l.order() + " = cast(cast($1 as text) as " + t.keyType + ")"
	t.texts.remove = "delete from " + t.name() + ` as t
using unnest(cast($1 as text[]), cast($2 as text[]), cast($3 as text[])) as gone(row_key, campaign, event)
where ` + l.order() + " = cast(gone.row_key as " + t.keyType + ")\n  and " + campaign + " = gone.campaign\n  and " + l.short("event_id") + " = gone.event\n  and " + t.owners.owns
}

// open connects, unless it is connected.
func (t *table) open(ctx context.Context) error {
	if t.readers != nil {
		return nil
	}
	open := t.openSQLite
	if t.postgres != nil {
		open = t.openPostgres
	}
	if err := open(ctx); err != nil {
		return err
	}
	t.write()
	if err := t.own(ctx); err != nil {
		return err
	}
	return t.keeps(ctx)
}

func (t *table) openSQLite(ctx context.Context) error {
	if _, err := os.Stat(t.path); err != nil {
		return err // SQLite would make the file
	}
	base := "file:" + (&url.URL{Path: t.path}).EscapedPath() + fmt.Sprintf("?mode=rw&_txlock=immediate&_pragma=busy_timeout(%d)", writerWait.Milliseconds())
	readers, err := sql.Open("sqlite", base+"&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	var mode string
	if err := readers.QueryRowContext(ctx, `pragma journal_mode`).Scan(&mode); err != nil {
		readers.Close()
		return err
	}
	// A deletion that a power failure undoes is repeated. In WAL mode it needs no fsync of its own, so
	// that writers do not wait for one.
	sync := map[bool]string{true: "normal", false: "full"}[mode == "wal"]
	deleters, err := sql.Open("sqlite", base+"&_pragma=synchronous("+sync+")")
	if err != nil {
		readers.Close()
		return err
	}
	readers.SetMaxOpenConns(1)
	deleters.SetMaxOpenConns(1)
	t.readers, t.deleters, t.closers = readers, deleters, []io.Closer{readers, deleters}
	// Names are compared without case, and the table's file is that of the source.
	t.ownedBy("", strings.ToLower(t.Table[strings.Index(t.Table, ".")+1:]))
	return nil
}

const selectTable = `
select format_type(a.atttypid, a.atttypmod), n.nspname, c.relname, cast(cast(c.oid as int) as text)
from pg_attribute a
join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
where a.attrelid = to_regclass($1)
  and a.attname = $2
  and not a.attisdropped`

func (t *table) openPostgres(ctx context.Context) error {
	db := stdlib.OpenDB(*t.postgres, stdlib.OptionAfterConnect(sqldb.Pin))
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return err
	}
	var schema, name, id string
	err = conn.QueryRowContext(ctx, selectTable, t.name(), t.layout[orderField][0]).Scan(&t.keyType, &schema, &name, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("there is no table %s with a column %s, or this user may not see it; outboxweb intake schema postgres prints the statements that create outboxweb_intake", t.Table, t.layout[orderField][0])
	}
	if err != nil {
		conn.Close()
		db.Close()
		return err
	}
	t.readers, t.deleters, t.closers = conn, conn, []io.Closer{conn, db}
	t.ownedBy(schema, name)
	t.owners.lock = fmt.Sprintf("%d, %s", ownerLocks, id)
	return nil
}

// close closes the connections; the next call opens others.
func (t *table) close() {
	for _, c := range t.closers {
		c.Close()
	}
	t.readers, t.deleters, t.closers, t.locked = nil, nil, nil, false
}

// call runs do on an open table, within callTime.
func (t *table) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := t.open(ctx)
	if err == nil {
		err = do(ctx)
	}
	if err != nil {
		t.close()
	}
	return err
}

// read reads the first rows in order, without those of held campaigns and without held keys. All are
// of one snapshot: a row that is committed before another of its campaign is read with it or before
// it. full reports that there may be more.
func (t *table) read(ctx context.Context, held, keys []string) (all []row, full bool, err error) {
	err = t.locking(ctx, func(ctx context.Context) error {
		query, args := t.texts.read, []any{t.limit}
		if len(keys) > 0 {
			query, args = t.texts.readHeld, []any{t.list(held), t.list(keys), t.limit}
		}
		rows, err := t.readers.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		size, cut := 0, false
		for !cut && rows.Next() {
			r, err := scanRow(rows)
			if err != nil {
				return err
			}
			all = append(all, r)
			size += r.size()
			cut = size > maxReadBytes
		}
		full = cut || len(all) == t.limit
		if t.limit = min(t.batch, 2*t.limit); cut {
			t.limit = len(all)
		}
		return rows.Err()
	})
	return all, full, err
}

// list is texts as a parameter.
func (t *table) list(texts []string) any {
	if t.postgres != nil {
		return texts
	}
	text, _ := json.Marshal(texts) // texts always can be
	return string(text)
}

func (t *table) one(ctx context.Context, key string) (r row, found bool, err error) {
	err = t.locking(ctx, func(ctx context.Context) error {
		rows, err := t.readers.QueryContext(ctx, t.texts.one, key)
		if err != nil {
			return err
		}
		defer rows.Close()
		if found = rows.Next(); found {
			r, err = scanRow(rows)
		}
		return errors.Join(err, rows.Err())
	})
	return r, found, err
}

// remove deletes rows that are in the journal, or discarded, if the table still belongs to this
// server's journal.
func (t *table) remove(ctx context.Context, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	err := t.locking(ctx, func(ctx context.Context) error {
		if t.postgres == nil {
			return t.removeInTurns(ctx, rows)
		}
		var keys, campaigns, events []string
		for i := range rows {
			keys, campaigns, events = append(keys, rows[i].key), append(campaigns, rows[i].event.CampaignID), append(events, rows[i].event.EventID)
		}
		if err := t.keepRows(ctx, t.deleters, rows); err != nil {
			return err
		}
		_, err := t.deleters.ExecContext(ctx, t.texts.remove, keys, campaigns, events)
		return err
	})
	if err == nil {
		err = t.end(ctx)
	}
	return err
}

// removeInTurns deletes rows on SQLite, in transactions so short that a writer hardly waits.
func (t *table) removeInTurns(ctx context.Context, rows []row) error {
	for len(rows) > 0 {
		began := time.Now()
		n, err := t.removeSome(ctx, rows)
		if err != nil {
			return err
		}
		if rows = rows[n:]; len(rows) > 0 && loop.Pause(ctx, max(time.Millisecond, time.Since(began))) != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (t *table) removeSome(ctx context.Context, rows []row) (n int, err error) {
	tx, err := t.deleters.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // does nothing after a commit
	stmt, err := tx.PrepareContext(ctx, t.texts.remove)
	if err != nil {
		return 0, err
	}
	defer stmt.Close()
	began := time.Now()
	for n < min(len(rows), deleteRows) && (n == 0 || time.Since(began) < deleteTime) {
		r := &rows[n]
		if _, err := stmt.ExecContext(ctx, r.key, r.event.CampaignID, r.event.EventID); err != nil {
			return 0, err
		}
		n++
	}
	if err := t.keepRows(ctx, tx, rows[:n]); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}

// backlog is what waits in a table.
type backlog struct {
	rows  int64  // at most countLimit
	first string // the key of the first one; empty without
	at    time.Time
}

// look counts the rows and reads the first one.
func (t *table) look(ctx context.Context) (b backlog, err error) {
	err = t.call(ctx, func(ctx context.Context) error {
		if err := t.readers.QueryRowContext(ctx, t.texts.count, countLimit).Scan(&b.rows); err != nil || b.rows == 0 {
			return err
		}
		var at any
		err := t.readers.QueryRowContext(ctx, t.texts.first).Scan(&b.first, &at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		b.at, _ = moment(at)
		return err
	})
	return b, err
}

// notifyChannel is where the trigger of the schema notifies.
const notifyChannel = "outboxweb_intake"

// listen calls wake for each notification, until stop is called. It does nothing on SQLite.
func (t *table) listen(ctx context.Context, wake func()) (stop func()) {
	if t.postgres == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			_ = hear(ctx, t.postgres.Copy(), wake) // a lost hint is found by polling
			if loop.Pause(ctx, listenPause) != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		listening.Wait()
	}
}

// listenPause is how long a listener waits to reconnect after it lost its connection.
const listenPause = 5 * time.Second

func hear(ctx context.Context, config *pgx.ConnConfig, wake func()) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "listen "+notifyChannel); err != nil {
		return err
	}
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		wake()
	}
}
