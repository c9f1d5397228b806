package templates

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestLagText_saysHowMuchIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p          outbox.Publisher
		text, note string
	}{
		{outbox.Publisher{}, "0", ""},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70}, "1,204", "the first waiting for 1 min"},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70, LagCapped: true}, "at least 1,204", "the first waiting for 1 min"},
		{outbox.Publisher{LagCapped: true}, "not known", "scanning; no event of the topic found so far"},
	} {
		if text, note := lagText(c.p), lagNote(c.p); text != c.text || note != c.note {
			t.Errorf("%q, %q, want %q, %q", text, note, c.text, c.note)
		}
	}
}

// A setting is shown as it is, not as an age, which is rounded down.
func TestSettingsLines_areExact(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{.05: "50 ms", 1: "1 s", 1.5: "1,500 ms", 60: "1 min", 90: "90 s", 5400: "90 min", 3600: "1 h"} {
		must.Equal(t, exactly(seconds), want, seconds, "seconds are shown as")
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
	if text := runLeft(outbox.Run{Kind: outbox.RunRebuild}); !strings.Contains(text, "failed projections keep their rows") || !strings.Contains(text, "may have been rebuilt") {
		t.Error(text)
	}
	paused := outbox.Run{Kind: outbox.RunRebuild, Campaigns: outbox.Progress{Done: 2, Total: 2}, Counts: outbox.RunCounts{Matched: 1, NotCompared: 1}}
	must.Equal(t, runOutcome(Page{}, paused), "Rebuilt. No rows differed before. In 1 of 2 campaigns, a paused projection lacks events.")
}

// Nothing is to be requeued after a rehearsal of healthy campaigns: a verify says what to rebuild.
func TestRehearsalAnswer_leadsToAVerifyIfNothingWasBlocked(t *testing.T) {
	t.Parallel()
	d := outbox.FixRehearsal{Run: outbox.Run{ID: 3, Status: outbox.RunCompleted}, Counts: outbox.RehearsalCounts{OtherRows: 2}, Versions: []outbox.RehearsalVersion{{Projection: "guests"}}}
	d.Describe()
	admin := Page{Me: outbox.Identity{Role: outbox.RoleAdmin}}
	for loaded, want := range map[bool]string{false: "then a verify can be started here, and says what to rebuild", true: `href="/runs/new?all_campaigns=true&amp;kind=verify&amp;projections=guests" data-testid="rehearsal-verify"`} {
		d.Loaded = loaded
		html := rendered(t, rehearsalAnswer(admin, d))
		if text := html; !strings.Contains(text, want) || strings.Contains(text, "canary") || !strings.Contains(text, "healthy ones alone are compared") || !strings.Contains(text, "2 of 2 healthy campaigns would get other rows") {
			t.Errorf("loaded %v: %s", loaded, text)
		}
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
	if want := `curl -s -H 'Content-Type: application/json' -d '{"kind":"requeue","filter":{"campaign_id":"it'\''s","event_type":"","fingerprint":"","limit":7},"canary":true,"reason":"why","confirm":"requeue 7 rows","expected_rows":7,"expected_released":2000}' http://127.0.0.1:8080/api/v1/operations`; twins.Curl != want {
		t.Errorf("curl: %s", twins.Curl)
	}
	must.Equal(t, twins.CLI, `outboxweb requeue --dead --canary --campaign='it'\''s' --limit=7 --confirm='requeue 7 rows' --reason 'why'`, "command")
	elsewhere := p
	elsewhere.Flags = []string{"--config=/etc/it's.yaml", "--journal-db=sqlite:/var/j.db"}
	if twins, want := startTwins(elsewhere, v), `outboxweb '--config=/etc/it'\''s.yaml' --journal-db=sqlite:/var/j.db requeue --dead`; !strings.HasPrefix(twins.CLI, want) {
		t.Errorf("command: %s, want it to begin with %s", twins.CLI, want)
	}
	v.Selection = outbox.Selection{Rows: []outbox.RowKey{{CampaignID: "c", Seq: 2}}}
	if twins = startTwins(p, v); twins.CLI != "" {
		t.Errorf("there is no command for named rows, and the page offers %s", twins.CLI)
	}
	v.Selection, v.Rehearsal = outbox.Selection{}, 9
	if twins = startTwins(p, v); !strings.HasPrefix(twins.CLI, "outboxweb requeue --dead --canary --rehearsal=9 --confirm=") || !strings.Contains(twins.Curl, `"canary":true,"rehearsal":9,`) {
		t.Errorf("resting on a rehearsal: %+v", twins)
	}
	o := outbox.Operation{ID: 3, Status: outbox.OperationStopped}
	if twins = operationTwins(p, o); twins.CLI != "outboxweb operations acknowledge 3 --reason 'why'" || twins.Curl != `curl -s -H 'Content-Type: application/json' -d '{"reason":"why","expected":{"status":"stopped"}}' http://127.0.0.1:8080/api/v1/operations/3/acknowledge` {
		t.Errorf("twins are %+v", twins)
	}
}
