package templates

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestLagText_saysHowMuchIsKnown(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]outbox.Publisher{
		"0; ": {}, "1,204; the first waiting for 1 min": {LagEvents: 1204, LagSeconds: 70}, "at least 1,204; the first waiting for 1 min": {LagEvents: 1204, LagSeconds: 70, LagCapped: true},
		"not known; scanning; no event of the topic found so far": {LagCapped: true},
	} {
		must.Equal(t, lagText(p)+"; "+lagNote(&p), want)
	}
}

func TestActSentence_namesThePublisher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ action, after, want string }{
		{"publisher_pause", `{}`, "Paused publisher scenes/archive."},
		{"publisher_resume", `{}`, "Resumed publisher scenes/archive and cleared its errors."},
		{"publisher_reset", `{}`, "Reset publisher scenes/archive: errors cleared."},
		{"publisher_seek", `{"seek":{"from":2,"to":9000,"skips":1200,"capped":true}}`, "Moved publisher scenes/archive from position 2 to 9000: at least 1,200 events skipped."},
		{"publisher_seek", `{"seek":{"from":9,"to":2,"repeats":1}}`, "Moved publisher scenes/archive from position 9 to 2: 1 event repeated."},
		{"publisher_seek", `{"seek":{"from":9,"to":2}}`, "Moved publisher scenes/archive from position 9 to 2: no event repeated."},
		{"publisher_skip", `{"skip":{"position":7,"campaign_id":"c-1","seq":3,"event_type":"scene.a"}}`, "Publisher scenes/archive skipped event 3 (scene.a) of campaign c-1."},
		{"publisher_test", `{"ok":true,"seconds":0.0124}`, "Sent a test event to publisher scenes/archive: delivered in 12 ms."},
		{"publisher_test", `{"ok":false,"error":"refused\nat length"}`, "Sent a test event to publisher scenes/archive: refused"},
		{"publisher_skip", `null`, "Changed publisher scenes/archive."},
	} {
		a := outbox.AuditEntry{Action: outbox.Action(c.action), Before: json.RawMessage(`{"topic":"scenes","publisher":"archive"}`), After: json.RawMessage(c.after)}
		must.Equal(t, actionSentence(a), c.want, c.action)
	}
}

// A live row that no event explains has no history: its link would lead to a missing page.
func TestRowLinks_leadToRowsThatTheJournalMakes(t *testing.T) {
	t.Parallel()
	v := RunResultView{Result: outbox.RunResult{CampaignID: "c"}, Rows: map[string][]string{"p": {"row", "row"}}}
	for first, want := range map[int64][]URL{
		0: {"/campaigns/c/read-model?row=row&seq=9", ""},
		3: {"/campaigns/c/read-model?row=row&seq=3", "/campaigns/c/read-model?row=row&seq=3"},
	} {
		samples := []outbox.RowChange{{Kind: outbox.RowChanged}, {Kind: outbox.RowRemoved}}
		one := outbox.ProjectionResult{Projection: "p", Seq: 9, Comparison: &outbox.Comparison{FirstSeq: first, Samples: samples}}
		must.Equal(t, v.rowLinks(Page{}, one), want, "first divergence at event", first)
	}
}

// A projection may fail in a campaign in which others were rebuilt.
func TestRunSentences_ofARebuildPromiseNoMoreThanItDoes(t *testing.T) {
	t.Parallel()
	text := runWords[outbox.RunRebuild].left
	must.Hold(t, strings.Contains(text, "failed projections keep their rows") && strings.Contains(text, "may have been rebuilt"), "%v", text)
	paused := outbox.Run{Kind: outbox.RunRebuild, Campaigns: outbox.Progress{Done: 2, Total: 2}, Counts: outbox.RunCounts{Matched: 1, NotCompared: 1}}
	must.Equal(t, runOutcome(Page{}, paused), "Rebuilt. No rows differed before. In 1 of 2 campaigns, a paused projection lacks events.")
}

// Nothing is to be requeued after a rehearsal of healthy campaigns: a verify says what to rebuild.
func TestRehearsalAnswer_leadsToAVerifyIfNothingWasBlocked(t *testing.T) {
	t.Parallel()
	d := outbox.FixRehearsal{Run: outbox.Run{ID: 3, Status: outbox.RunCompleted}, Healthy: outbox.RunCounts{Drifted: 2}, Versions: []outbox.RehearsalVersion{{Projection: "guests"}}}
	d.Describe()
	admin := Page{Me: outbox.Identity{Role: outbox.RoleAdmin}}
	for loaded, want := range map[bool]string{false: "then a verify can be started here, and says what to rebuild", true: `href="/runs/new?all_campaigns=true&amp;kind=verify&amp;projections=guests" data-testid="rehearsal-verify"`} {
		d.Loaded = loaded
		html := rendered(t, rehearsalAnswer(admin, d))
		text := html
		must.Hold(t, strings.Contains(text, want) && !strings.Contains(text, "canary") && strings.Contains(text, "healthy ones alone are compared") && strings.Contains(text, "2 of 2 healthy campaigns would get other rows"), "loaded %v: %s", loaded, text)
	}
}

func TestFailuresView_foldsALongListThatRepeatsTheCauses(t *testing.T) {
	t.Parallel()
	open := outbox.FailureFilter{Status: outbox.FailureOpen, Limit: 50}
	failures := func(n int, fingerprint string) (all []outbox.ProjectionFailure) {
		for i := range n {
			all = append(all, outbox.ProjectionFailure{CampaignID: fmt.Sprintf("c-%d", i), Fingerprint: fingerprint})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		filter outbox.FailureFilter
		stuck  []outbox.ProjectionFailure
		want   bool
	}{
		{"long and repeated", open, failures(20, "no seat"), true},
		{"short", open, failures(campaignsOnPage, "no seat"), false},
		{"with an error that is no cause", open, append(failures(20, "no seat"), failures(1, "quarantined")...), false},
		{"chosen", outbox.FailureFilter{Status: outbox.FailureOpen, Projection: "seats", Limit: 50}, failures(20, "no seat"), false},
		{"of all statuses", outbox.FailureFilter{Limit: 50}, failures(20, "no seat"), false},
	} {
		v := FailuresView{Filter: c.filter, All: []outbox.AssessedGroup{{ErrorGroup: outbox.ErrorGroup{Fingerprint: "no seat"}}}}
		v.Stuck.Items = c.stuck
		must.Equal(t, v.repeated(), c.want, "a list", c.name, "folded")
	}
}

func TestProgressParts_fillTheBarAndShowTheLeast(t *testing.T) {
	t.Parallel()
	for _, n := range []outbox.OperationTotals{
		{Chosen: 43, FailedAgain: 2, Left: 41},
		{Chosen: 20_000, Done: 19_998, Skipped: 1, FailedAgain: 1},
		{Chosen: 3, Waiting: 1, Requeued: 1, Done: 1},
		{Chosen: 7, Waiting: 1, Requeued: 1, Done: 1, Skipped: 1, FailedAgain: 1, Left: 1, Unwatched: 1},
	} {
		var end int64
		for _, p := range progressParts(outbox.Operation{Totals: n}) {
			must.Hold(t, p.from == end && p.width >= 5 && n.Of(p.result) != 0, "%+v: part %+v after %d", n, p, end)
			end = p.from + p.width
		}
		must.Equal(t, end, 1000, "the bar ends at")
	}
	must.Equal(t, len(progressParts(outbox.Operation{})), 0, "an operation without rows")
}

func TestOperationTwins_areWholeCommands(t *testing.T) {
	t.Parallel()
	p := Page{Me: outbox.Local(), Origin: "http://127.0.0.1:8080"}
	v := NewOperationView{Selection: outbox.Selection{Filter: outbox.RequeueFilter{CampaignID: "it's", Limit: 7}},
		Preview: outbox.OperationPreview{Rows: 7, Released: 2000, Confirm: "requeue 7 rows"}}
	twins := startTwins(p, v)
	must.Equal(t, twins.Curl, `curl -s -H 'Content-Type: application/json' -d '{"kind":"requeue","filter":{"campaign_id":"it'\''s","event_type":"","fingerprint":"","limit":7},"canary":true,"reason":"why","confirm":"requeue 7 rows","expected_rows":7,"expected_released":2000}' http://127.0.0.1:8080/api/v1/operations`, "curl")
	must.Equal(t, twins.CLI, `outboxweb requeue --dead --campaign='it'\''s' --limit=7 --canary --reason=why --confirm='requeue 7 rows'`, "command")
	elsewhere := p
	elsewhere.Flags = []string{"--config=/etc/it's.yaml", "--journal-db=sqlite:/var/j.db"}
	cli := startTwins(elsewhere, v).CLI
	must.Hold(t, strings.HasPrefix(cli, `outboxweb '--config=/etc/it'\''s.yaml' --journal-db=sqlite:/var/j.db requeue --dead`), "command: %s", cli)
	v.Selection = outbox.Selection{Rows: []outbox.RowKey{{CampaignID: "c", Seq: 2}}}
	must.Equal(t, startTwins(p, v).CLI, "", "the command for named rows, which there is not")
	v.Selection, v.Rehearsal = outbox.Selection{}, 9
	twins = startTwins(p, v)
	must.Hold(t, strings.HasPrefix(twins.CLI, "outboxweb requeue --dead --canary --rehearsal=9 --reason=why --confirm=") && strings.Contains(twins.Curl, `"canary":true,"rehearsal":9,`), "resting on a rehearsal: %+v", twins)
	twins = operationTwins(p, outbox.Operation{ID: 3, Status: outbox.OperationStopped})
	must.Equal(t, twins.CLI, "outboxweb operations acknowledge --reason=why -- 3")
	must.Equal(t, twins.Curl, `curl -s -H 'Content-Type: application/json' -d '{"reason":"why","expected":{"status":"stopped"}}' http://127.0.0.1:8080/api/v1/operations/3/acknowledge`)
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// made makes an instance in a condition with as many leased campaigns as ends, each expiring after that time.
func made(c outbox.Condition, ends ...time.Duration) outbox.InstanceState {
	i := outbox.InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: noon, LastSeen: noon}
	hour := noon.Add(-time.Hour)
	switch c {
	case outbox.InstanceIdle:
		i.LastSeen = hour
	case outbox.InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case outbox.InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Leases.Add(outbox.HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: noon.Add(end)})
	}
	return i
}

func TestInstances_showWhatIsKnownAndNoMore(t *testing.T) {
	t.Parallel()
	many := made(outbox.InstanceRunning)
	for range outbox.MaxHeldLeases + 4 {
		many.Leases.Add(outbox.HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, ExpiresAt: noon.Add(time.Minute)})
	}
	withheld := made(outbox.InstanceSilent)
	withheld.Leases.Add(outbox.HeldLease{CampaignID: "c", Epoch: 2, Withheld: true, ExpiresAt: noon.Add(-time.Minute)})
	idle := made(outbox.InstanceIdle)
	idle.Here = true
	unknown := outbox.InstanceState{ID: "<x>", Leases: made(outbox.InstanceSilent, time.Minute).Leases}
	for name, c := range map[string]struct {
		list   []outbox.InstanceState
		shows  []string
		hushes []string
	}{
		"running": {[]outbox.InstanceState{many}, []string{`class="badge s-running"`, "0/s", "<details><summary>Running; 24 campaigns leased.", "and 4 more, whose leases expire later; 120 rows in total"}, nil},
		"idle":    {[]outbox.InstanceState{idle}, []string{`class="badge s-idle"`, "Idle for 1 h; nothing leased.", "No heartbeat (SQLite)"}, []string{"0/s", `class="held"`, "not seen"}},
		"unseen":  {[]outbox.InstanceState{made(outbox.InstanceIdle)}, []string{"</span> not seen<", "Not seen for 1 h; nothing leased."}, []string{"0/s", "dle for"}},
		"silent":  {[]outbox.InstanceState{withheld}, []string{`class="badge s-silent"`, "<details open>", "paused or diverged, epoch 2", "ended"}, []string{"0/s", "event 0"}},
		"stopped": {[]outbox.InstanceState{made(outbox.InstanceStopped)}, []string{`class="badge s-stopped"`, "nothing leased."}, []string{"0/s", `class="held"`}},
		"unknown": {[]outbox.InstanceState{unknown}, []string{"&lt;x&gt;", "unknown", "–", "events 3–7, epoch 2"}, []string{"<x>", "process 0", "version", ">0<"}},
	} {
		html := rendered(t, InstancesLive(Page{Now: noon}, InstancesView{List: c.list, Range: outbox.Range{}, History: outbox.History{Window: outbox.Range{}.Window(noon)}}))
		_, table, _ := strings.Cut(html, "<tbody>")
		for _, text := range c.shows {
			must.Hold(t, strings.Contains(table, text), "%s: lacks %q:\n%s", name, text, table)
		}
		for _, text := range c.hushes {
			must.Hold(t, !strings.Contains(table, text), "%s: has %q:\n%s", name, text, table)
		}
	}
}
