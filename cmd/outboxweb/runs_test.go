package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// desk is a command's environment on a test's own files.
type desk struct {
	*app
	t        *testing.T
	st       *engine.Engine
	set      *projection.Set
	out, err bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t}
	dir := t.TempDir()
	d.app = &app{streams: streams{in: strings.NewReader(""), out: &d.out, err: &d.err}, Common: Common{
		JournalDB: "sqlite:" + filepath.Join(dir, "journal.db"), ProjectionsDB: "sqlite:" + filepath.Join(dir, "projections.db"),
		ProjectionFiles: []string{"builtin:campaigns"}, MaxPayload: outbox.DefaultMaxPayload, Mode: modeFlag(outbox.ModeOutbox), LogFormat: "text"}}
	var err error
	if d.st, d.set, err = d.openBoth(t.Context(), d.migratingOptions()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.st.Close() })
	for _, id := range []string{"c-1", "c-2"} {
		must.Get(d.st.Append(t.Context(), store.Append{Events: []outbox.Event{{CampaignID: id, EventType: "a", Payload: json.RawMessage(`{}`)}}})).Or(t)
	}
	return d
}

func (d *desk) claimed(kind outbox.RunKind) runs.Lease {
	d.t.Helper()
	ctx, infos, versions := d.t.Context(), d.set.Infos(), map[string]string{}
	for _, p := range infos {
		versions[p.Name] = p.Version
	}
	o := command("nightly")
	o.Confirm = "rebuild all campaigns"
	must.Get(d.st.Runs.Start(ctx, o, outbox.RunRequest{Kind: kind, All: true}, infos)).Or(d.t)
	l, ok, err := d.st.Runs.Claim(ctx, store.Worker{ID: "w"}, versions, time.Minute)
	if err != nil || !ok {
		d.t.Fatal(ok, err)
	}
	return l
}

// ended makes a run with these results and lines that ended with this status.
func (d *desk) ended(kind outbox.RunKind, status outbox.RunStatus, why string, results ...outbox.RunResult) outbox.Run {
	d.t.Helper()
	ctx, l := d.t.Context(), d.claimed(kind)
	must.Get(d.st.Runs.Report(ctx, l, runs.Progress{Results: results, EventsDone: 2, Lease: time.Minute,
		Lines: []outbox.RunLine{{Text: "first line"}, {CampaignID: "c-1", Text: "boom\nwith a stack"}}})).Or(d.t)
	return must.Get(d.st.Runs.Finish(ctx, l, status, why)).Or(d.t)
}

func (d *desk) said(wanted ...string) {
	d.t.Helper()
	text := strings.Join(strings.Fields(d.out.String()), " ")
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			d.t.Errorf("it lacks %q:\n%s", w, d.out.String())
		}
	}
	d.out.Reset()
}

var (
	matching = outbox.RunResult{CampaignID: "c-2", Outcome: outbox.OutcomeMatch, Seq: 1, Events: 1}
	drifting = outbox.RunResult{CampaignID: "c-1", Outcome: outbox.OutcomeDrift, Seq: 1, Events: 1, Projections: []outbox.ProjectionResult{
		{Projection: "campaigns", Verdict: outbox.VerdictDrift, Seq: 1, Comparison: &outbox.Comparison{Added: 4, Changed: 5, Removed: 6, FirstSeq: 7, Samples: []outbox.RowChange{
			{Table: "campaigns", Kind: outbox.RowChanged, Key: []outbox.Field{{Name: "id", Value: json.RawMessage("3")}},
				Fields: []outbox.FieldChange{{Name: "title", Live: json.RawMessage(`"x"`), Expected: json.RawMessage(`"y"`)}, {Name: "size", Expected: json.RawMessage("9")}}},
			{Table: "seats", Kind: outbox.RowRemoved, Key: []outbox.Field{{Name: "seat", Value: json.RawMessage(`"a"`)}}}}}},
		{Projection: "sessions", Verdict: outbox.VerdictMatch, Seq: 1}}}
)

func TestVerify_saysWhatDrifted(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range []struct {
		status  outbox.RunStatus
		why     string
		results []outbox.RunResult
		wrong   bool
		says    []string
	}{
		{outbox.RunCompleted, "", []outbox.RunResult{matching}, false, []string{"the live rows of 1 campaign match the journal, as far as events are applied (2 events in it)"}},
		{outbox.RunCompleted, "", []outbox.RunResult{matching, drifting}, true,
			[]string{"the live rows of 1 of 2 campaigns differ from the journal", "c-1 campaigns drift 1 4 5 6 event 7 or earlier",
				`CAMPAIGN TABLE ROW KEY FIELD LIVE EXPECTED c-1 campaigns changed id=3 title "x" "y" c-1 campaigns changed id=3 size null 9 c-1 seats unexpected seat="a" there absent`,
				"and 13 more rows; runs show 2 --json has up to 20 of each campaign and projection"}},
		{outbox.RunInterrupted, "its processes died", []outbox.RunResult{matching}, true, []string{"run 3: interrupted after 1 of 2 campaigns: its processes died"}},
		{outbox.RunFailed, "", []outbox.RunResult{{CampaignID: "c-1", Outcome: outbox.OutcomeFailed, Error: "no such column"}}, true,
			[]string{"run 4: failed after 1 of 2 campaigns: 1 of 1 campaign failed", "c-1 failed 0 no such column"}},
	} {
		run := d.ended(outbox.RunVerify, c.status, c.why, c.results...)
		must.OK(t, d.printVerdict(t.Context(), d.st, run, "the live rows", nil))
		got := runError(run)
		must.Hold(t, (got != nil) == c.wrong, "a run that is %s with verdict %q ends the command with %v", run.Status, run.Verdict, got)
		d.said(c.says...)
	}
}

func TestRunsShow_hasWhatDidNotMatchAndTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	run := d.ended(outbox.RunVerify, outbox.RunCompleted, "", matching, drifting)
	must.OK(t, (&runsShowCmd{ID: run.ID}).Run(t.Context(), d.app))
	d.said("is completed: verify of projections campaigns and sessions in all campaigns, started by", "reason: nightly", "verdict: drift", "2 of 2 campaigns, 2 of 2 events",
		"MATCHED DRIFTED REPLAYED FAILED NOT COMPARED 1 1 0 0 0", "c-1 campaigns drift 1 4 5 6 event 7 or earlier", "first line", "c-1 boom")
	if err := d.printEnd(t.Context(), d.st, d.set, run.ID, jsonFlag{}); !errors.Is(err, errFound) {
		t.Errorf("following a verify that found a drift ends with %v", err)
	}
	d.said("verdict: drift")
	must.OK(t, (&runsShowCmd{ID: run.ID, jsonFlag: jsonFlag{JSON: true}}).Run(t.Context(), d.app))
	var got runDetail
	if err := json.Unmarshal(d.out.Bytes(), &got); err != nil || got.ID != run.ID || len(got.Results) != 1 || len(got.Results[0].Projections[0].Comparison.Samples) != 2 || len(got.Log) != 2 || got.Log[0].Text != "first line" {
		t.Errorf("document is %+v, %v", got, err)
	}
}

func TestRuns_sayThatNoProcessWorksOnARun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	l := d.claimed(outbox.RunVerify)
	report := func(lease time.Duration) {
		must.Get(d.st.Runs.Report(t.Context(), l, runs.Progress{EventsDone: 1, EventsPerSecond: 367, Lease: lease})).Or(t)
		d.st.Changed()
		must.OK(t, (&runsShowCmd{ID: l.Run.ID}).Run(t.Context(), d.app))
	}
	worker := func(id string, pid int) {
		host, err := os.Hostname()
		if err == nil {
			err = d.st.Heartbeat(t.Context(), outbox.InstanceState{ID: id, Host: host, PID: pid, StartedAt: time.Now()})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	killed := exec.Command("sleep", "60")
	must.OK(t, errors.Join(killed.Start(), killed.Process.Kill()))
	_ = killed.Wait()
	worker("w", killed.Process.Pid)
	report(time.Minute)
	out := d.out.String()
	must.Hold(t, !strings.Contains(out, "left") && !strings.Contains(out, "takes over"), "a run whose process was killed goes on:\n%s", out)
	d.said("is running: verify", "No worker is running; start a worker, or cancel the run")
	other := newDesk(t)
	must.OK(t, (&runsCancelCmd{ID: other.claimed(outbox.RunVerify).Run.ID}).Run(t.Context(), other.app))
	must.Equal(t, other.err.String(), "no worker is running, so run 1 ends when one starts, or when it is cancelled again after its lease\n", "a cancel warns")
	worker("w-2", os.Getpid())
	report(time.Minute)
	d.said("367 events/s, about")
	report(time.Nanosecond)
	d.said("is running: verify", "No process works on it: the last one reported 0 s ago. The next free worker takes over.")
	must.OK(t, (&runsListCmd{listFlags: listFlags{Limit: 10}}).Run(t.Context(), d.app))
	d.said("verify running, last report 0 s ago")
}

func TestRunsShow_saysOfARebuildWhatItMended(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	mended := drifting
	mended.Projections = slices.Clone(mended.Projections)
	for i := range mended.Projections {
		mended.Projections[i].Comparison = nil // it compares digests
	}
	run := d.ended(outbox.RunRebuild, outbox.RunCompleted, "", mended, matching)
	err := runError(run)
	must.Hold(t, err == nil && run.Verdict == outbox.VerdictDrift, "a rebuild with verdict %q ends the command with %v", run.Verdict, err)
	must.OK(t, (&runsShowCmd{ID: run.ID}).Run(t.Context(), d.app))
	out := d.out.String()
	must.Hold(t, !strings.Contains(strings.ToLower(out), "drift"), "what a rebuild has mended is told as drift:\n%s", out)
	d.said("verdict: differed before", "MATCHED DIFFERED BEFORE REPLAYED FAILED NOT COMPARED 1 1 0 0 0", "c-1 campaigns differed before 1 end of its log")
}

func TestWatchRun_endsWithoutTheRunWhenItMust(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	// No process here has these projections, so the run stays queued.
	run := must.Get(d.st.Runs.Start(t.Context(), command(""), outbox.RunRequest{Kind: outbox.RunVerify, All: true}, []outbox.ProjectionInfo{{Name: "others", Version: "v1"}})).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.watchRun(ctx, d.st, run.ID, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted, it ends with %v", err)
	}
	failed := make(chan error, 1)
	failed <- errFound
	if _, err := d.watchRun(t.Context(), d.st, run.ID, failed); !errors.Is(err, errFound) {
		t.Errorf("when working has failed, it ends with %v", err)
	}
}

func TestCommands_thatAreStoppedLeaveNoActiveRun(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(context.Context, *desk) error{
		"verify": func(ctx context.Context, d *desk) error {
			return (&verifyCmd{RunRequest: outbox.RunRequest{Rate: 1}}).Run(ctx, d.app)
		},
		"runs start verify --wait": func(ctx context.Context, d *desk) error {
			return (&runsStartCmd{Kind: "verify", Wait: true, RunStartRequest: outbox.RunStartRequest{RunRequest: outbox.RunRequest{All: true, Rate: 1}}}).Run(ctx, d.app)
		},
		"runs start rebuild --wait": func(ctx context.Context, d *desk) error {
			return (&runsStartCmd{Kind: "rebuild", Wait: true, RunStartRequest: outbox.RunStartRequest{RunRequest: outbox.RunRequest{Campaigns: []string{"c-1"}, Rate: 1}}}).Run(ctx, d.app)
		},
	} {
		d := newDesk(t)
		d.applied(30)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- begin(ctx, d) }()
		read := func() outbox.Run {
			run, err := d.st.Runs.Get(t.Context(), 1)
			if err != nil && !errors.Is(err, outbox.ErrNotFound) {
				t.Fatal(err)
			}
			return run
		}
		eventually(t, "events are replayed", func() bool { return read().Events.Done > 0 })
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: it ends with %v", name, err)
		}
		if run := read(); run.Status != outbox.RunInterrupted || run.Error != "the command that worked on it was stopped; resume it, or start a new run" {
			t.Errorf("%s: the run is %s: %s", name, run.Status, run.Error)
		}
		must.Equal(t, d.err.String(), "run 1 is interrupted; continue with: outboxweb runs resume 1 --wait\n", name, "it says")
		if err := (&verifyCmd{}).Run(t.Context(), d.app); err != nil {
			t.Errorf("%s: the next verify ends with %v", name, err)
		}
	}
}

func (d *desk) applied(n int) {
	d.t.Helper()
	for range n {
		must.Get(d.st.Append(d.t.Context(), store.Append{Events: []outbox.Event{{CampaignID: "c-1", EventType: "a", Payload: json.RawMessage(`{}`)}}})).Or(d.t)
	}
	w := worker.New(worker.Config{Store: d.st.Store, Set: d.set, Logger: slog.New(slog.DiscardHandler), Mode: d.st.Mode()})
	for more := true; more; {
		more = must.Get(w.Pass(d.t.Context())).Or(d.t)
	}
}

func TestReport_saysWhatIsKnownOfTheWorker(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	seen := now.Add(-time.Minute)
	for process, c := range map[outbox.ProcessState]struct {
		running bool
		want    string
	}{
		outbox.ProcessAlive:   {true, "running, last seen 1 min ago"},
		outbox.ProcessUnknown: {true, "last seen 1 min ago on another host: idle, or gone"},
		outbox.ProcessGone:    {false, "none is running, last seen at work 1 min ago"},
	} {
		s := outbox.Summary{AsOf: now, Worker: outbox.WorkerSummary{Running: c.running, LastSeen: &seen},
			Instances: []outbox.InstanceState{{ID: "w", LastSeen: seen, Process: process}}}
		got := workerLine(s)
		must.Hold(t, strings.HasPrefix(got, c.want), "process %d: %q, want %q", process, got, c.want)
	}
}

func TestAlertsList_hasALineForEachCause(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 21, 18, 57, 0, 0, time.UTC)
	v := outbox.AlertsView{Configured: true, Rules: []outbox.AlertRuleState{{AlertRule: outbox.AlertRule{Name: "publisher"}, Alerts: []outbox.Alert{
		{Cause: outbox.AlertCause{Sentence: "Publisher a/b has failed"}, Status: outbox.AlertFiring},
		{Cause: outbox.AlertCause{Sentence: "Publisher e/f has failed"}, Status: outbox.AlertFiring, EndedAt: &until},
		{Cause: outbox.AlertCause{Sentence: "gone for good"}, Status: outbox.AlertOK},
		{Cause: outbox.AlertCause{Sentence: "Publisher c/d has failed"}, Status: outbox.AlertPending},
	}}, {AlertRule: outbox.AlertRule{Name: "drift"}}}}
	var out bytes.Buffer
	must.OK(t, (&app{streams: streams{out: &out}}).printAlerts(v))
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"never been evaluated", "RULE", "Publisher a/b has failed", "firing, not found since " + stamp(until), "Publisher c/d has failed", "drift"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %q in\n%s", i, want, out.String())
		}
	}
	if strings.Contains(out.String(), "gone for good") {
		t.Errorf("lists what is over:\n%s", out.String())
	}
}

// States without an age read as if a server were watching.
func TestAlertsList_saysHowOldItsStatesAre(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, at := range map[string]*time.Time{
		"the rules have never been evaluated: no server has run with them": nil,
		"last evaluated 9 s ago": new(now.Add(-9 * time.Second)),
		"last evaluated 40 s ago: no server evaluates the rules now, and the states below are of then": new(now.Add(-40 * time.Second)),
	} {
		must.Equal(t, lastEvaluated(at, now), want)
	}
}

// terminal gives the desk a terminal to read from and types a line there.
func (d *desk) terminal(line string) {
	d.t.Helper()
	keyboard := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	must.OK(d.t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)).Or(d.t)
	in := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	d.t.Cleanup(func() { in.Close(); keyboard.Close() })
	must.Get(keyboard.WriteString(line + "\n")).Or(d.t)
	d.in = in
}

func (d *desk) asked(text string) {
	d.t.Helper()
	if !strings.Contains(d.err.String(), text) {
		d.t.Errorf("stderr lacks %q: %s", text, d.err.String())
	}
	d.err.Reset()
}

func TestConfirm_isAskedForAtATerminalAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	events := make([]outbox.Event, 1200)
	for i := range events {
		events[i] = outbox.Event{CampaignID: "c-1", EventType: "a", Payload: json.RawMessage(`{}`)}
	}
	must.Get(d.st.Append(t.Context(), store.Append{Events: events})).Or(t)
	dead := func() {
		t.Helper()
		for _, change := range []string{
			`update projection_apply_outbox set status = 'dead', attempt_count = 8 where campaign_id = 'c-1' and seq = 1`,
			`update campaigns set head_status = 'dead', pending = 1200, dead = 1 where campaign_id = 'c-1'`,
		} {
			must.Get(dbtest.Open(t, d.JournalDB).Exec(change)).Or(t)
		}
	}
	dead()
	one, many := &requeueCmd{Campaign: "c-1", Seq: "1"}, &requeueCmd{Dead: true}
	for want, c := range map[string]*requeueCmd{`--confirm 'release 1200 rows'`: one, `--confirm 'requeue 1 rows'`: many} {
		if err := c.Run(t.Context(), d.app); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("without a terminal: %v, want %s", err, want)
		}
		d.terminal("yes")
		if err := c.Run(t.Context(), d.app); err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("with another phrase: %v, want %s", err, want)
		}
		d.in = strings.NewReader("")
		d.asked("releases 1,200")
	}
	d.terminal("release 1200 rows")
	if err := one.Run(t.Context(), d.app); err != nil {
		t.Error(err)
	}
	d.asked("this action releases 1,200 rows; to confirm it, type: release 1200 rows")
	dead()
	many.Confirm = "requeue 1 rows"
	if err := many.Run(t.Context(), d.app); err != nil {
		t.Error(err)
	}
}

func TestKeeper_deletesAtStartWhatIsTooOld(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	must.Get(d.st.RecordRefusal(t.Context(), outbox.Command{By: outbox.Operator{Name: "ana"}}, outbox.RefusedAction{Action: outbox.ActionPause, Refusal: "no"})).Or(t)
	journal := dbtest.Open(t, d.JournalDB)
	must.Get(journal.Exec(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
values ('a', 1, 1, 1, 'w', 'v1', 'boom', 'boom')`)).Or(t)
	must.Get(journal.Exec(`
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values (1, 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null')`)).Or(t)
	kept := func() int {
		var attempts int
		must.OK(t, journal.QueryRow(`select count(*) from attempts`).Scan(&attempts))
		page := must.Get(d.st.AuditLog(t.Context(), outbox.AuditFilter{})).Or(t)
		return len(page.Items) + attempts
	}
	log := slog.New(slog.DiscardHandler)
	engine.Keeper{Engine: d.st, Logger: log}.Run(t.Context()) // 0 keeps records forever, so it returns at once
	n := kept()
	must.Need(t, n == 3, "%d records are kept for good, want all", n)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		engine.Keeper{Engine: d.st, Audit: 24 * time.Hour, History: 24 * time.Hour, Logger: log}.Run(ctx)
		close(ended)
	}()
	deadline, look := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer look.Stop()
	for kept() != 1 {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatal("what is old is still there")
		}
	}
	stop()
	<-ended
	before, err := d.st.Maintenance.AuditLogRemovedBefore(t.Context())
	must.Hold(t, err == nil && time.Since(before) >= 24*time.Hour && time.Since(before) <= 25*time.Hour, "records are gone from before %s, %v", before, err)
}
