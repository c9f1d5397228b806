package enginetest

import (
	"bufio"
	"context"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"modernc.org/sqlite"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Main runs the tests of a package on both databases; see dbtest.Main. differs matches the tests in which PostgreSQL behaves differently.
func Main(m *testing.M, differs string) int {
	if askedByServer() {
		return askTest()
	}
	sqlite.MustRegisterScalarFunction("probe", -1, probeOnSQLite)
	sqlite.RegisterConnectionHook(arrange)
	for name, value := range map[string]string{"rapid.steps": "25", "rapid.nofailfile": "true", "rapid.shrinktime": "5s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	code := dbtest.Main(m, differs, prepare)
	onPostgres.close()
	return storetest.NoLeak(code)
}

// prepare fills the pair that every test's pair is copied from.
func prepare(p dbtest.Pair) error {
	if dbtest.Postgres() { // opening the two stores of a history takes several times as long there
		dbtest.Checks(size.Of(10, 2, 20)) // in a short run rapid tries a fifth
	} else {
		dbtest.Checks(size.Of(10, 7, 60))
	}
	if err := storetest.Prepare(p); err != nil || !dbtest.Postgres() {
		return err
	}
	return onPostgres.open(p.Projections)
}

const (
	// Hurried in the path of a database limits its waits for locks.
	Hurried = "hurried"
	// Cramped in the path of a database limits its size.
	Cramped      = "cramped"
	crampedPages = 150
	CrampedBytes = crampedPages * 4096
)

// arrange is called for every new connection. For paths with Hurried or Cramped it sets limits at which lock conflicts and full disks show quickly.
func arrange(c sqlite.ExecQuerierContext, dsn string) error {
	pragma := ""
	switch {
	case strings.Contains(dsn, Hurried):
		pragma = "pragma busy_timeout = 50"
	case strings.Contains(dsn, Cramped):
		pragma = fmt.Sprintf("pragma max_page_count = %d", crampedPages)
	default:
		return nil
	}
	_, err := c.ExecContext(context.Background(), pragma, nil)
	return err
}

// A prober is called by probe(KEY, …) in a projection's statement, inside the transaction that applies the event. It gets the arguments after the key as
// texts; its result is the function's value.
type prober = func(args []string) (string, error)

var probes sync.Map // of probers, by key

// OnProbe makes probe(key, …) call f until the test ends.
func OnProbe(tb testing.TB, key string, f prober) {
	_, taken := probes.LoadOrStore(key, f)
	must.Need(tb, !taken, "probe %q is taken", key)
	tb.Cleanup(func() { probes.Delete(key) })
}

func probe(args []string) (string, error) {
	f, ok := probes.Load(args[0])
	if !ok {
		return "", fmt.Errorf("no probe %v", args[0])
	}
	return f.(prober)(args[1:])
}

func probeOnSQLite(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	texts := make([]string, len(args))
	for i, arg := range args {
		texts[i] = fmt.Sprint(arg)
	}
	return probe(texts)
}

// On PostgreSQL the server calls back by running this program, which connects to the test process on a socket beside itself.
const (
	probeProgram = "probe"
	probeSocket  = "probe.socket"
)

// probeFunction passes its arguments on and returns the result or raises the error. Both directions are hex-encoded, so that any text passes unchanged.
const probeFunction = `
create table public.probe_answers (answer text);

create function probe(variadic args text[]) returns text language plpgsql as $$
declare
  said text;
begin
  execute format('copy public.probe_answers from program %L', '{program} ' || encode(convert_to(array_to_json(args)::text, 'UTF8'), 'hex'));
  delete from public.probe_answers returning convert_from(decode(answer, 'hex'), 'UTF8') into strict said;
  if said like '!%' then
    raise exception '%', substr(said, 2);
  end if;
  return substr(said, 2);
end
$$`

// askedByServer reports whether this process was started by the database's server.
func askedByServer() bool { return filepath.Base(os.Args[0]) == probeProgram }

// askTest prints the test process's answer and returns the exit code.
func askTest() int {
	conn, err := net.Dial("unix", filepath.Join(filepath.Dir(os.Args[0]), probeSocket))
	if err == nil {
		_, err = fmt.Fprintln(conn, os.Args[1])
	}
	if err == nil {
		_, err = io.Copy(os.Stdout, conn)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// onPostgres answers the server's probes.
var onPostgres answering

type answering struct {
	dir       string
	listener  net.Listener
	answering sync.WaitGroup
}

// open creates the function probe in the database. Program and socket are in a directory of their own in the server's, which its user can read and which
// is removed with it.
func (a *answering) open(database string) error {
	address, err := url.Parse(dbtest.Server().URL("postgres"))
	if err != nil {
		return err
	}
	if a.dir, err = os.MkdirTemp(address.Query().Get("host"), "probes"); err != nil {
		return err
	}
	if err := os.Chmod(a.dir, 0o777); err != nil { // the server's user removes it with its own
		return err
	}
	program, socket := filepath.Join(a.dir, probeProgram), filepath.Join(a.dir, probeSocket)
	if err := copyThisProgram(program); err != nil {
		return err
	}
	if a.listener, err = net.Listen("unix", socket); err != nil {
		return err
	}
	a.answering.Go(a.accept)
	if err := os.Chmod(socket, 0o777); err != nil {
		return err
	}
	conn, err := pgx.Connect(context.Background(), database)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), strings.ReplaceAll(probeFunction, "{program}", program), pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(context.Background()))
}

func copyThisProgram(to string) error {
	this, err := os.Executable()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(this)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

func (a *answering) accept() {
	for {
		conn, err := a.listener.Accept()
		if err != nil {
			return
		}
		a.answering.Go(func() {
			defer conn.Close()
			if err := answer(conn); err != nil {
				fmt.Fprintln(os.Stderr, "answer a probe:", err)
			}
		})
	}
}

// answer answers one probe: "=" and the value, or "!" and the error's text.
func answer(conn net.Conn) error {
	question, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	text, err := hex.DecodeString(strings.TrimSpace(question))
	if err != nil {
		return err
	}
	var args []string
	if err := json.Unmarshal(text, &args); err != nil {
		return err
	}
	value, err := probe(args)
	reply := "=" + value
	if err != nil {
		reply = "!" + err.Error()
	}
	_, err = fmt.Fprintln(conn, hex.EncodeToString([]byte(reply)))
	return err
}

func (a *answering) close() {
	if a.listener != nil {
		a.listener.Close()
		a.answering.Wait()
		os.RemoveAll(a.dir)
	}
}
