package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxweb/outboxweb/internal/event"
)

const (
	postgresReaders = 4
	// postgresWriters is how many transactions may write at a time besides those of the worker's
	// waves.
	postgresWriters = 4
)

// postgresDialect is the dialect for a process with this many concurrent waves.
func postgresDialect(waves int) *Dialect {
	return &Dialect{
		name:        "postgres",
		ForUpdate:   "\nfor update",
		skipLocked:  "\nfor update skip locked",
		CountTables: `select count(*) from pg_tables where schemaname = current_schema() and tablename = $1`,
		Pipelines:   true,
		Typed:       true,
		TempTables:  true,
		snapshot:    sql.LevelRepeatableRead,
		writers:     postgresWriters + max(1, waves),
		readers:     postgresReaders,
		version:     `select current_setting('server_version')`,
		size: `
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = current_schema()
  and c.relkind = 'r'`,
		settings: []described{
			{"schema", `select current_schema()`}, {"synchronous_commit", `select current_setting('synchronous_commit')`},
			{"fsync", `select current_setting('fsync')`}, {"max_connections", `select current_setting('max_connections')`},
			{"server_encoding", `select current_setting('server_encoding')`},
		},
	}
}

// postgresURL is a parsed postgres:// URL.
type postgresURL struct {
	config *pgx.ConnConfig
	schema string // from search_path; empty means the server's default
	place  string // without secrets
	mode   bool   // the URL sets how statements are sent
}

// plainName matches schema names that mean the same quoted and unquoted.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func parsePostgresURL(setting, raw string) (*postgresURL, error) {
	config, err := pgx.ParseConfig(raw)
	if err != nil {
		return nil, event.Setup("%s: %q is not a PostgreSQL URL, such as postgres://USER@HOST:5432/DATABASE?search_path=SCHEMA", setting, WithoutSecrets(raw))
	}
	u := &postgresURL{config: config, place: WithoutSecrets(raw), mode: strings.Contains(raw, "default_query_exec_mode="), schema: config.RuntimeParams["search_path"]}
	// A transaction pooler keeps no session settings, and some poolers refuse a connection that
	// asks for one.
	delete(config.RuntimeParams, "search_path")
	if u.schema != "" && !plainName.MatchString(u.schema) {
		return nil, event.Setup("%s: search_path=%s must name one schema, in small letters, digits and underscores", setting, u.schema)
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // every pooler knows this one
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "outboxweb"
	}
	if !strings.Contains(raw, "connect_timeout=") {
		config.ConnectTimeout = 5 * time.Second
	}
	return u, nil
}

// sameSchema reports whether two URLs obviously name one schema of one database. URLs without a
// schema, or with two names of one server, are compared after connecting.
func sameSchema(a, b *postgresURL) bool {
	return a.schema != "" && a.schema == b.schema && a.config.Database == b.config.Database && a.config.Host == b.config.Host && a.config.Port == b.config.Port
}

// WithoutSecrets is a database URL for display.
func WithoutSecrets(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || strings.Contains(u.Opaque+u.Path, "password") { // some other kind of connection string
		return "postgres://…"
	}
	if _, secret := u.User.Password(); secret {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(name, "password") {
			query.Del(name)
			u.RawQuery = query.Encode()
		}
	}
	return u.String()
}

// withSearchPath is the URL with another schema.
func withSearchPath(raw, schema string) string {
	u, err := url.Parse(WithoutSecrets(raw))
	if err != nil {
		return raw
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// peekPostgres connects to the database only to read its version.
func peekPostgres(ctx context.Context, name string, u *postgresURL, c Config) (*DB, error) {
	d := &DB{Name: name, place: u.place, Dialect: postgresDialect(1), config: c, url: u, pool: u.openPool()}
	exists, err := d.meet(ctx)
	if err == nil && !exists {
		err = &missingError{"the schema " + d.Schema + " of the " + name + " database " + u.place}
	}
	if err != nil {
		d.pool.Close()
		return nil, err
	}
	d.settings = d.setSchema()
	return d, nil
}

// openPostgres connects to the database and creates it and its schema if they are missing.
func openPostgres(ctx context.Context, name string, u *postgresURL, c Config) (*DB, error) {
	d := &DB{Name: name, place: u.place, Dialect: postgresDialect(c.Concurrency), config: c, url: u, pool: u.openPool()}
	exists, err := d.meet(ctx)
	if _, absent := errors.AsType[*missingError](err); absent {
		if err = createDatabase(ctx, name, u); err == nil {
			exists, err = d.meet(ctx)
		}
	}
	if err == nil && !exists {
		err = d.createSchema(ctx)
	}
	if err != nil {
		d.pool.Close()
		return nil, err
	}
	writer, reader := d.setTransactions()
	d.dialWriter = func(ctx context.Context) (link, error) { return d.dialPostgresWriter(ctx, writer) }
	d.dialReader = func(ctx context.Context) (link, error) { return d.dialPostgres(ctx, reader, d.mayRead) }
	d.readerPool = u.openPool()
	for _, p := range []*sql.DB{d.pool, d.readerPool} {
		p.SetMaxOpenConns(2)
		p.SetMaxIdleConns(1)
		p.SetConnMaxIdleTime(5 * time.Second) // used at the start and seldom afterwards
	}
	d.readerPool.SetMaxOpenConns(2 + d.config.Snapshots)
	return d, nil
}

// openPool opens connections without prepared statements, for database/sql.
func (u *postgresURL) openPool() *sql.DB {
	config := u.config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(Pin))
}

// unreachable is the error of the first connection, which decides whether the URL is valid. It is a
// *missingError when the database does not exist.
func (d *DB) unreachable(err error) error {
	switch code := pgCode(err); {
	case code == "3D000":
		return &missingError{"the " + d.Name + " database " + d.place}
	case code == forbidden:
		return event.Setup("the sessions of the %s database %s begin with a parameter that outboxweb needs otherwise and that its user may not set: %v; reset it, such as with alter role %s reset session_replication_role", d.Name, d.place, pgMessage(err), d.url.config.User)
	case strings.HasPrefix(code, "28"):
		return event.Setup("the server of the %s database %s refuses the login: %v", d.Name, d.place, pgMessage(err))
	}
	return event.Setup("cannot connect to the %s database %s: %v; is the server running, and is the URL right?", d.Name, d.place, pgMessage(err))
}

// createDatabase creates the database of the URL through the maintenance database of the
// server.
func createDatabase(ctx context.Context, name string, u *postgresURL) error {
	config := u.config.Copy()
	config.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		defer conn.Close(background)
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{u.config.Database}.Sanitize()+" encoding 'UTF8'")
	}
	if err != nil && pgCode(err) != "42P04" && pgCode(err) != "23505" { // another process created it first
		return event.Setup("the %s database %s does not exist and cannot be created: %v; create it with createdb --encoding=UTF8 --template=template0 %s", name, u.place, pgMessage(err), u.config.Database)
	}
	return nil
}

// meet makes the first connection of the pool, and detects the kind of server and whether the
// schema exists. It returns a *missingError when the database does not exist.
func (d *DB) meet(ctx context.Context) (exists bool, err error) {
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return false, d.unreachable(err)
	}
	defer conn.Close()
	var version int
	var backend, connected uint32
	var schema *string
	var usable bool
	err = conn.Raw(func(driver any) error {
		connected = driver.(*stdlib.Conn).Conn().PgConn().PID()
		return nil
	})
	if err != nil {
		return false, d.unreachable(err)
	}
	err = conn.QueryRowContext(ctx, `
select cast(current_setting('server_version_num') as int), pg_backend_pid(), coalesce(nullif($1, ''), current_schema()),
  exists (select 1 from pg_namespace where nspname = coalesce(nullif($1, ''), current_schema())),
  coalesce((select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = coalesce(nullif($1, ''), current_schema())), true),
  concat_ws(' ', pg_postmaster_start_time(), (select oid from pg_database where datname = current_database()), coalesce(nullif($1, ''), current_schema()))`,
		d.url.schema).Scan(&version, &backend, &schema, &exists, &usable, &d.identity)
	if err == nil {
		err = conn.QueryRowContext(ctx, selectServer).Scan(&d.server.encoding, &d.server.standby, &d.server.readOnly, &d.server.unsafe, &d.server.started)
	}
	switch {
	case err != nil:
		return false, event.Setup("cannot use the %s database %s: %v", d.Name, d.place, pgMessage(err))
	case version < 120000:
		return false, event.Setup("the server of the %s database %s is PostgreSQL %d; version 12 or later is needed", d.Name, d.place, version/10000)
	case d.server.unfit(d) != "":
		says := d.server.unfit(d)
		return false, event.Setup("%s: %s", d.place, strings.ToLower(says[:1])+strings.TrimSuffix(says[1:], "."))
	case schema == nil:
		return false, event.Setup("the %s database %s has no schema to work in; add search_path=NAME to its URL", d.Name, d.place)
	case !plainName.MatchString(*schema):
		return false, event.Setup("the schema %q of the %s database %s must be written in small letters, digits and underscores; add search_path=NAME to its URL", *schema, d.Name, d.place)
	case !usable:
		return false, event.Setup("the user of the URL may not use the schema %s of the %s database %s; "+anotherUser, *schema, d.Name, d.place)
	}
	d.Schema = *schema
	// The process id at the start of the connection and the one that answers differ only behind a
	// proxy. Behind one, a statement prepared by name may be sent to a server that does not have
	// it.
	if d.Proxied = backend != connected; d.Proxied && !d.url.mode {
		d.url.config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if d.Proxied && d.Name == d.config.Private {
		return false, event.Setup("the %s database %s is behind a connection pooler, and replays need connections of their own; give %s the address of the server itself, the journal may stay behind the pooler", d.Name, d.place, d.config.setting(d.Name+"-db"))
	}
	return exists, nil
}

func (d *DB) createSchema(ctx context.Context) error {
	_, err := d.pool.ExecContext(ctx, "create schema if not exists "+d.Schema, pgx.QueryExecModeSimpleProtocol)
	if err != nil && pgCode(err) != "23505" {
		return event.Setup("the schema %s of the %s database %s does not exist and cannot be created: %v", d.Schema, d.Name, d.place, pgMessage(err))
	}
	return nil
}

// setSchema is the first statements of a transaction on the pools, each on a line.
func (d *DB) setSchema() string {
	if d.Proxied {
		return pinTransaction + ";\nset local search_path to " + d.Schema
	}
	return "set local search_path to " + d.Schema
}

// Limits of transactions on PostgreSQL. A process that stalls in the middle of one, holding
// locks, must have been disconnected by the time its leases end.
const (
	statementLimit = 30 * time.Second
	readLimit      = 2 * time.Minute
	settleLimit    = 250 * time.Millisecond // appends queue behind a reader that waits for the lock around positions
)

// setting is a server parameter and its value.
type setting struct {
	name  string
	value any
}

// script is the statements that apply the settings.
func script(word string, settings []setting) string {
	var text strings.Builder
	for _, s := range settings {
		value := s.value
		if d, ok := value.(time.Duration); ok {
			value = max(1, d.Milliseconds())
		}
		fmt.Fprintf(&text, "; %s %s to %v", word, s.name, value)
	}
	return text.String()
}

// setTransactions sets how connections and each kind of transaction begin. Behind a proxy every
// setting is local to the transaction, since the next one may get another connection.
// Sequential scans are allowed for reads only: the planner would choose them for tables that
// were empty a moment ago, as queues often are. When no other plan exists its estimated cost is
// high, so compilation (JIT) is off.
func (d *DB) setTransactions() (writer, reader string) {
	common := []setting{{"search_path", d.Schema}, {"idle_in_transaction_session_timeout", d.config.Lease / 2}}
	writing := append(slices.Clone(common), setting{"statement_timeout", statementLimit}, setting{"lock_timeout", LockWait},
		setting{"enable_seqscan", "off"}, setting{"jit", "off"})
	reading := append(slices.Clone(common), setting{"statement_timeout", readLimit})
	d.settings = d.setSchema()
	write, read := "begin isolation level read committed", "begin isolation level repeatable read, read only"
	swap := write + script("set local", []setting{{"statement_timeout", readLimit}, {"lock_timeout", LockWait}})
	if d.Proxied {
		write += "; " + pinTransaction + script("set local", writing)
		read += "; " + pinTransaction + script("set local", reading)
		writing, reading = nil, nil
	}
	shared, alone := "; select pg_advisory_xact_lock_shared(", "; select pg_advisory_xact_lock("
	eventLimits := []setting{{"statement_timeout", d.config.EventTimeout}, {"lock_timeout", min(LockWait, d.config.EventTimeout/2)}}
	d.begins = [beginnings]string{
		BeginRead:        read,
		BeginWrite:       write,
		BeginHint:        write + "; set local synchronous_commit to off",
		BeginAppend:      write + shared + d.positionLock() + ")",
		BeginAppendAlone: write + alone + d.positionLock() + ")",
		BeginSettled:     write + script("set local", []setting{{"lock_timeout", settleLimit}}) + alone + d.positionLock() + ")",
		BeginApply:       write + script("set local", eventLimits) + shared + d.pauseLock() + ")",
		BeginPause:       write + alone + d.pauseLock() + ")",
		BeginReplay:      "begin" + script("set local", []setting{{"statement_timeout", d.config.EventTimeout}}),
		BeginCopy:        "begin isolation level repeatable read" + script("set local", []setting{{"statement_timeout", readLimit}}),
		BeginSwap:        swap + shared + d.pauseLock() + ")",
		BeginPlain:       "begin",
	}
	if d.Proxied {
		for i := range d.begins {
			d.begins[i] += askServer
		}
	}
	return script("set", writing), script("set", reading)
}

// positionLock is the key of the lock around drawing positions. Appends share it. A transaction
// that has it exclusively sees, from its next statement on, every event whose position was
// drawn before, and none is drawn until the transaction ends.
func (d *DB) positionLock() string { return d.advisory(0x6f757462) }

// pauseLock is the key of the apply lock: transactions that apply events share it, and pausing
// or resuming a projection for all campaigns takes it exclusively.
func (d *DB) pauseLock() string { return d.advisory(0x6f757464) }

// migrationLock is the key of the lock that a process has while it migrates the schema.
func (d *DB) migrationLock() string { return d.advisory(0x6f757465) }

func (d *DB) advisory(purpose int32) string {
	h := fnv.New32a()
	h.Write([]byte(d.Schema))
	return fmt.Sprintf("%d, %d", purpose, int32(h.Sum32()))
}

func pgCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// pgMessage is the server's message, or that of the innermost cause.
func pgMessage(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return errors.New(e.Message)
	}
	for {
		inner := errors.Unwrap(err)
		if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
			inner = many.Unwrap()[0]
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}

// postgresLink is a connection to PostgreSQL. The driver caches prepared statements where the
// connection allows it.
type postgresLink struct {
	conn    *pgx.Conn
	proxied bool
	server  string // see askServer; only behind a proxy
}

// dialPostgres opens a connection and applies the pins and settings to it, unless may refuses the
// server.
func (d *DB) dialPostgres(ctx context.Context, settings string, may func(server) error) (*postgresLink, error) {
	conn, err := pgx.ConnectConfig(ctx, d.url.config.Copy())
	if err != nil {
		return nil, err
	}
	l := &postgresLink{conn: conn, proxied: d.Proxied}
	results, err := conn.PgConn().Exec(ctx, selectServer+"; "+pinSession(conn)+settings).ReadAll()
	if err == nil {
		err = may(readServer(results[0].Rows[0]))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// close closes the connection, which may be lost already.
func (l *postgresLink) close() {
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
}

// answerLimit is how long to wait for the server's answer. The server times a statement out
// earlier, unless it is unreachable.
const answerLimit = readLimit + 10*time.Second

func (l *postgresLink) expectAnswer() {
	_ = l.conn.PgConn().Conn().SetDeadline(time.Now().Add(answerLimit))
}

// begin sends no cancel request when ctx is cancelled and a proxy is in between: a cancel
// request that arrives while its client disconnects crashes pgbouncer 1.18. The wait ends by
// its deadline.
func (l *postgresLink) begin(ctx context.Context, text string) error {
	if l.proxied {
		if deadline, ok := ctx.Deadline(); ok {
			var done context.CancelFunc
			ctx, done = context.WithDeadline(background, deadline)
			defer done()
		}
	}
	l.expectAnswer()
	if !l.proxied {
		return l.conn.PgConn().Exec(ctx, text).Close()
	}
	results, err := l.conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return err
	}
	return l.onServer(string(results[len(results)-1].Rows[0][0]))
}

var errRolledBack = errors.New("the server rolled the transaction back")

func (l *postgresLink) commit() error {
	l.expectAnswer()
	results, err := l.conn.PgConn().Exec(background, "commit").ReadAll()
	if err == nil && results[0].CommandTag.String() != "COMMIT" {
		err = errRolledBack
	}
	return err
}

func (l *postgresLink) rollback() error {
	l.expectAnswer()
	return l.conn.PgConn().Exec(background, "rollback").Close()
}

// exec leaves the deadline of ctx to the transaction's statement_timeout: a context that ends
// during the statement would cost the connection.
func (l *postgresLink) exec(_ context.Context, query string, args []any) (int64, error) {
	l.expectAnswer()
	tag, err := l.conn.Exec(background, query, args...)
	return tag.RowsAffected(), err
}

func (l *postgresLink) each(_ context.Context, scan func(Row) error, query string, args []any) error {
	l.expectAnswer()
	rows, err := l.conn.Query(background, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return scanAll(rows, scan)
}

// Journey is how many statements are sent at a time: few enough to fit into the buffers between
// the two programs, so that a process that stalls in the middle has sent either all of them or
// none.
const Journey = 256

func (l *postgresLink) run(b *Batch) (int, error) {
	done := 0
	for steps := range slices.Chunk(b.steps, Journey) {
		n, err := l.send(steps)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

func (l *postgresLink) send(steps []step) (done int, err error) {
	l.expectAnswer()
	var b pgx.Batch
	for i := range steps {
		b.Queue(steps[i].query, steps[i].args...)
	}
	results := l.conn.SendBatch(background, &b)
	for i := range steps {
		if err := receive(results, &steps[i]); err != nil {
			_ = results.Close()
			return i, err
		}
	}
	return len(steps), results.Close()
}

func receive(results pgx.BatchResults, s *step) error {
	if s.scan != nil {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		return scanAll(rows, s.scan)
	}
	tag, err := results.Exec()
	if err == nil && s.commits && tag.String() != "COMMIT" {
		err = errRolledBack
	}
	if err != nil || s.count == nil {
		return err
	}
	return oursOrNil(s.count(tag.RowsAffected()))
}

func (l *postgresLink) define(statement string) error {
	_, err := l.conn.Exec(background, statement, pgx.QueryExecModeSimpleProtocol)
	return err
}

func (l *postgresLink) prepare(query string) error {
	_, err := l.conn.Prepare(background, "", query)
	return err
}

func (l *postgresLink) classify(err error) verdict { return verdictOf(pgCode(err), l.conn.IsClosed()) }

// verdictOf follows the SQLSTATE classes (PostgreSQL, appendix A). The code is empty for an error that is
// not the server's.
func verdictOf(code string, closed bool) verdict {
	class := code[:min(2, len(code))]
	v := verdict{late: code == "57014", full: code == "53100", damaged: code == "XX001" || code == "XX002", taken: code == "23505"}
	v.lost = closed || slices.Contains([]string{"08", "57"}, class) && !v.late || slices.Contains([]string{"25006", "25P03"}, code)
	// These codes concern the statement alone: a limit set for it, or an internal error of the
	// server.
	itsOwn := code == "53400" || code == "XX000"
	contended := class == "40" || class == "53" || code == "55P03"
	v.busy = v.lost || contended && !itsOwn
	v.fatal = v.busy || slices.Contains([]string{"58", "XX"}, class) && !itsOwn || code == "25P02"
	return v
}

// postgresAway is the busy verdict of classify for an error without its connection.
func postgresAway(err error) bool {
	if code := pgCode(err); code != "" {
		return verdictOf(code, false).busy
	}
	var gone net.Error
	return pgconn.SafeToRetry(err) || errors.As(err, &gone) && !errors.Is(err, context.DeadlineExceeded) || slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone},
		func(lost error) bool { return errors.Is(err, lost) })
}
