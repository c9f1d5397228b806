package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// A command compares the projections that it has; a service may have others, such as those in Go.
func TestCommands_nameProjectionsThatAreNotLoaded(t *testing.T) {
	d := newDesk(t, logging("log"), logging("names"))
	d.applied("c-1", events(2)...)
	const left = "not compared: projection names, which this command has not loaded"
	d.lacks("verify", left).lacks("check", left)
	must.OK(t, os.Remove(filepath.Join(d.dir, "names.sql")))
	d.says("verify", "The live rows of 1 campaign match the journal", left).says("check", "no problems found", left)
	d.says("verify --json", `"not_loaded": [ "names" ]`).says("check --json", `"not_loaded": [ "names" ]`)
	d.lacks("verify --projection log", left).lacks("check --no-replay", left)
	must.OK(t, d.st.ReadModel().Leave(t.Context(), []string{"log"}))
	d.says("projections status", "log live", "names not loaded 0 0 0 0 0")
	d.says("projections status names", "names: not loaded; blocking 0", "Its rows are not updated, and not verified. Once it is loaded again, a replay starts by itself and catches it up.")
	d.says("projections status names --json", `"not_loaded": true`)
	d.says("verify", "(2 events in 1 campaign)", "not compared: projection names, which is not loaded any more")
	d.write("names.sql", logging("names")).says("projections status", "names not loaded 0 0 0 0 0")
}

func TestCommands_sayWhatIsPaused(t *testing.T) {
	d := newDesk(t, logging("log"), logging("names"))
	d.applied("c-1", events(2)...).applied("c-2", "{}")
	d.pause("names", "c-1").says("verify", "The live rows of 2 campaigns match the journal").applied("c-1", events(3)...)
	d.says("campaigns list", "c-1 current 5 5 Everything is applied, but projection names is paused, 3 events behind")
	d.says("campaigns list --json", `"held_projections": [ { "projection": "names", "applied_seq": 2,`)
	d.says("events", "c-1 3 applied in part noted", "c-1 2 applied noted")
	d.says("digest --campaign c-1", "campaign c-1 at seq 5 log sha256:", "at seq 2, paused")
	d.says("digest --campaign c-1 --projection log", "campaign c-1 at seq 5 log sha256:")
	d.says("digest --campaign c-1 --json", `"seqs": { "log": 5, "names": 2 }`)
	const left = "names: events 3 to 5 not compared, paused"
	d.says("check", "no problems found", "not compared: events 3 to 5 of campaign c-1 in projection names, paused")
	d.says("verify", "The live rows of 1 campaign match the journal", "1 campaign was not fully compared", left)
	d.says("report", "Projection names is paused for 1 campaign.")
	d.says("runs start rebuild --all --dry-run", left, "2 campaigns replayed: 1 would not change, 1 not fully compared, 0 would change, 0 cannot be replayed")
	d.says("runs start rebuild --all --dry-run --json", `"not_compared": 1`, `"left_out": "paused"`)
	d.says("runs start rebuild --campaign c-1 --wait", "run 3 is completed", "not complete 1", "digests at seq 5", "at seq 2, paused", left)
	run := must.Get(d.st.Runs.Get(t.Context(), 3)).Or(t)
	must.Hold(t, run.Verdict == "" && run.Counts.NotCompared == 1, "the rebuild says %q and %+v", run.Verdict, run.Counts)
	d.has("c-1", "{}").says("requeue c-1 6 --dry-run", "c-1 passes 6 log: 1 row added; names: events 3 to 6 not compared, paused")
	must.Get(d.st.Runs.ResumeProjection(t.Context(), command("fixed"), "names", "c-1", d.set.Infos())).Or(t)
	must.Get(d.st.Runs.Cancel(t.Context(), command(""), 4)).Or(t)
	d.says("verify", "The live rows of 1 campaign match the journal", "names: all events not compared, behind until a replay has caught it up")
	d.says("report", "Projection names is behind in 1 campaign, and no run is catching it up")
	d.pause("log", "").says("requeue c-1 6 --dry-run", "log: event 6 not compared, paused")
}

func TestRunsShow_namesTheEventThatFailed(t *testing.T) {
	d := newDesk(t, lenient(needing("log", "l")), logging("names"))
	d.applied("c-1", `{"l":1}`, `{"l":2}`, `{}`)
	d.ends(exitFailed, "runs start rebuild --campaign c-1 --wait", "CAMPAIGN OUTCOME UP TO EVENT WHAT DIFFERED", "log: event 3 cannot be replayed")
}

func TestRequeue_restsOnARehearsalWhoseFilesAreLoaded(t *testing.T) {
	d := newDesk(t, logging("log"), needing("names", "n"))
	d.applied("c-1", "{}")
	d.says("requeue c-1 1", "applied is not yet verified: compare the read models with: outboxweb verify --campaign=c-1")
	d.work()
	d.says("requeue --dead", "requeued 1 dead row", "outboxweb verify --all")
	d.work()
	fixed := d.rehearsed("names", logging("names"))
	d.says("rehearse "+fixed, "rehearsed: names ", "would pass")
	d.says("runs show 1", "rehearsed: names ", "1 of 1 blocked campaign would pass", "c-1 passes 1 log: 1 row added; names: 1 row added",
		"CAMPAIGN TABLE ROW KEY FIELD NOW THEN c-1 log added seq=1 absent there")
	d.says("runs list", "1 passes")
	const requeue = "requeue --dead --canary --rehearsal 1"
	d.ends(exitUsage, "requeue --dead --rehearsal 1", "--rehearsal needs --canary")
	d.ends(exitFailed, requeue, "the files of rehearsal 1 are not loaded yet")
	d.ends(exitFailed, "requeue --dead --canary --rehearsal 9", "run 9")
	d.load("names", logging("names")).says(requeue, "started operation 1: 1 dead row")
	d.says("operations show 1", "it rests on rehearsal 1; 1 of the operation's 1 row passed it")
	for _, version := range []string{"first", "second"} {
		must.OK(t, d.st.Loaded(t.Context(), campaign.InstanceState{ID: "w-1"}, []campaign.Definition{{Projection: "names", Version: version, File: campaign.RehearsalFile{Name: "names.sql", Text: version}}}))
	}
	d.says("operations show 1", "deployed while it ran, at ", "Version second of projection names, in place of first: rows requeued after that were tried with it, and rehearsal 1 was not of it")
}

// rehearsed is a directory with the changed files of projections, each as its name and its text.
func (d *desk) rehearsed(texts ...string) (dir string) {
	dir = d.t.TempDir()
	for file := range slices.Chunk(texts, 2) {
		must.OK(d.t, os.WriteFile(filepath.Join(dir, file[0]+".sql"), []byte(file[1]), 0o600))
	}
	return dir
}

// load puts a changed file of a projection in place of the loaded one, as a restart does.
func (d *desk) load(name, text string) *desk {
	d.write(name+".sql", text)
	must.OK(d.t, runs.Install(d.t.Context(), d.st.Store, must.Get(projection.Load("sqlite", d.dir)).Or(d.t)))
	return d
}

// The steps after a rehearsal reach what is blocked and what is quarantined, and only those; files that
// fix nothing are not to be loaded.
func TestRehearsal_saysWhatComesNext(t *testing.T) {
	d := newDesk(t, lenient(needing("log", "l")), needing("names", "n"))
	d.has("c-1", `{"n":1,"m":1,"x":1}`).has("c-2", `{"l":1}`).applied("c-3", `{"l":1,"m":1}`)
	const replay = " what is quarantined, which a requeue does not reach: outboxweb runs start replay --all --projection=log"
	const canary = "requeue the blocked campaigns, a canary first: outboxweb requeue --dead --canary --rehearsal="
	rehearse := func(log, names string) string { return "rehearse " + d.rehearsed("log", log, "names", names) }
	d.says(rehearse(lenient(logging("log")), logging("names")), "3 of 3 blocked or quarantined campaigns would pass", "load these files and restart, then "+canary+"1 then replay"+replay+" the rows")
	d.ends(exitFailed, rehearse(lenient(needing("log", "l")), needing("names", "m")), "1 of 2 blocked campaigns would pass; 1 fails",
		"they do not fix every campaign; for those that would pass, load these files and restart, then "+canary+"2 the rows")
	d.ends(exitFailed, rehearse(lenient(needing("log", "l")), needing("names", "x")), "0 of 2 blocked campaigns would pass", "do not load these files: change them, and rehearse again")
	d.lacks("runs show 3", "restart").lacks("runs show 3", "canary")
	d.says("failures list", "projections are quarantined, which a requeue does not reach: PROJECTION CAMPAIGNS SINCE LAST FINGERPRINT ERROR log 1 ")
	d.says("rehearse "+d.rehearsed("log", lenient(logging("log")))+" --campaign c-1", "1 of 1 quarantined campaign would pass", "load these files and restart, then replay"+replay)
	d.load("log", lenient(logging("log"))).says("runs show 4", "these files are loaded: replay"+replay)
}

func TestRehearsal_withoutALoadedProjection(t *testing.T) {
	d := newDesk(t, logging("log"), needing("names", "n"))
	d.applied("c-1", "{}")
	fixed := d.rehearsed("log", logging("log"), "names", logging("names"))
	d.flags[5] = d.rehearsed("names", needing("names", "n"))
	const ran = "ran without projection log, which is loaded; rehearse again with it: on the server's page, or with its file in the command's --projections"
	d.says("rehearse "+filepath.Join(fixed, "names.sql"), "1 of 1 blocked campaign would pass", "no requeue can rest on this rehearsal: it "+ran)
	d.ends(exitFailed, "rehearse "+fixed, `log.sql: projection "log" is not loaded, and a changed file replaces that of a loaded projection; name the replaced file in --projections, too`)
	d.flags[5] = d.dir
	d.load("names", logging("names")).ends(exitFailed, "requeue --dead --canary --rehearsal 1", "rehearsal 1 "+ran)
}

func TestEventsCommand_saysWhyASearchIsEmpty(t *testing.T) {
	d := newDesk(t, logging("log"), logging("names"))
	d.applied("store-07", events(1)...)
	d.ends(exitFailed, "events --event-type Noted --campaign store-007", "no event matches there is no campaign store-007 no event has the type Noted")
	d.ends(exitFailed, "events --campaign store-007 --json")
	d.says("events --campaign store-07 --event-type Noted", "no event matches")
	d.says("events --since 2025-03-04 --until 12:00", "no event matches times are when events were recorded; --time occurred searches by when they occurred")
	d.says("events --since=-1h --time occurred", "store-07 1 applied noted")
}

func TestLists_sayThatTheyAreCut(t *testing.T) {
	d := newDesk(t, logging("log"), needing("names", "n"))
	for i := range 12 {
		d.has(fmt.Sprintf("c-%d", i), "{}")
	}
	long := strings.Repeat("c", 200)
	for i := range 51 {
		d.has(long, fmt.Sprintf(`{"n":%d}`, i))
	}
	d.work()
	for command, says := range map[string]string{
		"events --campaign " + long:       "there are more events than these 50; raise --limit, or filter",
		"campaigns list --limit 12":       "there are more campaigns than these 12; raise --limit, or filter",
		"report --status dead --limit 11": "there are more rows than these 11; raise --limit, or filter",
		"report":                          "and 2 more: outboxweb campaigns list --state blocked; likewise failing and diverged",
		"campaigns list":                  long[:40] + "… current 51 51",
		"campaigns list --json":           `"campaign_id": "` + long + `"`,
	} {
		d.says(command, says)
	}
	for _, whole := range []string{"events --limit 51 --campaign " + long, "campaigns list --limit 13", "campaigns list --state blocked --limit 12", "report --status dead --limit 12"} {
		d.lacks(whole, "there are more")
	}
	out, _, _ := d.run("events", "--json", "--campaign", long)
	must.Hold(t, !strings.Contains(out, "more"), "the notice is part of the document: %s", out)
	for _, command := range newParser(&cli{}, streams{}).Model.Leaves(true) {
		for _, flag := range command.Flags {
			must.Hold(t, flag.Name != "limit" || strings.Contains(flag.Help, flag.Default), "%s does not name the default of --limit, %s: %s", command.FullPath(), flag.Default, flag.Help)
		}
	}
}

func TestProjectionsStatus_saysWhatIsQuarantinedAndWhatBlocks(t *testing.T) {
	d := newDesk(t, lenient(needing("log", "l")), needing("names", "n"))
	d.has("c-1", `{"l":1}`).has("c-2", `{"n":1}`).applied("c-3", `{"l":1,"n":1}`)
	d.says("projections status", "NAME STATE BLOCKING QUARANTINED PAUSED BEHIND FAILURES BUILT BY", "log quarantined 0 1 0 0 1", "names blocking 1 0 0 0 1")
	d.says("projections status names", "names: blocking; blocking 1, quarantined in 0, paused in 0, behind in 0 campaigns")
	d.pause("names", "c-3").says("projections status", "names blocking, paused 1 0 1 0 1")
	d.pause("log", "").says("projections status", "log paused for all campaigns by ana: a bug 0 1 3 0 1")
	d.says("projections status log", "campaigns that have not advanced since the pause are not listed", "c-2 quarantined")
	d.says("report", "log is paused for all campaigns")
}

// A command that only compares, with files that no server has loaded, must not pass for a server that
// applies events with them.
func TestCommands_thatOnlyReadInstallNoProjections(t *testing.T) {
	d := newDesk(t, logging("log"), logging("names"))
	d.applied("c-1", events(2)...)
	live := must.Get(d.st.ReadModel().Live(t.Context())).Or(t)
	empty, full, err := d.set.Digests(t.Context(), live, "has no rows")
	live.Close()
	must.OK(t, err)
	d.says("digest --campaign c-1 --until 0", "campaign c-1 at seq 0", empty["log"], empty["names"], full)
	d.says("digest --campaign c-1 --until 0 --json", `"applied_seq": 0`, full)
	d.ends(exitUsage, "digest --campaign c-1 --until=-1", "--until must be 0 or more")
	d.ends(exitUsage, "verify --campaign c-1 --until-seq 0", "--until-seq must be 1 or more")

	before := must.Get(d.st.ReadModel().Versions(t.Context())).Or(t)
	d.write("names.sql", strings.ReplaceAll(logging("names"), ":seq)", ":seq + 1)"))
	const other = "this is not the version of projection names that events are applied with"
	for _, command := range []string{"verify", "check", "digest --campaign c-1", "runs start verify --all", "runs resume 1", "rehearse " + d.dir} {
		d.ends(exitUsage, command, other)
	}
	d.says("verify --projection log", "The live rows of projection log of 1 campaign match the journal")
	d.says("digest --campaign c-1 --projection log", "campaign c-1 at seq 2 log sha256:")
	d.says("digest --campaign c-1 --until 1", "campaign c-1 at seq 1", "names sha256:")
	d.says("failures projections", "no failures").says("projections status", "names live 0 0 0 0 0 version ", "; loaded is ")
	d.ends(exitFailed, "runs start rebuild --all --dry-run", "1 would change")

	d.write("names.sql", logging("names")).write("new.sql", logging("new"))
	d.ends(exitUsage, "verify", "no server has loaded projection new, or none has any more")
	d.says("check --no-replay", "no problems found")
	d.says("verify --projection log --projection names", "The live rows of projections log, names of 1 campaign match the journal")
	must.Equal(t, must.Get(d.st.ReadModel().Versions(t.Context())).Or(t), before, "the loaded versions")
}

// Before a server has started, a check has a journal to look at, and a verify no rows.
func TestCommands_ofAJournalThatNoServerHasApplied(t *testing.T) {
	t.Parallel()
	p := newPair(t, t.TempDir())
	d := &desk{t: t, flags: []string{"--journal-db", p.Journal, "--projections-db", p.Projections}}
	d.says("check", "no problems found")
	d.ends(exitUsage, "verify", "no server has loaded projection campaigns", "start it with these")
	d.ends(exitUsage, "digest --campaign c-1", "no server has loaded projection campaigns")
}

// The rows are of the journal. Who asks for them wants to know whether readers see the same.
func TestCampaignsRows_tellsOfOtherLiveRows(t *testing.T) {
	d := newDesk(t, logging("log"), logging("names"))
	d.applied("c-1", events(2)...).says("campaigns rows c-1", "campaign c-1 as of event 2 of 2, replayed from the journal")
	d.lacks("campaigns rows c-1", "drift")
	d.exec(d.pair.Projections, `delete from log where seq = 2`)
	d.says("campaigns rows c-1", "drift in projection log: 1 live row is not as below; which ones: outboxweb verify --campaign=c-1 --projection=log")
	d.applied("c-2", events(1)...)
	d.ends(exitFailed, "verify --projection log", "Drift in 1 of 2 campaigns: the live rows of projection log differ from the journal", "fix them with: outboxweb runs start rebuild --campaign=c-1 --projection=log")
	d.exec(d.pair.Projections, `delete from log`)
	d.ends(exitFailed, "verify", "Drift in 2 of 2 campaigns: the live rows differ from the journal", "fix them with: outboxweb runs start rebuild --all")
}

// invariant is the line of one in the source: its name, and what holds.
var invariant = regexp.MustCompile("Invariant = \"(\\w+)\" +// (.+)")

func TestCheck_invariantsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(paper(t, "docs/commands.md"), "| invariant | what holds |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var want []string
	for _, i := range invariant.FindAllStringSubmatch(paper(t, "internal/campaign/check.go"), -1) {
		want = append(want, fmt.Sprintf("| `%s` | %s |", i[1], event.Sentence(i[2])))
	}
	must.Need(t, len(want) > 20, "only %d invariants were found", len(want))
	must.Equal(t, strings.Split(table, "\n"), want, "docs/commands.md")
}

// One projection is live, and one was quarantined half-way.
func TestCheck_replaysAProjectionThatIsSetAsideOnlyAsFarAsItStands(t *testing.T) {
	d := newDesk(t, logging("log"), lenient(needing("names", "n")))
	d.applied("c-1", `{"n":1}`, `{}`, `{"n":3}`).says("projections status names", "c-1 quarantined 1").has("c-2", `{"n":1}`)
	d.says("check")
	d.exec(d.pair.Projections, `update names set seq = 7`)
	d.ends(exitFailed, "check", "projection names differs from the journal: 1 row missing, 0 changed, 1 unexpected; first divergence at event 1 or earlier")
	for id, want := range map[string]string{"c-9": "table log has rows of a campaign that is not in the journal", "c-2": "table log has rows of a campaign of which no event was applied"} {
		d.exec(d.pair.Projections, `insert into log (campaign_id, seq) values ('`+id+`', 1)`).ends(exitFailed, "check", want)
	}
}
