package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// two is a desk with a campaign c-1 and a campaign c-2, of an event each.
func two(t *testing.T) *desk {
	d := newDesk(t)
	d.has("c-1", "{}").has("c-2", "{}")
	return d
}

// as is what commands of this program work with.
func (d *desk) as(out io.Writer) *app {
	return &app{streams: streams{in: d.in, out: out, err: io.Discard}, Common: Common{LogFormat: "text"}}
}

func (d *desk) claimed(kind replay.RunKind) runs.Lease {
	ctx, infos, versions := d.t.Context(), d.set.Infos(), map[string]string{}
	for _, p := range infos {
		versions[p.Name] = p.Version
	}
	o := command("nightly")
	o.Confirm = "rebuild all campaigns"
	must.Get(d.st.Runs.Start(ctx, o, replay.RunRequest{Kind: kind, All: true}, infos)).Or(d.t)
	l, ok, err := d.st.Runs.Claim(ctx, outbox.Worker{ID: "w"}, versions, time.Minute)
	must.Need(d.t, ok && err == nil, "it is claimed: %t, %v", ok, err)
	return l
}

// ended makes a run with these results and lines that ended with this status.
func (d *desk) ended(kind replay.RunKind, status replay.RunStatus, why string, results ...replay.RunResult) replay.Run {
	ctx, l := d.t.Context(), d.claimed(kind)
	must.Get(d.st.Runs.Report(ctx, l, runs.Progress{Results: results, EventsDone: 2, Lease: time.Minute,
		Lines: []replay.RunLine{{Text: "first line"}, {CampaignID: "c-1", Text: "boom\nwith a stack"}}})).Or(d.t)
	return must.Get(d.st.Runs.Finish(ctx, l, status, why)).Or(d.t)
}

var (
	matching = replay.RunResult{CampaignID: "c-2", Outcome: replay.OutcomeMatch, Seq: 1, Events: 1}
	drifting = replay.RunResult{CampaignID: "c-1", Outcome: replay.OutcomeDrift, Seq: 1, Events: 1, Projections: []replay.ProjectionResult{
		{Projection: "campaigns", Verdict: campaign.VerdictDrift, Seq: 1, Comparison: &projection.Comparison{Added: 4, Changed: 5, Removed: 6, FirstSeq: 7, Samples: []projection.RowChange{
			{Table: "campaigns", Kind: projection.RowChanged, Key: []projection.Field{{Name: "id", Value: json.RawMessage("3")}},
				Fields: []projection.FieldChange{{Name: "title", Live: json.RawMessage(`"x"`), Expected: json.RawMessage(`"y"`)}, {Name: "size", Expected: json.RawMessage("9")}}},
			{Table: "seats", Kind: projection.RowRemoved, Key: []projection.Field{{Name: "seat", Value: json.RawMessage(`"a"`)}}}}}},
		{Projection: "sessions", Verdict: campaign.VerdictMatch, Seq: 1}}}
)

func TestVerify_saysWhatDriftedAndWhatDidNotMatchIsShown(t *testing.T) {
	d := two(t)
	for _, c := range []struct {
		status  replay.RunStatus
		why     string
		results []replay.RunResult
		wrong   bool
		says    []string
	}{
		{replay.RunCompleted, "", []replay.RunResult{matching}, false, []string{"The live rows of 1 campaign match the journal, as far as events are applied. (2 events in 1 campaign)"}},
		{replay.RunCompleted, "", []replay.RunResult{matching, drifting}, true,
			[]string{"Drift in 1 of 2 campaigns: the live rows differ from the journal.", "c-1 drift 1 campaigns: 4 rows missing in live data, 5 changed, 6 unexpected in live data; first divergence at event 7 or earlier",
				`CAMPAIGN TABLE ROW KEY FIELD LIVE EXPECTED c-1 campaigns changed id=3 title "x" "y" c-1 campaigns changed id=3 size null 9 c-1 seats unexpected seat="a" there absent`,
				"and 13 more rows; runs show 2 --json has up to 20 of each campaign and projection"}},
		{replay.RunInterrupted, "its processes died", []replay.RunResult{matching}, true, []string{"Interrupted with 1 of 2 campaigns done.", "run 3: its processes died"}},
		{replay.RunFailed, "", []replay.RunResult{{CampaignID: "c-1", Outcome: replay.OutcomeFailed, Error: "no such column"}}, true,
			[]string{"1 of 2 campaigns failed.", "run 4: 1 of 1 campaign failed", "c-1 failed 0 no such column"}},
	} {
		run := d.ended(replay.RunVerify, c.status, c.why, c.results...)
		var out strings.Builder
		must.OK(t, d.as(&out).printVerdict(t.Context(), d.st, d.set, must.Get(readRun(t.Context(), d.st, run)).Or(t)))
		got := runError(run)
		must.Hold(t, (got != nil) == c.wrong, "a run that is %s with verdict %q ends the command with %v", run.Status, run.Verdict, got)
		for _, want := range c.says {
			must.Hold(t, strings.Contains(strings.Join(strings.Fields(out.String()), " "), want), "it lacks %q:\n%s", want, out.String())
		}
	}
	d.says("runs show 2", "is completed: verify of projections campaigns and sessions in all campaigns, started by", "reason: nightly", "verdict: drift", "2 of 2 campaigns, 2 of 2 events",
		"failed 0 drift 1 match 1", "c-1 drift 1 campaigns: 4 rows missing in live data, 5 changed, 6 unexpected in live data; first divergence at event 7 or earlier", "first line", "c-1 boom")
	err := d.as(io.Discard).printEnd(t.Context(), d.st, d.set, 2, jsonFlag{})
	must.Hold(t, errors.Is(err, errFound), "following a verify that found a drift ends with %v", err)
	out, _, _ := d.run("runs", "show", "2", "--json")
	var got runDetail
	must.OK(t, json.Unmarshal([]byte(out), &got))
	must.Hold(t, got.ID == 2 && len(got.Results) == 1 && len(got.Results[0].Projections[0].Comparison.Samples) == 2 && len(got.Log) == 2 && got.Log[0].Text == "first line", "document is %+v", got)
}

func TestRuns_sayThatNoProcessWorksOnARun(t *testing.T) {
	d := two(t)
	l := d.claimed(replay.RunVerify)
	report := func(lease time.Duration) {
		must.Get(d.st.Runs.Report(t.Context(), l, runs.Progress{EventsDone: 1, EventsPerSecond: 367, Lease: lease})).Or(t)
	}
	must.OK(t, d.st.Heartbeat(t.Context(), storetest.Killed(t, "w", time.Now())))
	report(time.Minute)
	for _, wrong := range []string{"left", "takes over"} {
		d.lacks("runs show 1", wrong)
	}
	d.says("runs show 1", "is running: verify", "No worker is running; start a worker, or cancel the run")
	must.OK(t, d.st.Heartbeat(t.Context(), campaign.InstanceState{ID: "w-2", Host: must.Get(os.Hostname()).Or(t), PID: os.Getpid(), StartedAt: time.Now()}))
	d.says("runs show 1", "367 events/s, about")
	_, errs, code := d.run("runs", "start", "rebuild", "--all", "--projections", "builtin:traces")
	must.Hold(t, code == 2 && strings.Contains(errs, "no server has loaded projection"), "with files that the worker does not have: exit %d, %s", code, errs)
	report(time.Nanosecond)
	d.says("runs show 1", "is running: verify", "No process works on it: the last one reported 0 s ago. The next free worker takes over.")
	d.says("runs list", "verify running, last report 0 s ago")
}

func TestRuns_sayWhatARebuildMendedAndWhenACancelledOneEnds(t *testing.T) {
	d := two(t)
	mended := drifting
	mended.Projections = slices.Clone(mended.Projections)
	for i := range mended.Projections {
		mended.Projections[i].Comparison = nil // it compares digests
	}
	run := d.ended(replay.RunRebuild, replay.RunCompleted, "", mended, matching)
	must.Hold(t, runError(run) == nil && run.Verdict == campaign.VerdictDrift, "a rebuild with verdict %q ends the command with %v", run.Verdict, runError(run))
	for _, wrong := range []string{"drift", "Drift"} {
		d.lacks("runs show 1", wrong)
	}
	d.says("runs show 1", "verdict: differed before", "failed 0 differed before 1 did not differ 1", "c-1 differed before 1 end of its log")
	d.claimed(replay.RunVerify)
	d.says("runs cancel 2", "no worker is running, so run 2 ends when one starts, or when it is cancelled again after its lease")
}

func TestWatchRun_endsWithoutTheRunWhenItMust(t *testing.T) {
	d := two(t)
	// No process here has these projections, so the run stays queued.
	run := must.Get(d.st.Runs.Start(t.Context(), command(""), replay.RunRequest{Kind: replay.RunVerify, All: true}, []campaign.ProjectionInfo{{Name: "others", Version: "v1"}})).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.as(io.Discard).watchRun(ctx, d.st, run.ID, nil)
	must.Hold(t, errors.Is(err, context.Canceled), "interrupted, it ends with %v", err)
	failed := make(chan error, 1)
	failed <- errFound
	_, err = d.as(io.Discard).watchRun(t.Context(), d.st, run.ID, failed)
	must.Hold(t, errors.Is(err, errFound), "when working has failed, it ends with %v", err)
}

func TestCommands_thatAreStoppedLeaveNoActiveRun(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"verify --rate 1", "runs start verify --all --rate 1 --wait", "runs start rebuild --campaign c-1 --rate 1 --wait"} {
		t.Run(command, func(t *testing.T) {
			d := newDesk(t)
			d.applied("c-1", events(30)...)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan string, 1)
			go func() {
				_, errs, code := here(ctx, append(strings.Fields(command), d.flags...)...)
				ended <- fmt.Sprint(code, " ", errs)
			}()
			read := func() replay.Run {
				run, err := d.st.Runs.Get(t.Context(), 1)
				must.Need(t, err == nil || errors.Is(err, event.ErrNotFound), "%v", err)
				return run
			}
			must.Eventually(t, "events are replayed", func() bool { return read().Events.Done > 0 })
			stop()
			must.Equal(t, <-ended, "1 run 1 is interrupted; continue with: outboxweb runs resume 1 --wait\noutboxweb: interrupted\n", "it says")
			run := read()
			must.Hold(t, run.Status == replay.RunInterrupted && run.Error == "the command that worked on it was stopped; resume it, or start a new run", "the run is %s: %s", run.Status, run.Error)
			d.says("verify")
		})
	}
}

func TestReport_saysWhatIsKnownOfTheWorker(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	seen := now.Add(-time.Minute)
	for process, c := range map[campaign.ProcessState]struct {
		running bool
		want    string
	}{
		campaign.ProcessAlive:   {true, "running, idle: it last had work 1 min ago"},
		campaign.ProcessUnknown: {true, "last seen 1 min ago on another host: idle, or gone"},
		campaign.ProcessGone:    {false, "none is running, last seen at work 1 min ago"},
	} {
		s := campaign.Summary{AsOf: now, Worker: campaign.WorkerSummary{Running: c.running, LastSeen: &seen}, Instances: []campaign.InstanceState{{ID: "w", LastSeen: seen, Process: process}}}
		got := workerLine(s)
		must.Hold(t, strings.HasPrefix(got, c.want), "process %d: %q, want %q", process, got, c.want)
	}
}

func TestAlertsList_hasALineForEachCause(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 21, 18, 57, 0, 0, time.UTC)
	v := alerts.AlertsView{Configured: true, Rules: []alerts.AlertRuleState{{AlertRule: alerts.AlertRule{Name: "publisher"}, Alerts: []alerts.Alert{
		{Cause: alerts.AlertCause{Sentence: "Publisher a/b has failed"}, Status: alerts.AlertFiring},
		{Cause: alerts.AlertCause{Sentence: "Publisher e/f has failed"}, Status: alerts.AlertFiring, EndedAt: &until},
		{Cause: alerts.AlertCause{Sentence: "gone for good"}, Status: alerts.AlertOK},
		{Cause: alerts.AlertCause{Sentence: "Publisher c/d has failed"}, Status: alerts.AlertPending},
	}}, {AlertRule: alerts.AlertRule{Name: "drift"}}}}
	var out bytes.Buffer
	must.OK(t, (&app{streams: streams{out: &out}}).printAlerts(v))
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"never been evaluated", "RULE", "Publisher a/b has failed", "firing, not found since " + stamp(until), "Publisher c/d has failed", "drift"} {
		must.Hold(t, strings.Contains(lines[i], want), "line %d lacks %q in\n%s", i, want, out.String())
	}
	must.Hold(t, !strings.Contains(out.String(), "gone for good"), "lists what is over:\n%s", out.String())
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

// types gives commands a terminal to read from, with a line typed there.
func (d *desk) types(line string) *desk {
	keyboard := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	must.OK(d.t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n := must.Get(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)).Or(d.t)
	in := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)).Or(d.t)
	d.t.Cleanup(func() { in.Close(); keyboard.Close() })
	must.Get(keyboard.WriteString(line + "\n")).Or(d.t)
	d.in = in
	return d
}

func TestConfirm_isAskedForAtATerminalAlone(t *testing.T) {
	d := newDesk(t, logging("log"), needing("names", "n"))
	d.applied("c-1", events(1201)...)
	for command, phrase := range map[string]string{"requeue c-1 1": "release 1200 rows", "requeue --dead": "requeue 1 rows"} {
		d.in = strings.NewReader("")
		d.ends(exitUsage, command, "releases 1,200", "--confirm '"+phrase+"'")
		d.types("yes").ends(exitUsage, command, "releases 1,200", "--confirm '"+phrase+"'")
	}
	d.types("release 1200 rows").says("requeue c-1 1", "this action releases 1,200 rows; to confirm it, type: release 1200 rows")
}

func TestKeeper_deletesAtStartWhatIsTooOld(t *testing.T) {
	d := newDesk(t)
	must.Get(d.st.RecordRefusal(t.Context(), operator.Command{By: operator.Operator{Name: "ana"}}, operator.RefusedAction{Action: operator.ActionPause, Refusal: "no"})).Or(t)
	d.exec(d.pair.Journal, `
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
values ('a', 1, 1, 1, 'w', 'v1', 'boom', 'boom')`, `
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values (1, 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null')`)
	journal := dbtest.Open(t, d.pair.Journal)
	kept := func() []string {
		return storetest.Texts(t, journal, `select 'attempt' from attempts union all select outcome from audit_log order by 1`)
	}
	log := slog.New(slog.DiscardHandler)
	engine.Keeper{Engine: d.st, Logger: log}.Run(t.Context()) // 0 keeps records forever, so it returns at once
	must.Equal(t, kept(), []string{"attempt", "done", "refused"}, "what is kept for good")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		engine.Keeper{Engine: d.st, Audit: 24 * time.Hour, History: 24 * time.Hour, Logger: log}.Run(ctx)
		close(ended)
	}()
	must.Eventually(t, "what is old is deleted", func() bool { return len(kept()) == 1 })
	stop()
	<-ended
}
