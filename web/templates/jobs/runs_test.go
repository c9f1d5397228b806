package jobs

import (
	"strings"
	"testing"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// A live row that no event explains has no history: its link would lead to a missing page.
func TestRowLinks_leadToRowsThatTheJournalMakes(t *testing.T) {
	t.Parallel()
	v := RunResultView{Result: replay.RunResult{CampaignID: "c"}, Rows: map[string][]string{"p": {"row", "row"}}}
	for first, want := range map[int64][]ui.URL{
		0: {"/campaigns/c/read-model?row=row&seq=9", ""},
		3: {"/campaigns/c/read-model?row=row&seq=3", "/campaigns/c/read-model?row=row&seq=3"},
	} {
		samples := []projection.RowChange{{Kind: projection.RowChanged}, {Kind: projection.RowRemoved}}
		one := replay.ProjectionResult{Projection: "p", Seq: 9, Comparison: &projection.Comparison{FirstSeq: first, Samples: samples}}
		must.Equal(t, v.rowLinks(ui.Page{}, one), want, "first divergence at event", first)
	}
}

// A projection may fail in a campaign in which others were rebuilt.
func TestRunSentences_ofARebuildPromiseNoMoreThanItDoes(t *testing.T) {
	t.Parallel()
	text := runWords[replay.RunRebuild].left
	must.Hold(t, strings.Contains(text, "failed projections keep their rows") && strings.Contains(text, "may have been rebuilt"), "%v", text)
	paused := replay.Run{Kind: replay.RunRebuild, Campaigns: replay.Progress{Done: 2, Total: 2}, Counts: replay.RunCounts{Matched: 1, NotCompared: 1}}
	must.Equal(t, runOutcome(ui.Page{}, paused), "Rebuilt. No rows differed before. In 1 of 2 campaigns, a paused projection lacks events.")
}

// Nothing is to be requeued after a rehearsal of healthy campaigns: a verify says what to rebuild.
func TestRehearsalAnswer_leadsToAVerifyIfNothingWasBlocked(t *testing.T) {
	t.Parallel()
	d := replay.FixRehearsal{Run: replay.Run{ID: 3, Status: replay.RunCompleted}, Healthy: replay.RunCounts{Drifted: 2}, Versions: []replay.RehearsalVersion{{Projection: "guests"}}}
	d.Describe()
	admin := ui.Page{Me: operator.Identity{Role: operator.RoleAdmin}}
	for loaded, want := range map[bool]string{false: "then a verify can be started here, and says what to rebuild", true: `href="/runs/new?all_campaigns=true&amp;kind=verify&amp;projections=guests" data-testid="rehearsal-verify"`} {
		d.Loaded = loaded
		html := string(must.Get(templ.ToGoHTML(t.Context(), rehearsalAnswer(admin, d))).Or(t))
		text := html
		must.Hold(t, strings.Contains(text, want) && !strings.Contains(text, "canary") && strings.Contains(text, "healthy ones alone are compared") && strings.Contains(text, "2 of 2 healthy campaigns would get other rows"), "loaded %v: %s", loaded, text)
	}
}

func TestProgressParts_fillTheBarAndShowTheLeast(t *testing.T) {
	t.Parallel()
	for _, n := range []operations.OperationTotals{
		{Chosen: 43, FailedAgain: 2, Left: 41},
		{Chosen: 20_000, Done: 19_998, Skipped: 1, FailedAgain: 1},
		{Chosen: 3, Waiting: 1, Requeued: 1, Done: 1},
		{Chosen: 7, Waiting: 1, Requeued: 1, Done: 1, Skipped: 1, FailedAgain: 1, Left: 1, Unwatched: 1},
	} {
		var end int64
		for _, p := range progressParts(operations.Operation{Totals: n}) {
			must.Hold(t, p.from == end && p.width >= 5 && n.Of(p.result) != 0, "%+v: part %+v after %d", n, p, end)
			end = p.from + p.width
		}
		must.Equal(t, end, 1000, "the bar ends at")
	}
	must.Equal(t, len(progressParts(operations.Operation{})), 0, "an operation without rows")
}

func TestOperationTwins_areWholeCommands(t *testing.T) {
	t.Parallel()
	p := ui.Page{Me: operator.Local(), Origin: "http://127.0.0.1:8080"}
	v := NewOperationView{Selection: operations.Selection{Filter: campaign.RequeueFilter{CampaignID: "it's", Limit: 7}},
		Preview: operations.OperationPreview{Rows: 7, Released: 2000, Confirm: "requeue 7 rows"}}
	twins := startTwins(p, v)
	must.Equal(t, twins.Curl, `curl -s -H 'Content-Type: application/json' -d '{"kind":"requeue","filter":{"campaign_id":"it'\''s","event_type":"","fingerprint":"","limit":7},"canary":true,"reason":"why","confirm":"requeue 7 rows","expected_rows":7,"expected_released":2000}' http://127.0.0.1:8080/api/v1/operations`, "curl")
	must.Equal(t, twins.CLI, `outboxweb requeue --dead --campaign='it'\''s' --limit=7 --canary --reason=why --confirm='requeue 7 rows'`, "command")
	elsewhere := p
	elsewhere.Flags = []string{"--config=/etc/it's.yaml", "--journal-db=sqlite:/var/j.db"}
	cli := startTwins(elsewhere, v).CLI
	must.Hold(t, strings.HasPrefix(cli, `outboxweb '--config=/etc/it'\''s.yaml' --journal-db=sqlite:/var/j.db requeue --dead`), "command: %s", cli)
	v.Selection = operations.Selection{Rows: []event.RowKey{{CampaignID: "c", Seq: 2}}}
	must.Equal(t, startTwins(p, v).CLI, "", "the command for named rows, which there is not")
	v.Selection, v.Rehearsal = operations.Selection{}, 9
	twins = startTwins(p, v)
	must.Hold(t, strings.HasPrefix(twins.CLI, "outboxweb requeue --dead --canary --rehearsal=9 --reason=why --confirm=") && strings.Contains(twins.Curl, `"canary":true,"rehearsal":9,`), "resting on a rehearsal: %+v", twins)
	twins = operationTwins(p, operations.Operation{ID: 3, Status: operations.OperationStopped})
	must.Equal(t, twins.CLI, "outboxweb operations acknowledge --reason=why -- 3")
	must.Equal(t, twins.Curl, `curl -s -H 'Content-Type: application/json' -d '{"reason":"why","expected":{"status":"stopped"}}' http://127.0.0.1:8080/api/v1/operations/3/acknowledge`)
}

// The outboxweb command has no projections of a host service: it is shown where it needs none of them.
func TestRunTwins_ofAnEmbeddedConsole(t *testing.T) {
	t.Parallel()
	p := ui.Page{Embedded: true, Me: operator.Identity{Role: operator.RoleAdmin}, Running: campaign.Running{Versions: map[string]string{"orders": "1", "rooms": "2"}, InGo: map[string]bool{"rooms": true}}}
	run := func(projections ...string) NewRunView {
		return NewRunView{Request: replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: projections}}
	}
	for what, tt := range map[string]struct {
		twins ui.Twins
		shown bool
	}{
		"a run of all":            {newRunTwins(p, run()), false},
		"a run of both":           {newRunTwins(p, run("orders", "rooms")), false},
		"a run of a file":         {newRunTwins(p, run("orders")), true},
		"resuming a run of all":   {runTwins(p, replay.Run{ID: 3, Kind: replay.RunVerify, Status: replay.RunFailed}), false},
		"showing a run":           {runTwins(p, replay.Run{ID: 3, Kind: replay.RunVerify, Status: replay.RunCompleted}), true},
		"cancelling a run of all": {runTwins(p, replay.Run{ID: 3, Kind: replay.RunVerify, Status: replay.RunQueued}), true},
	} {
		must.Hold(t, tt.twins.Curl != "" && (tt.twins.CLI != "") == tt.shown, "%s: %+v", what, tt.twins)
	}
}
