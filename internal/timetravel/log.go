package timetravel

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// logURL names no file: SQLite creates one in SQLITE_TMPDIR or TMPDIR, removes its name at once,
// and so leaves nothing behind when the process dies.
const logURL = "file:?_pragma=cache_size(-8000)&_pragma=temp_store(file)&_pragma=synchronous(off)&_pragma=journal_mode(memory)"

const logSchema = `
create table row_keys (
  id integer primary key,
  tab integer not null,
  sort blob not null,
  name text not null,
  key text not null,
  born integer not null,
  gone integer
);
create unique index row_keys_sort on row_keys (tab, sort, born, gone, id);
create unique index row_keys_name on row_keys (name);
create table versions (
  row integer not null,
  seq integer not null,
  cells text,
  primary key (row, seq)
) without rowid;
create index versions_seq on versions (seq);
create table long_values (
  id integer primary key,
  value text not null
);`

// changeLog keeps every version of every row of a campaign's replay, in a temporary file: one for
// each event that changed the row. One goroutine appends, others may read meanwhile.
type changeLog struct {
	db     *sql.DB // of one connection
	tables []projection.Shape

	mu   sync.Mutex
	base int64 // rows are kept from after this event on
	seq  int64 // up to this event; -1 until the rows at base are stored
	size int64 // of the file, in bytes

	// of the goroutine that appends
	known   map[string]int64 // ids of rows by table and key
	latest  map[int64][]cell // of rows by id; without cells the row is not there
	copies  map[string]int64 // how many equal rows there are, of tables without a key
	longest int64            // the last id of a long value
}

func openLog(ctx context.Context, tables []projection.Shape) (*changeLog, error) {
	db, err := sql.Open("sqlite", logURL)
	if err != nil {
		return nil, fmt.Errorf("open a file for row changes: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection would get a file of its own
	db.SetMaxIdleConns(1)
	if _, err := db.ExecContext(ctx, logSchema); err != nil {
		db.Close()
		return nil, fmt.Errorf("open a file for row changes: %w", err)
	}
	return &changeLog{db: db, tables: tables, seq: -1, known: map[string]int64{}, latest: map[int64][]cell{}, copies: map[string]int64{}}, nil
}

func (l *changeLog) close() error { return l.db.Close() }

// span is the events after which rows are kept: from after base up to seq, which is -1 before begin.
func (l *changeLog) span() (base, seq, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.base, l.seq, l.size
}

// Limits of what is remembered between events, to read less.
const (
	mostKnown  = 200_000
	mostLatest = 20_000
)

// begin stores the rows of a replay up to base, whose setters are not known.
func (l *changeLog) begin(ctx context.Context, base int64, rows func(table int, visit func([]json.RawMessage) error) error) error {
	return l.within(ctx, base, base, func(a *appending) error {
		for i := range l.tables {
			err := rows(i, func(cells []json.RawMessage) error {
				return a.take(runs.Change{Table: i, Seq: base, Statement: -1, Is: slices.Clone(cells)})
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// append stores the changes of a replay up to seq.
func (l *changeLog) append(ctx context.Context, seq int64, changes []runs.Change) error {
	base, _, _ := l.span()
	return l.within(ctx, base, seq, func(a *appending) error {
		for _, c := range changes {
			if err := a.take(c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *changeLog) advance(base, seq int64) {
	var size int64
	_ = l.db.QueryRow(`select (page_count - freelist_count) * page_size from pragma_page_count, pragma_freelist_count, pragma_page_size`).Scan(&size) // a size of 0 only delays trimming
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.seq, l.size = base, seq, size
}

// trim forgets the versions that only events up to base need.
func (l *changeLog) trim(ctx context.Context, base int64) error {
	_, seq, _ := l.span()
	defer clear(l.known)
	return l.within(ctx, base, seq, func(a *appending) error {
		for _, statement := range []string{`
delete from versions
where seq < $1
  and exists (select 1 from versions n where n.row = versions.row and n.seq > versions.seq and n.seq <= $1)`, `
delete from versions
where seq < $1
  and cells is null`, `
delete from row_keys
where gone < $1`} {
			if _, err := a.tx.ExecContext(ctx, statement, base); err != nil {
				return fmt.Errorf("forget old row changes: %w", err)
			}
		}
		return nil
	})
}

// within runs fn in one transaction, after which rows are kept from after base up to seq. After an
// error the log must not be used any more.
func (l *changeLog) within(ctx context.Context, base, seq int64, fn func(*appending) error) error {
	if len(l.known) > mostKnown {
		clear(l.known)
	}
	if len(l.latest) > mostLatest {
		clear(l.latest)
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("store row changes: %w", err)
	}
	a := &appending{ctx: ctx, log: l, tx: tx, open: map[string]*touched{}, stmts: map[string]*sql.Stmt{}}
	if err = fn(a); err == nil {
		err = a.flush()
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("store row changes: %w", err)
	}
	l.advance(base, seq)
	return nil
}

// appending is changes on their way into the log. The changes of one event to one row become one
// version.
type appending struct {
	ctx   context.Context
	log   *changeLog
	tx    *sql.Tx
	stmts map[string]*sql.Stmt

	table int
	seq   int64
	open  map[string]*touched // rows that the event changed, by key
	order []*touched
}

// touched is a row that an event has changed.
type touched struct {
	id     int64 // 0 for a row that was never there
	sort   []byte
	key    []json.RawMessage
	before []cell // nil if it was not there
	cells  []cell
	there  bool
}

func (a *appending) take(c runs.Change) error {
	if c.Table != a.table || c.Seq != a.seq {
		if err := a.flush(); err != nil {
			return err
		}
		a.table, a.seq = c.Table, c.Seq
	}
	shape := a.log.tables[c.Table]
	if shape.Keyless {
		return a.takeKeyless(c)
	}
	var is []json.RawMessage
	if c.Is != nil {
		is = shape.KeyOf(c.Is)
	}
	if c.Was != nil && (is == nil || !slices.EqualFunc(c.Was, is, func(x, y json.RawMessage) bool { return string(x) == string(y) })) {
		if err := a.remove(c.Was, sortKey(c.Was)); err != nil {
			return err
		}
	}
	if is == nil {
		return nil
	}
	return a.put(c, is, sortKey(is))
}

// takeKeyless takes a change of a table without a primary key: equal rows are told apart by a
// number.
func (a *appending) takeKeyless(c runs.Change) error {
	numberedKey := func(key []json.RawMessage, by int64) []byte {
		sort := sortKey(key)
		name := rowName(a.log.tables[a.table].Table, sort)
		n := a.log.copies[name] + max(by, 0)
		if a.log.copies[name] += by; a.log.copies[name] == 0 {
			delete(a.log.copies, name)
		}
		return appendSortable(sort, fmt.Append(nil, n))
	}
	if c.Was != nil {
		if err := a.remove(c.Was, numberedKey(c.Was, -1)); err != nil {
			return err
		}
	}
	if c.Is == nil {
		return nil
	}
	return a.put(c, c.Is, numberedKey(c.Is, 1))
}

func (a *appending) remove(key []json.RawMessage, sort []byte) error {
	row, err := a.row(key, sort)
	if err == nil {
		row.there = false
	}
	return err
}

func (a *appending) put(c runs.Change, key []json.RawMessage, sort []byte) error {
	row, err := a.row(key, sort)
	if err != nil {
		return err
	}
	cells := make([]cell, len(c.Is))
	for i, value := range c.Is {
		if row.there && row.cells[i].holds(value) {
			cells[i] = row.cells[i]
			continue
		}
		cells[i] = cell{value: value, seq: c.Seq, step: c.Statement}
		if c.Statement < 0 {
			cells[i].seq = 0
		}
		if len(value) > longCell {
			if err := a.store(&cells[i]); err != nil {
				return err
			}
		}
	}
	row.cells, row.there = cells, true
	return nil
}

// store stores a long value apart.
func (a *appending) store(c *cell) error {
	a.log.longest++
	if err := a.exec(`insert into long_values (id, value) values ($1, $2)`, a.log.longest, string(c.value)); err != nil {
		return err
	}
	c.sum, c.long, c.value = sumOf(c.value), a.log.longest, nil
	return nil
}

// row returns the row of a key as the event has left it so far.
func (a *appending) row(key []json.RawMessage, sort []byte) (*touched, error) {
	if row := a.open[string(sort)]; row != nil {
		return row, nil
	}
	row := &touched{sort: sort, key: key}
	handle := string(rune(a.table)) + string(sort)
	row.id = a.log.known[handle]
	if row.id == 0 {
		err := a.query(&row.id, `select id from row_keys where tab = $1 and sort = $2`, a.table, sort)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
	}
	if row.id != 0 {
		a.log.known[handle] = row.id
		var err error
		if row.before, err = a.last(row.id); err != nil {
			return nil, err
		}
	}
	row.cells, row.there = row.before, row.before != nil
	a.open[string(sort)] = row
	a.order = append(a.order, row)
	return row, nil
}

// last returns the cells of the row's last version.
func (a *appending) last(row int64) ([]cell, error) {
	if cells, known := a.log.latest[row]; known {
		return cells, nil
	}
	var text []byte
	err := a.query(&text, `select cells from versions where row = $1 order by seq desc limit 1`, row)
	if errors.Is(err, sql.ErrNoRows) || err == nil && text == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeCells(text)
}

// flush stores the versions that the event has made.
func (a *appending) flush() error {
	for _, row := range a.order {
		if err := a.save(row); err != nil {
			return err
		}
	}
	clear(a.open)
	a.order = a.order[:0]
	return nil
}

func (a *appending) save(row *touched) error {
	was := row.before != nil
	changed := was != row.there
	if was && row.there {
		for i := range row.cells {
			if row.cells[i].same(&row.before[i]) {
				row.cells[i] = row.before[i]
			} else {
				changed = true
			}
		}
	}
	if !changed {
		return nil
	}
	if err := a.saveKey(row, was); err != nil {
		return err
	}
	var now []cell
	var text any
	if row.there {
		now, text = row.cells, string(encodeCells(row.cells))
	}
	a.log.latest[row.id] = now
	return a.exec(`insert into versions (row, seq, cells) values ($1, $2, $3)`, row.id, a.seq, text)
}

func (a *appending) saveKey(row *touched, was bool) error {
	switch {
	case row.id == 0:
		key, err := json.Marshal(row.key)
		if err != nil {
			return fmt.Errorf("store the key of a row: %w", err)
		}
		err = a.query(&row.id, `insert into row_keys (tab, sort, name, key, born) values ($1, $2, $3, $4, $5) returning id`,
			a.table, row.sort, rowName(a.log.tables[a.table].Table, row.sort), string(key), a.seq)
		a.log.known[string(rune(a.table))+string(row.sort)] = row.id
		return err
	case was && !row.there:
		return a.exec(`update row_keys set gone = $1 where id = $2`, a.seq, row.id)
	case !was && row.there:
		return a.exec(`update row_keys set gone = null where id = $1`, row.id)
	}
	return nil
}

func (a *appending) exec(query string, args ...any) error {
	stmt, err := a.prepare(query)
	if err == nil {
		_, err = stmt.Exec(args...)
	}
	if err != nil {
		return fmt.Errorf("store row changes: %w", err)
	}
	return nil
}

func (a *appending) query(into any, query string, args ...any) error {
	stmt, err := a.prepare(query)
	if err == nil {
		err = stmt.QueryRow(args...).Scan(into)
	}
	if err != nil {
		return fmt.Errorf("read row changes: %w", err)
	}
	return nil
}

// prepare prepares a statement once per transaction, which closes it.
func (a *appending) prepare(query string) (*sql.Stmt, error) {
	if known := a.stmts[query]; known != nil {
		return known, nil
	}
	stmt, err := a.tx.PrepareContext(a.ctx, query)
	if err == nil {
		a.stmts[query] = stmt
	}
	return stmt, err
}
