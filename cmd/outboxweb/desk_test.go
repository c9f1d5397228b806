package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// emptyPair is a directory with a migrated, empty pair of databases, which is copied, since migrating takes longer.
var emptyPair = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "empty")
	if err != nil {
		return "", err
	}
	share(func() error { return os.RemoveAll(dir) })
	p := dbtest.Files(dir)
	st, err := store.Open(context.Background(), store.Options{Journal: p.Journal, Projections: p.Projections})
	if err != nil {
		return "", err
	}
	return dir, st.Close()
})

// newPair puts a migrated, empty pair of databases into a directory.
func newPair(t testing.TB, dir string) dbtest.Pair {
	must.OK(t, os.CopyFS(dir, os.DirFS(must.Get(emptyPair()).Or(t))))
	return dbtest.Files(dir)
}

// desk is a journal with projections, and the commands that are run on it.
type desk struct {
	t     *testing.T
	st    *engine.Engine
	set   *projection.Set
	w     *worker.Worker
	dir   string
	pair  dbtest.Pair
	flags []string // that name its databases and, last, its projections
	mode  campaign.Mode
	in    io.Reader // of commands
}

// newDesk is for a test that runs beside others: on the projections log and names, if it has any, or the built-in
// ones.
func newDesk(t *testing.T, projections ...string) *desk {
	t.Parallel()
	d := &desk{t: t, dir: t.TempDir(), in: strings.NewReader("")}
	from := "builtin:campaigns"
	for i, text := range projections {
		from = d.dir
		d.write([]string{"log.sql", "names.sql"}[i], text)
	}
	d.pair = newPair(t, d.dir)
	d.flags = []string{"--journal-db", d.pair.Journal, "--projections-db", d.pair.Projections, "--projections", from}
	d.set = must.Get(projection.Load("sqlite", from)).Or(t)
	d.open(event.Retry{MaxAttempts: 1})
	must.OK(t, runs.Install(t.Context(), d.st.Store, d.set))
	return d
}

func (d *desk) open(retry event.Retry) {
	st := engine.Wire(must.Get(store.Open(d.t.Context(), store.Options{Journal: d.pair.Journal, Projections: d.pair.Projections, NoMigrate: true, Retry: retry, Mode: d.mode})).Or(d.t))
	d.t.Cleanup(func() { st.Close() })
	d.st, d.w = st, worker.New(worker.Config{Queue: st.Queue, Set: d.set, Mode: st.Mode(), Logger: slog.New(slog.DiscardHandler)})
}

func (d *desk) write(name, text string) *desk {
	must.OK(d.t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	return d
}

// logging is a projection with a row for every event.
func logging(name string) string {
	return strings.ReplaceAll(`-- projection: P
-- tables: P
-- schema
create table P (campaign_id text not null, seq bigint not null, primary key (campaign_id, seq));
-- on: *
insert into P (campaign_id, seq) values (:campaign_id, :seq);
`, "P", name)
}

// needing is a projection that cannot apply an event without a field.
func needing(name, field string) string {
	return strings.ReplaceAll(logging(name), ":seq)", ":payload."+field+"!)")
}

func lenient(text string) string {
	return strings.Replace(text, "-- tables", "-- on-failure: quarantine\n-- tables", 1)
}

// has appends an event with each of the payloads to a campaign.
func (d *desk) has(campaign string, payloads ...string) *desk {
	var events []event.Event
	for _, payload := range payloads {
		events = append(events, event.Event{CampaignID: campaign, EventType: "noted", Payload: []byte(payload)})
	}
	must.Get(d.st.Append(d.t.Context(), store.Append{Events: events})).Or(d.t)
	return d
}

// applied appends an event with each of the payloads to a campaign, and applies what can be.
func (d *desk) applied(campaign string, payloads ...string) *desk {
	d.has(campaign, payloads...)
	d.work()
	return d
}

// work lets a worker and the running operations do what is due.
func (d *desk) work() {
	for more := true; more; {
		stepped := must.Get(d.st.Operations.Step(d.t.Context())).Or(d.t)
		more = must.Get(d.w.Pass(d.t.Context())).Or(d.t) || stepped
	}
}

// events are the payloads of n events.
func events(n int) []string { return slices.Repeat([]string{"{}"}, n) }

func (d *desk) exec(url string, statements ...string) *desk {
	db := dbtest.Open(d.t, url)
	for _, statement := range statements {
		must.Get(db.Exec(statement)).Or(d.t)
	}
	return d
}

func (d *desk) pause(name, campaign string) *desk {
	must.Get(d.st.Runs.PauseProjection(d.t.Context(), operator.Command{By: operator.Operator{Name: "ana"}, Reason: "a bug"}, name, campaign, d.set.Infos())).Or(d.t)
	return d
}

// run runs a command and returns what it says, in one line, and how it ends.
func (d *desk) run(args ...string) (out, errs string, code int) {
	flags := d.flags
	if args[0] == "report" { // needs no projections
		flags = flags[:4]
	}
	var said, told strings.Builder
	code = run(d.t.Context(), slices.Concat(args, flags), streams{in: d.in, out: &said, err: &told})
	line := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	return line(said.String()), line(told.String()), code
}

// ends runs a command that must end with a code and say all that is wanted.
func (d *desk) ends(code int, command string, wanted ...string) *desk {
	out, errs, got := d.run(strings.Fields(command)...)
	must.Hold(d.t, got == code, "%s ends with %d, want %d: %s", command, got, code, out+errs)
	for _, w := range wanted {
		must.Hold(d.t, strings.Contains(out+" "+errs, w), "%s lacks %q: %s", command, w, out+" "+errs)
	}
	return d
}

func (d *desk) says(command string, wanted ...string) *desk {
	d.ends(exitDone, command, wanted...)
	return d
}

func (d *desk) lacks(command, unwanted string) *desk {
	out, errs, code := d.run(strings.Fields(command)...)
	must.Hold(d.t, code == exitDone && !strings.Contains(out+errs, unwanted), "%s ends with %d: %s", command, code, out+errs)
	return d
}

// refused runs a command that must say nothing but why it is refused.
func (d *desk) refused(command, why string) {
	out, errs, code := d.run(strings.Fields(command)...)
	must.Hold(d.t, code != exitDone && out == "" && strings.Contains(errs, why), "%s ends with %d, %q and %q, want %q", command, code, out, errs, why)
}
