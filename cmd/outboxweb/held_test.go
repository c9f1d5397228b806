package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// heldDesk is a journal with projections from some files.
type heldDesk struct {
	t     *testing.T
	flags []string
	st    *engine.Engine
	set   *projection.Set
	w     *worker.Worker
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

func written(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		must.OK(t, os.WriteFile(filepath.Join(dir, name+".sql"), []byte(text), 0o600))
	}
	return dir
}

// newHeldDesk is for a test that runs beside others.
func newHeldDesk(t *testing.T, log, names string) *heldDesk {
	t.Helper()
	t.Parallel()
	dir := written(t, map[string]string{"log": log, "names": names})
	journal, projections := "sqlite:"+filepath.Join(dir, "journal.db"), "sqlite:"+filepath.Join(dir, "projections.db")
	d := &heldDesk{t: t, flags: []string{"--journal-db", journal, "--projections-db", projections}}
	d.set = must.Get(projection.Load("sqlite", dir)).Or(t)
	opened := must.Get(store.Open(t.Context(), store.Options{Journal: journal, Projections: projections, Retry: outbox.Retry{MaxAttempts: 1}})).Or(t)
	d.st = engine.Wire(opened)
	t.Cleanup(func() { d.st.Close() })
	must.OK(t, runs.Install(t.Context(), d.st.Store, d.set))
	d.w = worker.New(worker.Config{Store: d.st.Store, Set: d.set, Mode: outbox.ModeOutbox})
	d.flags = append(d.flags, "--projections", dir)
	return d
}

// append appends n events to a campaign and has them applied.
func (d *heldDesk) append(campaign string, n int) {
	d.t.Helper()
	d.appendPayloads(campaign, slices.Repeat([]string{"{}"}, n)...)
	d.apply()
}

func (d *heldDesk) apply() {
	d.t.Helper()
	for more := true; more; {
		more = must.Get(d.w.Pass(d.t.Context())).Or(d.t)
	}
}

func (d *heldDesk) appendPayloads(campaign string, payloads ...string) {
	d.t.Helper()
	var events []outbox.Event
	for _, payload := range payloads {
		events = append(events, outbox.Event{CampaignID: campaign, EventType: "noted", Payload: []byte(payload)})
	}
	must.Get(d.st.Append(d.t.Context(), store.Append{Events: events})).Or(d.t)
}

func (d *heldDesk) pause(name, campaign string) {
	d.t.Helper()
	must.Get(d.st.Runs.PauseProjection(d.t.Context(), outbox.Command{By: outbox.Operator{Name: "ana"}, Reason: "a bug"}, name, campaign, d.set.Infos())).Or(d.t)
}

func (d *heldDesk) says(command string, wanted ...string) {
	d.t.Helper()
	d.runs(command, exitDone, wanted...)
}

func (d *heldDesk) lacks(command, unwanted string) {
	d.t.Helper()
	out, errs, code := here(d.t.Context(), append(strings.Fields(command), d.flags...)...)
	if code != exitDone || strings.Contains(out+errs, unwanted) {
		d.t.Errorf("%s ends with %d: %s", command, code, out+errs)
	}
}

func (d *heldDesk) runs(command string, end int, wanted ...string) {
	d.t.Helper()
	flags := d.flags
	if command == "report" { // needs no projections
		flags = flags[:4]
	}
	out, errs, code := here(d.t.Context(), append(strings.Fields(command), flags...)...)
	text := strings.Join(strings.Fields(out+errs), " ")
	if code != end {
		d.t.Errorf("%s ends with %d: %s", command, code, text)
	}
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			d.t.Errorf("%s lacks %q: %s", command, w, text)
		}
	}
}

func TestVerify_namesAProjectionThatIsNotLoadedAnyMore(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.says("report", "No worker is running")
	must.OK(t, d.st.ReadModel().Leave(t.Context(), []string{"log"}))
	d.says("report", "Projection names is not loaded any more: its rows are not updated")
	d.says("projections status", "names not loaded 0 0 0 0 0") // also if the command has its file
	must.OK(t, os.Remove(filepath.Join(d.flags[5], "names.sql")))
	d.says("projections status", "log live", "names not loaded 0 0 0 0 0")
	d.says("projections status names", "names: not loaded; blocking 0", "Its rows are not updated, and not verified. Once it is loaded again, a replay starts by itself and catches it up.")
	d.says("projections status names --json", `"not_loaded": true`)
	d.says("verify", "the live rows of 1 campaign match the journal, as far as events are applied (2 events in it)", "not compared: projection names, which is not loaded any more")
}

// A command compares the projections that it has; a service may have others, such as those in Go.
func TestCommands_nameProjectionsThatTheyHaveNotLoaded(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	const left = "not compared: projection names, which this command has not loaded"
	d.lacks("verify", left)
	d.lacks("check", left)
	must.OK(t, os.Remove(filepath.Join(d.flags[5], "names.sql")))
	d.says("verify", "the live rows of 1 campaign match the journal", left)
	d.says("check", "no problems found", left)
	d.says("verify --json", `"not_loaded": [ "names" ]`)
	d.says("check --json", `"not_loaded": [ "names" ]`)
	d.lacks("verify --projection log", left)
	d.lacks("check --no-replay", left)
}

func TestCommands_sayWhatIsNotComparedSinceItIsPaused(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.append("c-2", 1)
	d.pause("names", "c-1")
	d.says("verify", "the live rows of 2 campaigns match the journal")
	d.append("c-1", 3)
	const left = "not compared: events 3 to 5 of campaign c-1 in projection names, paused"
	d.says("check", "no problems found", left)
	d.says("verify", "the live rows of 1 of 2 campaigns match the journal", "1 was not fully compared", left)
	d.says("report", "Projection names is paused for 1 campaign.")
	must.Get(d.st.Runs.ResumeProjection(t.Context(), command("fixed"), "names", "c-1", d.set.Infos())).Or(t)
	run, err := d.st.Runs.Active(t.Context())
	if err != nil || len(run) != 1 {
		t.Fatal(run, err)
	}
	must.Get(d.st.Runs.Cancel(t.Context(), command(""), run[0].ID)).Or(t)
	const behind = "not compared: all events of campaign c-1 in projection names, behind until a replay has caught it up"
	d.says("verify", "the live rows of 1 of 2 campaigns match the journal", behind)
	d.says("report", "Projection names is behind in 1 campaign, and no run is catching it up")
}

func TestRunsShow_namesTheEventThatFailed(t *testing.T) {
	d := newHeldDesk(t, lenient(needing("log", "l")), logging("names"))
	d.appendPayloads("c-1", `{"l":1}`, `{"l":2}`, `{}`)
	d.apply()
	d.runs("runs start rebuild --campaign c-1 --wait", exitFailed, "CAMPAIGN PROJECTION OUTCOME UP TO EVENT MISSING CHANGED UNEXPECTED FIRST DIVERGENCE ERROR", "c-1 log failed 2 event 3: ")
}

func TestRequeue_offersAVerifyNext(t *testing.T) {
	d := newHeldDesk(t, logging("log"), needing("names", "n"))
	d.appendPayloads("c-1", `{}`)
	d.apply()
	d.says("requeue c-1 1", "applied is not yet verified: compare the read models with: outboxweb verify --campaign=c-1")
	d.apply()
	d.says("requeue --dead", "requeued 1 dead row", "outboxweb verify --all")
}

func TestRequeue_restsOnARehearsalWhoseFilesAreLoaded(t *testing.T) {
	d := newHeldDesk(t, logging("log"), needing("names", "n"))
	d.appendPayloads("c-1", `{}`)
	d.apply()
	fixed := written(t, map[string]string{"names": logging("names")})
	d.says("rehearse "+fixed, "rehearsed: names ", "would pass")
	d.says("runs show 1", "rehearsed: names ", "1 of 1 blocked campaign would pass", "rows that would change", "c-1 names passes 1 1 0 0", "CAMPAIGN TABLE ROW KEY FIELD NOW THEN c-1 log added seq=1 absent there")
	d.says("runs list", "1 of 1 would pass")
	const requeue = "requeue --dead --canary --rehearsal 1"
	d.runs("requeue --dead --rehearsal 1", exitUsage, "--rehearsal needs --canary")
	d.runs(requeue, exitFailed, "the files of rehearsal 1 are not loaded yet")
	d.runs("requeue --dead --canary --rehearsal 9", exitFailed, "run 9")
	d.load(t, filepath.Join(fixed, "names.sql"))
	d.says(requeue, "started operation 1: 1 dead row")
	d.says("operations show 1", "it rests on rehearsal 1; 1 of the operation's 1 row passed it")
	for _, version := range []string{"first", "second"} {
		must.OK(t, d.st.Loaded(t.Context(), outbox.InstanceState{ID: "w-1"}, []outbox.Definition{{Projection: "names", Version: version, File: outbox.RehearsalFile{Name: "names.sql", Text: version}}}))
	}
	d.says("operations show 1", "deployed while it ran, at ", "Version second of projection names, in place of first: rows requeued after that were tried with it, and rehearsal 1 was not of it")
}

// load puts a changed file of a projection in place of the loaded one, as a restart does.
func (d *heldDesk) load(t *testing.T, file string) {
	t.Helper()
	must.OK(t, os.Rename(file, filepath.Join(d.flags[5], filepath.Base(file))))
	set := must.Get(projection.Load("sqlite", d.flags[5])).Or(t)
	must.OK(t, runs.Install(t.Context(), d.st.Store, set))
}

func TestRehearsal_saysThatWhatIsQuarantinedIsReplayed(t *testing.T) {
	d := newHeldDesk(t, logging("log"), lenient(needing("names", "n")))
	d.appendPayloads("c-1", `{}`)
	d.apply()
	fixed := written(t, map[string]string{"names": lenient(logging("names"))})
	d.says("failures list", "no row is failed or dead", "projections are quarantined, which a requeue does not reach: PROJECTION CAMPAIGNS SINCE LAST FINGERPRINT ERROR names 1 ")
	const replay = " what is quarantined, which a requeue does not reach: outboxweb runs start replay --all --projection names"
	d.says("rehearse "+fixed, "1 of 1 quarantined campaign would pass", "load these files and restart, then replay"+replay)
	d.load(t, filepath.Join(fixed, "names.sql"))
	d.says("runs show 1", "these files are loaded: replay"+replay)
}

// The steps after a rehearsal reach what is blocked and what is quarantined, and only those; files that
// fix nothing are not to be loaded.
func TestRehearsal_saysWhatComesNext(t *testing.T) {
	d := newHeldDesk(t, lenient(needing("log", "l")), needing("names", "n"))
	d.appendPayloads("c-1", `{"n":1,"m":1,"x":1}`)
	d.appendPayloads("c-2", `{"l":1}`)
	d.appendPayloads("c-3", `{"l":1,"m":1}`)
	d.apply()
	const steps = " requeue the blocked campaigns, a canary first: outboxweb requeue --dead --canary --rehearsal 1 then replay what is quarantined, which a requeue does not reach: outboxweb runs start replay --all --projection log the rows"
	rehearse := func(log, names string) string {
		return "rehearse " + written(t, map[string]string{"log": log, "names": names})
	}
	d.says(rehearse(lenient(logging("log")), logging("names")), "3 of 3 blocked or quarantined campaigns would pass", "load these files and restart, then"+steps)
	d.runs(rehearse(lenient(needing("log", "l")), needing("names", "m")), exitFailed, "1 of 2 blocked campaigns would pass; 1 fails", "they do not fix every campaign; for those that would pass, load these files and restart, then requeue the blocked campaigns, a canary first: outboxweb requeue --dead --canary --rehearsal 2 the rows")
	d.runs(rehearse(lenient(needing("log", "l")), needing("names", "x")), exitFailed, "0 of 2 blocked campaigns would pass", "do not load these files: change them, and rehearse again")
	d.lacks("runs show 3", "restart")
	d.lacks("runs show 3", "canary")
}

func TestRehearsal_withoutALoadedProjection(t *testing.T) {
	d := newHeldDesk(t, logging("log"), needing("names", "n"))
	d.appendPayloads("c-1", `{}`)
	d.apply()
	loaded, part := d.flags[5], written(t, map[string]string{"names": needing("names", "n")})
	fixed := written(t, map[string]string{"log": logging("log"), "names": logging("names")})
	d.flags[5] = part
	const ran = "ran without projection log, which is loaded; rehearse again with it: on the server's page, or with its file in the command's --projections"
	d.says("rehearse "+filepath.Join(fixed, "names.sql"), "1 of 1 blocked campaign would pass", "no requeue can rest on this rehearsal: it "+ran)
	d.runs("rehearse "+fixed, exitFailed, `log.sql: projection "log" is not loaded, and a changed file replaces that of a loaded projection; name the replaced file in --projections, too`)
	d.flags[5] = loaded
	d.load(t, filepath.Join(fixed, "names.sql"))
	d.runs("requeue --dead --canary --rehearsal 1", exitFailed, "rehearsal 1 "+ran)
}

func TestDryRuns_sayWhatIsPaused(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.append("c-2", 1)
	d.pause("names", "c-1")
	d.append("c-1", 3)
	d.says("runs start rebuild --all --dry-run", "not compared: events 3 to 5 of campaign c-1 in projection names, paused",
		"2 campaigns replayed: 1 would not change, 1 not fully compared, 0 would change, 0 cannot be replayed")
	d.says("runs start rebuild --all --dry-run --json", `"not_compared": 1`, `"left_out": "paused"`)
	d.appendPayloads("c-1", "{}")
	d.says("requeue c-1 6 --dry-run", "log: 1 row added", "names: paused, so events are not applied to it")
	d.pause("log", "")
	d.says("requeue c-1 6 --dry-run", "log: paused, so events are not applied to it")
}

func TestCommands_sayWhereAPausedProjectionStands(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.pause("names", "c-1")
	d.append("c-1", 1)
	d.says("digest --campaign c-1", "campaign c-1 at seq 3 log sha256:", "at seq 2, paused")
	d.says("campaigns list", "c-1 current 3 3 Everything is applied, but projection names is paused, 1 event behind")
	d.says("campaigns list --json", `"held_projections": [ { "projection": "names", "applied_seq": 2,`)
	long := strings.Repeat("c", 200)
	d.append(long, 1)
	d.says("campaigns list", long[:40]+"… current 1 1")
	d.says("campaigns list --json", `"campaign_id": "`+long+`"`)
	d.says("events", "c-1 3 applied in part noted", "c-1 2 applied noted")
	d.says("digest --campaign c-1 --projection log", "campaign c-1 at seq 3 log sha256:")
	d.says("digest --campaign c-1 --json", `"seqs": { "log": 3, "names": 2 }`)
	d.says("runs start rebuild --campaign c-1 --wait", "is completed")
	d.says("runs show 1", "NOT COMPARED 0 0 0 0 1", "digests at seq 3", "at seq 2, paused", "not compared: event 3 of campaign c-1 in projection names, paused")
	run, err := d.st.Runs.Get(t.Context(), 1)
	must.Hold(t, err == nil && run.Verdict == "" && run.Counts.NotCompared == 1, "the rebuild says %q and %+v (%v)", run.Verdict, run.Counts, err)
	d.says("verify", "1 was not fully compared")
}

func TestEventsCommand_saysWhyASearchIsEmpty(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("store-07", 1)
	d.runs("events --event-type Noted --campaign store-007", exitFailed, "no event matches there is no campaign store-007 no event has the type Noted")
	d.runs("events --campaign store-007 --json", exitFailed)
	d.says("events --campaign store-07 --event-type Noted", "no event matches")
	d.says("events --since 2025-03-04 --until 12:00", "no event matches times are when events were recorded; --time occurred searches by when they occurred")
	d.says("events --since=-1h --time occurred", "store-07 1 applied noted")
}

func TestLists_sayThatTheyAreCut(t *testing.T) {
	d := newHeldDesk(t, logging("log"), needing("names", "n"))
	for i := range 12 {
		d.appendPayloads(fmt.Sprintf("c-%d", i), "{}")
	}
	for i := range 51 {
		d.appendPayloads("long", fmt.Sprintf(`{"n":%d}`, i))
	}
	d.apply()
	for command, says := range map[string]string{
		"events --campaign long":          "there are more events than these 50; raise --limit, or filter",
		"campaigns list --limit 12":       "there are more campaigns than these 12; raise --limit, or filter",
		"report --status dead --limit 11": "there are more rows than these 11; raise --limit, or filter",
		"report":                          "and 2 more: outboxweb campaigns list --state blocked, failing or diverged",
	} {
		d.says(command, says)
	}
	for _, whole := range []string{"events --campaign long --limit 51", "campaigns list --limit 13", "campaigns list --state blocked --limit 12", "report --status dead --limit 12"} {
		d.lacks(whole, "there are more")
	}
	out, _, _ := here(t.Context(), append([]string{"events", "--campaign", "long", "--json"}, d.flags...)...)
	must.Hold(t, !strings.Contains(out, "more"), "the notice is part of the document: %s", out)
	for _, command := range newParser(&cli{}, streams{}).Model.Leaves(true) {
		for _, flag := range command.Flags {
			if flag.Name == "limit" && !strings.Contains(flag.Help, flag.Default) {
				t.Errorf("%s does not name the default of --limit, %s: %s", command.FullPath(), flag.Default, flag.Help)
			}
		}
	}
}

func TestProjectionsStatus_saysWhatIsQuarantinedAndWhatBlocks(t *testing.T) {
	d := newHeldDesk(t, lenient(needing("log", "l")), needing("names", "n"))
	d.appendPayloads("c-1", `{"l":1}`)
	d.appendPayloads("c-2", `{"n":1}`)
	d.appendPayloads("c-3", `{"l":1,"n":1}`)
	d.apply()
	d.says("projections status", "NAME STATE BLOCKING QUARANTINED PAUSED BEHIND FAILURES BUILT BY", "log quarantined 0 1 0 0 1", "names blocking 1 0 0 0 1")
	d.says("projections status names", "names: blocking; blocking 1, quarantined in 0, paused in 0, behind in 0 campaigns")
	d.pause("names", "c-3")
	d.says("projections status", "names blocking, paused 1 0 1 0 1")
	d.pause("log", "")
	d.says("projections status", "log paused for all campaigns by ana: a bug 0 1 3 0 1")
	d.says("projections status log", "campaigns that have not advanced since the pause are not listed", "c-2 quarantined")
	d.says("report", "log is paused for all campaigns")
}

func TestDigest_untilZeroIsOfNoEvent(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	live := must.Get(d.st.ReadModel().Live(t.Context())).Or(t)
	empty, full, err := d.set.Digests(t.Context(), live, "has no rows")
	live.Close()
	if err != nil {
		t.Fatal(err)
	}
	d.says("digest --campaign c-1 --until 0", "campaign c-1 at seq 0", empty["log"], empty["names"], full)
	d.says("digest --campaign c-1 --until 0 --json", `"applied_seq": 0`, full)
	d.runs("digest --campaign c-1 --until=-1", exitUsage, "--until must be 0 or more")
	d.runs("verify --campaign c-1 --until-seq 0", exitUsage, "--until-seq must be 1 or more")
}

// A command that only compares, with files that no server has loaded, must not pass for a server that
// applies events with them.
func TestCommands_thatOnlyReadInstallNoProjections(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	before := must.Get(d.st.ReadModel().Versions(t.Context())).Or(t)
	dir := d.flags[5]
	write := func(name, text string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("names.sql", strings.ReplaceAll(logging("names"), ":seq)", ":seq + 1)"))
	const other = "this is not the version of projection names that events are applied with"
	for _, command := range []string{"verify", "check", "digest --campaign c-1", "runs start verify --all", "runs resume 1", "rehearse " + dir} {
		d.runs(command, exitUsage, other)
	}
	d.says("verify --projection log", "the live rows of projection log of 1 campaign match the journal")
	d.says("digest --campaign c-1 --projection log", "campaign c-1 at seq 2 log sha256:")
	d.says("digest --campaign c-1 --until 1", "campaign c-1 at seq 1", "names sha256:")
	d.says("failures projections", "no failures")
	d.says("projections status", "names live 0 0 0 0 0 version ", "; loaded is ")
	d.runs("runs start rebuild --all --dry-run", exitFailed, "1 would change")

	write("names.sql", logging("names"))
	write("new.sql", logging("new"))
	d.runs("verify", exitUsage, "no server has loaded projection new, or none has any more")
	d.says("check --no-replay", "no problems found")
	d.says("verify --projection log --projection names", "the live rows of projection log, projection names of 1 campaign match the journal")
	must.Equal(t, must.Get(d.st.ReadModel().Versions(t.Context())).Or(t), before, "the loaded versions")
}

// Before a server has started, a check has a journal to look at, and a verify no rows.
func TestCommands_ofAJournalThatNoServerHasApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags := []string{"--journal-db", "sqlite:" + filepath.Join(dir, "journal.db"), "--projections-db", "sqlite:" + filepath.Join(dir, "projections.db")}
	if _, errs, code := here(t.Context(), append([]string{"migrate"}, flags...)...); code != exitDone {
		t.Fatal(errs)
	}
	h := &heldDesk{t: t, flags: flags}
	h.says("check", "no problems found")
	h.runs("verify", exitUsage, "no server has loaded projection campaigns", "start it with these")
	h.runs("digest --campaign c-1", exitUsage, "no server has loaded projection campaigns")
}

// The rows are of the journal. Who asks for them wants to know whether readers see the same.
func TestCampaignsRows_tellsOfOtherLiveRows(t *testing.T) {
	d := newHeldDesk(t, logging("log"), logging("names"))
	d.append("c-1", 2)
	d.says("campaigns rows c-1", "campaign c-1 as of event 2 of 2, replayed from the journal")
	d.lacks("campaigns rows c-1", "drift")
	db := dbtest.Open(t, d.flags[3])
	must.Get(db.Exec(`delete from log where seq = 2`)).Or(t)
	d.says("campaigns rows c-1", "drift in projection log: 1 live row is not as below; which ones: outboxweb verify --campaign=c-1 --projection log")
	d.append("c-2", 1)
	d.runs("verify --projection log", exitFailed, "1 of 2 campaigns differ from the journal", "fix them with: outboxweb runs start rebuild --campaign=c-1 --projection log")
	must.Get(db.Exec(`delete from log`)).Or(t)
	d.runs("verify", exitFailed, "2 of 2 campaigns differ from the journal", "fix them with: outboxweb runs start rebuild --all")
}

func TestCheck_invariantsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", "commands.md"))).Or(t)
	_, table, _ := strings.Cut(string(text), "| invariant | what holds |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var want []string
	for _, i := range outbox.Invariants {
		want = append(want, fmt.Sprintf("| `%s` | %s |", i.Name, i.Holds))
	}
	must.Equal(t, strings.Split(table, "\n"), want, "docs/commands.md")
}

// TestCheck_replaysAProjectionThatIsSetAsideOnlyAsFarAsItStands has one live projection and one
// that was quarantined half-way.
func TestCheck_replaysAProjectionThatIsSetAsideOnlyAsFarAsItStands(t *testing.T) {
	d := newHeldDesk(t, logging("log"), `-- projection: names
-- tables: names
-- on-failure: quarantine
-- schema
create table names (campaign_id text not null, name text not null, primary key (campaign_id, name));
-- on: noted
insert into names (campaign_id, name) values (:campaign_id, :payload.name!);
`)
	d.appendPayloads("c-1", `{"name":"Ash"}`, `{}`, `{"name":"Birch"}`)
	d.apply()
	db := dbtest.Open(t, d.flags[3])
	var aside string
	err := db.QueryRow(`select projection || ' ' || applied_seq from projection_cursors where state <> 'live'`).Scan(&aside)
	must.Need(t, err == nil && aside == "names 1", "set aside: %q, %v", aside, err)
	d.appendPayloads("c-2", `{"name":"Elm"}`)
	d.says("check")
	must.Get(db.Exec(`update names set name = 'Aspen'`)).Or(t)
	d.runs("check", exitFailed, "projection names differs from the journal: 1 row missing, 0 changed, 1 unexpected; first divergence at event 1 or earlier")
	for id, want := range map[string]string{"c-9": "table log has rows of a campaign that is not in the journal", "c-2": "table log has rows of a campaign of which no event was applied"} {
		must.Get(db.Exec(`insert into log (campaign_id, seq) values ($1, 1)`, id)).Or(t)
		d.runs("check", exitFailed, want)
	}
}
