package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// secret is the password in the URLs of these tests; no error may contain it.
const secret = "geheim"

// asUser is a URL with another user and a password.
func asUser(raw, user string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	u.User = url.UserPassword(user, secret)
	return u.String()
}

// setupWithoutSecret is setup for options with the password in their URLs.
func setupWithoutSecret(t *testing.T, o store.Options, fragments ...string) {
	r := setup(t, o, fragments...)
	for _, hidden := range []string{secret, "SQLSTATE", "pgconn", "%!"} {
		must.Hold(t, !strings.Contains(r.Error(), hidden), "the sentence shows %s: %s", hidden, r.Error())
	}
}

func TestPostgresOpen_createsDatabasesAndSchemas(t *testing.T) {
	t.Parallel()
	database := storetest.UnusedDatabase(t, `Opened "here" ü%20?`)
	for _, c := range []struct {
		pair    dbtest.Pair
		schemas []string // with tables in the journal's database
	}{
		{dbtest.Pair{Journal: dbtest.InSchema(database, "journal_1"), Projections: dbtest.InSchema(database, "_projections")}, []string{"_projections", "journal_1"}},
		{dbtest.Pair{Journal: storetest.UnusedDatabase(t, "two_journal"), Projections: storetest.UnusedDatabase(t, "two_projections")}, []string{"public"}},
	} {
		f := openPair(t, c.pair, storetest.NewClock())
		f.AppendN("a", 2)
		f.DrainsSoundly()
		mustBeMigrated(t, f.Store)
		must.Equal(t, storetest.Texts(t, f.JournalDB, `select distinct schemaname from pg_tables where tablename like '%goose%' order by 1`), c.schemas, "schemas with tables")
	}
}

func TestPostgresOpen_withoutMigratingRefusesWhatIsMissingOrOlder(t *testing.T) {
	f := own(t)
	noMigrate := func(p dbtest.Pair) store.Options { return asTheyAre(storetest.OptionsFor(p)) }
	missing := storetest.UnusedDatabase(t, "never_made")
	setup(t, noMigrate(dbtest.Pair{Journal: missing, Projections: dbtest.InSchema(missing, "projections")}), "the journal database", "never_made", "does not exist", "--journal-db", "outboxweb migrate")
	s := must.Get(store.Open(t.Context(), noMigrate(f.Pair))).Or(t)
	s.Close()
	f.Unchanged(func() {
		o := noMigrate(f.Pair)
		o.Projections = dbtest.InSchema(o.Projections, "elsewhere")
		setup(t, o, "the schema elsewhere of the projections database", "does not exist", "--projections-db", "outboxweb migrate")
	})
	must.Equal(t, f.Number(`select count(*) from pg_namespace where nspname = 'elsewhere'`), 0, "a refused start made a schema")
	f.Exec(`create schema elsewhere`)
	o := noMigrate(f.Pair)
	o.Projections = dbtest.InSchema(o.Projections, "elsewhere")
	setup(t, o, "the projections database", "is empty", "outboxweb migrate")
	must.Equal(t, len(storetest.Texts(t, f.JournalDB, `select tablename from pg_tables where schemaname = 'elsewhere'`)), 0, "a refused start left")
}

func TestPostgresOpen_refusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	journal := dbtest.New(t).Journal
	there := asUser(journal, "postgres")
	in := func(schema string) string { return dbtest.InSchema(there, schema) }
	const nobody = "nobody_at_all"
	poor := storetest.Role(t, "poor")
	u := must.Get(url.Parse(there)).Or(t)
	u.Path = "/never_made_by_the_poor"
	missing := asUser(u.String(), poor)
	refuseToOpen(t, map[string]unusable{
		"no server":        {"postgres://ana:" + secret + "@localhost:1/x", in("p"), []string{"cannot connect to the journal database postgres://ana@localhost:1/x", "connection refused"}},
		"no socket":        {"postgres://ana:" + secret + "@/x?host=/nowhere", in("p"), []string{"cannot connect to the journal database", "no such file"}},
		"another scheme":   {"mysql://ana:" + secret + "@localhost/x", in("p"), []string{"--journal-db", "mysql://ana@localhost/x", "postgres://"}},
		"words":            {"host=localhost password=" + secret, in("p"), []string{"--journal-db", "postgres://"}},
		"no port":          {"postgres://ana:" + secret + "@localhost:x/x", in("p"), []string{"--journal-db", "is not a PostgreSQL URL"}},
		"unknown option":   {in("j"), "postgres://ana@localhost/x?password=" + secret + "&sslmode=perhaps", []string{"--projections-db", "postgres://ana@localhost/x?sslmode=perhaps", "is not a PostgreSQL URL"}},
		"unknown user":     {dbtest.InSchema(asUser(there, nobody), "journal"), in("p"), []string{"refuses the login", nobody, "does not exist"}},
		"no right to make": {missing, in("p"), []string{"never_made_by_the_poor", "does not exist and cannot be created: permission denied", "createdb --encoding=UTF8 --template=template0 never_made_by_the_poor"}},
		"no right to add":  {dbtest.InSchema(asUser(there, poor), "new"), in("p"), []string{"the schema new of the journal database", "cannot be created", "permission denied"}},
		"no right to use":  {dbtest.InSchema(asUser(there, poor), "journal"), in("p"), []string{"may not use the schema journal of the journal database", "connect as the user who runs outboxweb serve"}},
		"capital letters":  {in("Journal"), in("p"), []string{"--journal-db", "search_path=Journal", "one schema"}},
		"several schemas":  {in("j"), in("p,public"), []string{"--projections-db", "search_path=p,public", "one schema"}},
		"quoted schema":    {in(`"j"`), in("p"), []string{"--journal-db", `search_path="j"`}},
		"spaces":           {in("j; drop table x"), in("p"), []string{"--journal-db", "small letters"}},
		"a word of SQL":    {in("order"), in("p"), []string{"the journal database"}},
		"one schema twice": {in("journal"), journal, []string{"--journal-db and --projections-db", "same schema journal", "search_path=projections"}},
		"no schema twice":  {dbtest.With(there, "search_path", ""), dbtest.With(journal, "search_path", ""), []string{"same schema public", "search_path=projections"}},
		"exchanged":        {in("projections"), in("journal"), []string{"is not a journal database", "swapped"}},
	})
}

// through opens a store on the journal of f through a proxy.
func (f *fixture) through(pooled func(string) string, change ...func(*store.Options)) *fixture {
	o := store.Options{Journal: pooled(f.Pair.Journal), Projections: f.Pair.Projections, Now: f.Clock.Now}
	for _, c := range change {
		c(&o)
	}
	s := must.Get(store.Open(f.Ctx, o)).Or(f.TB)
	f.TB.Cleanup(func() { s.Close() })
	return around(storetest.Around(f.TB, s, f.Pair, f.Clock))
}

func TestPostgresPooler_carriesEveryStatementAndEverySequenceIsRaised(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	s := f.through(dbtest.Server().Pooler(t))
	for s, want := range map[*fixture]bool{f: false, s: true} {
		journal, projections := s.Proxied()
		must.Hold(t, journal == want && !projections, "a proxy before the journal: %v, before the projections: %v, want %v, and none", journal, projections, want)
	}
	s.everything()
	f.raisesSequences()
}

// raisesSequences fails unless a process that starts raises every sequence, after everything was used: every numbered table
// of both databases is looked after, whatever a migration adds.
func (f *fixture) raisesSequences() {
	numbers := func() []string {
		return storetest.Texts(f.TB, f.JournalDB, `select concat_ws(' ', schemaname, sequencename, coalesce(last_value, 0)) from pg_sequences where schemaname in ('journal', 'projections') order by 1`)
	}
	before := numbers()
	f.Exec(lowerSequences)
	var logged bytes.Buffer
	s := f.Beside(func(o *store.Options) { o.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	must.OK(f.TB, s.Examine(f.Ctx))
	raised := 0
	for i, now := range numbers() {
		if highest := strings.Fields(before[i]); now < before[i] && highest[2] != "0" && !strings.HasSuffix(now, " 0") {
			f.TB.Errorf("%s is at %s", before[i], now)
		} else if !strings.HasSuffix(now, " 0") {
			raised++
		}
	}
	n := strings.Count(logged.String(), "a sequence was behind")
	must.Hold(f.TB, n == raised && n >= 3, "%d sequences were raised and %d told of:\n%s", raised, n, logged.String())
	must.Hold(f.TB, strings.Contains(logged.String(), "fsync=off"), "nothing was told of fsync=off:\n%s", logged.String())
}

// Whatever opens the databases refuses, before anything is created.
func TestPostgresPooler_isRefusedBeforeTheProjections(t *testing.T) {
	there := own(t).Pair
	pooled := dbtest.Server().Pooler(t)
	for name, o := range map[string]store.Options{
		"both":          {Journal: pooled(there.Journal), Projections: pooled(there.Projections)},
		"projections":   {Journal: there.Journal, Projections: pooled(there.Projections)},
		"of a command":  {Journal: there.Journal, Projections: pooled(there.Projections), NoCreate: true, NoMigrate: true},
		"not there yet": {Journal: there.Journal, Projections: dbtest.InSchema(pooled(dbtest.With(there.Projections, "search_path", "")), "new")},
		"embedded":      {Journal: there.Journal, Projections: pooled(there.Projections), Embedded: true},
	} {
		t.Run(name, func(t *testing.T) {
			flag := "--projections-db"
			if o.Embedded {
				flag = "Config.ProjectionsDB"
			}
			setupWithoutSecret(t, o, "the projections database", "behind a connection pooler", "give "+flag+" the address of the server itself")
		})
	}
}

func TestPostgresPooler_carriesManyAtOnce(t *testing.T) {
	f := own(t)
	pooled := dbtest.Server().Pooler(t)
	first, second := f.through(pooled), f.through(pooled)
	woken := f.listens()
	const campaigns, each = 5, 12
	workers := map[*fixture]outbox.Worker{first: one, second: two}
	storetest.Everybody(t, []*fixture{first, second}, campaigns*each/2, map[string]func(*fixture, int) error{
		"append": func(s *fixture, i int) error {
			return storetest.No(s.Append(s.Ctx, store.Append{Events: []event.Event{storetest.Event(fmt.Sprint("c-", i%campaigns), "counted")}}))
		},
		"work": func(s *fixture, _ int) error {
			claims, err := s.Claim(s.Ctx, workers[s], outbox.ClaimLimits{Rows: 20, Lease: lease})
			for _, c := range claims {
				reached, failed := s.ApplyClaim(c, c.Last)
				must.Equal(t, reached, c.Last, "apply", "reached")
				err = errors.Join(err, failed, storetest.No(s.Settle(s.Ctx, workers[s], []outbox.Result{{Claim: c, Applied: c.Last}})))
			}
			return err
		},
	})
	must.Eventually(f.TB, "a hint from beyond the proxy", func() bool { return woken.Load() > 0 })
	first.DrainsSoundly()
	for i := range campaigns {
		must.Equal(t, second.MustCampaign(fmt.Sprint("c-", i)).AppliedSeq, each, "campaign")
	}
}

// A transaction has its limits on every connection, and passes none of them on to the next user of a pooled connection.
func TestPostgresTransactions_haveTheirLimits(t *testing.T) {
	limits := func(o *store.Options) { o.EventTimeout, o.Lease = 4*time.Second, 40*time.Second }
	f := own(t, limits)
	pooled := dbtest.Server().Pooler(t)
	f.Exec(`create table limits (name text, setting text)`)
	const insert = `
insert into limits (name, setting)
select name, setting
from pg_settings
where name in ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'enable_seqscan', 'transaction_isolation')`
	want := []string{"enable_seqscan off", "idle_in_transaction_session_timeout 20000", "lock_timeout 10000", "statement_timeout 30000", "transaction_isolation read committed"}
	for name, s := range map[string]*fixture{"directly": f, "through a proxy": f.through(pooled, limits)} {
		f.Exec(`delete from limits`)
		err := s.Journal().Write(f.Ctx, func(tx *store.Tx) error { _, err := tx.Exec(insert); return err })
		must.Hold(t, err == nil, "%s: %v", name, err)
		must.Equal(t, storetest.Texts(t, f.JournalDB, `select name || ' ' || setting from limits order by 1`), want, name)
	}
	conn := storetest.Connect(f.TB, dbtest.With(pooled(f.Pair.Journal), "search_path", ""))
	for range 8 {
		var left int
		err := conn.QueryRow(f.Ctx, `select count(*) from pg_settings where source = 'session' and name in ('statement_timeout', 'lock_timeout', 'search_path', 'enable_seqscan')`, pgx.QueryExecModeSimpleProtocol).Scan(&left)
		must.Hold(t, err == nil && left == 0, "%d settings were left on a connection, %v", left, err)
	}
	impatient := storetest.Connect(f.TB, f.Pair.Journal+"&idle_session_timeout=1min&idle_in_transaction_session_timeout=1min")
	must.OK(t, sqldb.Pin(f.Ctx, impatient))
	for _, limit := range []string{"idle_session_timeout", "idle_in_transaction_session_timeout"} {
		var value string
		must.OK(t, impatient.QueryRow(f.Ctx, `show `+limit).Scan(&value))
		must.Equal(t, value, "0", limit, "of a pinned session")
	}
}

// A user who may read only some tables gets a clear message.
func TestPostgresForbidden_saysWhichRightIsMissing(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	reader := storetest.Role(t, "reader")
	f.Exec(`grant usage on schema journal, projections to ` + reader)
	t.Cleanup(func() { f.Exec(`drop owned by ` + reader) })
	o := asTheyAre(store.Options{Journal: asUser(f.Pair.Journal, reader), Projections: asUser(f.Pair.Projections, reader)})
	setupWithoutSecret(t, o, "may not read the version of the journal database", "permission denied for table goose_db_version", "connect as the user who runs outboxweb serve")
	f.Exec(`grant select on journal.goose_db_version, projections.goose_db_version to ` + reader)
	s := must.Get(store.Open(t.Context(), o)).Or(t)
	defer s.Close()
	_, err := s.Summary(t.Context())
	r := refused(t, sqldb.Forbidden(err), event.ErrSetup, "permission denied for table", "connect as the user who runs outboxweb serve")
	must.Hold(t, !strings.Contains(r.Error(), "SQLSTATE"), "the sentence shows SQLSTATE: %s", r.Error())
}

func TestPostgresOpen_refusesAServerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	there := dbtest.New(t).Journal
	in := func(name, rest string, statements ...string) string {
		u := must.Get(url.Parse(storetest.UnusedDatabase(t, name))).Or(t)
		storetest.AtServer(t, append([]string{`create database ` + name + ` template template0 ` + rest}, statements...)...)
		return asUser(u.String(), "postgres")
	}
	latin := in("latin", `encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'`)
	readOnly := in("read_only", ``, `alter database read_only set default_transaction_read_only = on`)
	role := storetest.Role(t, "without_triggers")
	storetest.AtServer(t, `alter role `+role+` set session_replication_role = replica`)
	refuseToOpen(t, map[string]unusable{
		"another encoding":            {dbtest.InSchema(latin, "j"), dbtest.InSchema(latin, "p"), []string{"latin", "the journal database has the encoding LATIN1", "createdb --encoding=UTF8"}},
		"another encoding, converted": {dbtest.InSchema(latin, "j") + "&client_encoding=UTF8", dbtest.InSchema(latin, "p"), []string{"encoding LATIN1"}},
		"of the projections":          {there, dbtest.InSchema(latin, "p"), []string{"the projections database has the encoding LATIN1"}},
		"read-only":                   {dbtest.InSchema(readOnly, "j"), dbtest.InSchema(readOnly, "p"), []string{"the journal database takes no writes", "alter role postgres reset default_transaction_read_only"}},
		"without triggers":            {dbtest.InSchema(asUser(there, role), "journal"), dbtest.InSchema(there, "projections"), []string{"session_replication_role", "alter role without_triggers reset"}},
	})
}

// A fail-over may leave the URL at a server that is a standby: it is named while the program waits.
func TestPostgresStandby_isNamedAtTheStartAndAfterAReconnect(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start("wal_level=replica", "max_wal_senders=2", "hot_standby=on")).Or(t)
	t.Cleanup(func() { server.Stop() })
	address := server.URL("life")
	pair := dbtest.Pair{Journal: dbtest.InSchema(address, "journal"), Projections: dbtest.InSchema(address, "projections")}
	f := openPair(t, pair, storetest.NewClock())
	f.AppendN("a", 2)
	hurried := f.beside(func(o *store.Options) { o.Wait = time.Second })
	f.Exec(`copy (select '') to program 'cat > standby.signal'`)
	must.OK(t, server.Restart(f.Ctx))
	must.Eventually(t, "an append is refused, and the standby named", func() bool {
		_, err := hurried.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted")}})
		return errors.Is(err, event.ErrBusy) && strings.Contains(err.Error(), "is a standby")
	})
	gone, cancel := context.WithCancel(f.Ctx)
	cancel() // a caller that waits would wait for a primary
	reasons := hurried.Ready(gone)
	must.Hold(t, strings.Contains(fmt.Sprint(reasons), "the server of the journal database is a standby"), "ready at a standby: %q", reasons)
	setup(t, storetest.OptionsFor(pair), "is a standby", "target_session_attrs=read-write")
	promoted := storetest.Connect(t, address)
	storetest.Run(t, promoted, `select pg_promote()`)
	f.AppendN("a", 1)
	must.Eventually(t, "it is ready once it is promoted", func() bool { return len(hurried.Ready(f.Ctx)) == 0 })
}

// What was acknowledged is on disk, whatever the role says about others.
func TestPostgresCommits_areDurableWhateverTheRoleSays(t *testing.T) {
	f := own(t)
	for given, want := range map[string]string{"off": "on", "local": "on", "remote_write": "remote_write", "remote_apply": "remote_apply", "on": "on"} {
		f.EveryConnection(`set synchronous_commit = ` + given)
		var got string
		err := f.Journal().Write(f.Ctx, func(tx *store.Tx) error {
			return storetest.No(tx.One([]any{&got}, `select current_setting('synchronous_commit')`))
		})
		must.Hold(t, err == nil && got == want, "%s is %q (%v), want %s", given, got, err, want)
	}
}
