package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/rogpeppe/go-internal/testscript"
)

// program is the tests of this package, which share some things.
type program struct{ *testing.M }

// shared ends what tests share; it is used by a test at a time.
var shared struct {
	sync.Mutex
	ends []func() error
}

func share(end func() error) {
	shared.Lock()
	defer shared.Unlock()
	shared.ends = append(shared.ends, end)
}

func (p program) Run() int {
	debug.SetGCPercent(2000) // a parser of the command line for every command is much that is soon garbage
	code := p.M.Run()
	for _, end := range shared.ends {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func TestMain(m *testing.M) {
	testscript.Main(program{m}, map[string]func(){"outboxweb": func() { os.Exit(runMain()) }, "racesockets": raceSockets, "commandline": commandLine})
}

func here(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(ctx, args, streams{in: strings.NewReader(""), out: &out, err: &errs})
	return out.String(), errs.String(), code
}

// TestScripts runs the program as its users do. Beside testscript's own commands there are:
//
//	exits CODE COMMAND…   runs a command that must end with this exit code; those of this program in one process
//	                      for each script, since starting one takes longer than most of them, others in their own
//	wrong ARG…            runs this program in the tests' process, which must refuse its arguments: for those that name no files
//	sql FILE STATEMENT    changes a database behind the program's back
//	drain [FLAG…]         serves until nothing can be applied any more
//
// and, in each directory, files that a script cannot contain: huge.jsonl with a line of 200 kB,
// utf8.jsonl with a byte that is not UTF-8.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               scriptFiles,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": scriptExits, "wrong": scriptWrong, "sql": scriptSQL, "drain": scriptDrain},
	})
}

// typed is a command line with the variables of its environment that have a value, and said what comes of it.
type typed struct {
	Args []string
	Env  map[string]string
}

type said struct {
	Out, Errs string
	Code      int
}

// commandLine runs the command lines that it reads, one after the other.
func commandLine() {
	debug.SetGCPercent(2000)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for c := (typed{}); in.Decode(&c) == nil; c = (typed{}) {
		for _, name := range knownVariables() {
			os.Unsetenv(name)
			if value := c.Env[name]; value != "" {
				os.Setenv(name, value)
			}
		}
		var s said
		s.Out, s.Errs, s.Code = here(context.Background(), c.Args...)
		if out.Encode(s) != nil {
			return
		}
	}
}

// knownVariables are the names of those that the program knows.
var knownVariables = sync.OnceValue(func() (all []string) {
	for _, flag := range configuring(newParser(new(cli), streams{}).Model) {
		all = append(all, flag.Envs[0], flag.Envs[0]+fileSuffix)
	}
	return all
})

// process is the one that runs the commands of a script.
type process struct {
	to   *json.Encoder
	from *json.Decoder
}

func startProcess(env *testscript.Env) error {
	cmd := exec.Command("commandline")
	cmd.Dir, cmd.Env, cmd.Stderr = env.WorkDir, env.Vars, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	env.Values[process{}] = process{json.NewEncoder(in), json.NewDecoder(out)}
	env.Defer(func() { in.Close(); _ = cmd.Wait() })
	return cmd.Start()
}

func (p process) run(ts *testscript.TestScript, args []string) (code int) {
	c := typed{Args: args, Env: map[string]string{}}
	for _, name := range knownVariables() {
		c.Env[name] = ts.Getenv(name)
	}
	var s said
	ts.Check(p.to.Encode(c))
	ts.Check(p.from.Decode(&s))
	_, err := io.WriteString(ts.Stdout(), s.Out)
	ts.Check(err)
	_, err = io.WriteString(ts.Stderr(), s.Errs)
	ts.Check(err)
	return s.Code
}

func scriptFiles(env *testscript.Env) error {
	const event = `{"campaign_id":"c","event_type":"note.added","payload":{"text":"%"}}` + "\n"
	huge := strings.Replace(event, "%", "", 1) + strings.Replace(event, "%", strings.Repeat("x", 200_000), 1)
	return errors.Join(startProcess(env),
		os.WriteFile(filepath.Join(env.WorkDir, "huge.jsonl"), []byte(huge), 0o600),
		os.WriteFile(filepath.Join(env.WorkDir, "utf8.jsonl"), []byte(strings.Replace(event, "%", "\xff", 1)), 0o600))
}

func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if args[1] == "outboxweb" {
		got = ts.Value(process{}).(process).run(ts, args[2:])
	} else if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptWrong(ts *testscript.TestScript, _ bool, args []string) {
	if code := run(context.Background(), args, streams{in: strings.NewReader(""), out: ts.Stdout(), err: ts.Stderr()}); code != exitUsage {
		ts.Fatalf("exit code %d, want %d", code, exitUsage)
	}
}

func scriptSQL(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0])+"?_pragma=busy_timeout(60000)")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

func scriptDrain(ts *testscript.TestScript, _ bool, args []string) {
	databases := []string{"--journal-db", "sqlite:" + ts.MkAbs("data/journal.db"), "--projections-db", "sqlite:" + ts.MkAbs("data/projections.db")}
	ctx, stop := context.WithTimeout(context.Background(), must.Patience)
	defer stop()
	var stderr string
	ended := make(chan int, 1)
	go func() {
		flags := append([]string{"serve", "--listen", "127.0.0.1:0", "--poll-interval", "10ms", "--max-attempts", "2", "--retry-base", "1ms"}, databases...)
		var code int
		_, stderr, code = here(ctx, append(flags, args...)...)
		ended <- code
	}()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !settled(ts, append([]string{"report", "--json"}, databases...)) {
		select {
		case code := <-ended:
			ts.Fatalf("serve ended with %d: %s", code, stderr)
		case <-ctx.Done():
			<-ended
			ts.Fatalf("not drained in time: %s", stderr)
		case <-look.C:
		}
	}
	stop()
	if code := <-ended; code != 0 {
		ts.Fatalf("serve ended with %d: %s", code, stderr)
	}
}

func settled(ts *testscript.TestScript, args []string) bool {
	stdout, stderr, code := here(context.Background(), args...)
	if code == exitUsage { // the server has not created its databases yet
		return false
	}
	if code != 0 {
		ts.Fatalf("report ended with %d: %s", code, stderr)
	}
	var r report
	ts.Check(json.Unmarshal([]byte(stdout), &r))
	return r.Summary.Counts.Processing == 0 && r.Summary.Campaigns.Lagging == r.Summary.Campaigns.Blocked
}
