package templates

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func rendered(t *testing.T, c templ.Component) string {
	var b strings.Builder
	must.OK(t, c.Render(t.Context(), &b))
	return b.String()
}

func TestLinks_escapeEveryPartBelowTheBasePath(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]URL{"": "/campaigns", "/": "/campaigns", "/ops": "/ops/campaigns", "ops/x/": "/ops/x/campaigns"} {
		must.Equal(t, NewLinks(base).Campaigns(outbox.CampaignFilter{}), want, "base", base)
	}
	l := NewLinks("/ops")
	for got, want := range map[URL]URL{
		l.Overview():       "/ops/",
		l.API().Summary():  "/ops/api/v1/summary",
		l.Row("a/b%?#", 3): "/ops/rows/a%2Fb%25%3F%23/3",
		l.API().Action(outbox.ActionRequeue, "a b", itoa(3)):         "/ops/api/v1/rows/a%20b/3/requeue",
		l.Rows(outbox.RowFilter{Q: "a&b=c"}):                         "/ops/rows?q=a%26b%3Dc",
		l.Rows(outbox.RowFilter{Status: outbox.Dead, Limit: 5}):      "/ops/rows?limit=5&status=dead",
		l.Campaigns(outbox.CampaignFilter{Sort: outbox.SortTrouble}): "/ops/campaigns",
		l.CampaignAfter("c", 0):                                      "/ops/campaigns/c?after_seq=0",
		WithAction(l.Overview(), 7):                                  "/ops/?act=7",
		WithAction(l.Rows(outbox.RowFilter{Status: outbox.Dead}), 7): "/ops/rows?status=dead&act=7",
		WithAction(l.Overview(), 0):                                  "/ops/",
		l.NewOperation(outbox.Selection{Rows: []outbox.RowKey{{CampaignID: "a/b&c", Seq: 2}, {CampaignID: "d", Seq: 1}}}):               "/ops/operations/new?rows=a%2Fb%26c%2F2&rows=d%2F1",
		l.API().Operation(3, outbox.OperationRowFilter{Status: outbox.ResultDone}):                                                      "/ops/api/v1/operations/3?status=done",
		l.NewRun(outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a/b", "c&d"}, Projections: []string{"x"}, UntilSeq: 4}): "/ops/runs/new?campaign_ids=a%2Fb&campaign_ids=c%26d&kind=verify&projections=x&until_seq=4",
		l.RunResult(3, "a/b"):                                "/ops/runs/3/results/a%2Fb",
		l.Run(3, outbox.ResultFilter{Outcome: "drift"}, "c"): "/ops/runs/3?log=c&outcome=drift",
		l.API().DryRun("a/b", 3, 0):                          "/ops/api/v1/rows/a%2Fb/3/dry-run?next=0",
		l.Operating(GuideLag):                                "/ops/docs/operating#lag-rises",
		l.FailureGroup("seat … is #"):                        "/ops/failures?fingerprint=seat+%E2%80%A6+is+%23",
	} {
		must.Equal(t, got, want)
	}
}

func TestShellWord_givesTheShellBackTheSameWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "plain-1.2", "a b", `it's "$HOME" \n`, "`id`;&|<>*?~#!", "ü✓", "-x", "a\tb"} {
		out, err := exec.Command("sh", "-c", "printf %s "+outbox.ShellWord(word)).Output()
		must.Hold(t, err == nil && string(out) == word, "%q came back as %q, %v", word, out, err)
	}
}

func TestTwins_areWholeCommands(t *testing.T) {
	t.Parallel()
	p := Page{Origin: "http://127.0.0.1:8080"}
	twins := requeueTwins(p, outbox.Row{CampaignID: "it's", Seq: 5, Status: outbox.Dead, AttemptCount: 8})
	want := `curl -s -H 'Content-Type: application/json' -d '{"reason":"why","expected":{"status":"dead","attempt_count":8}}' 'http://127.0.0.1:8080/api/v1/rows/it%27s/5/requeue'`
	must.Hold(t, twins.Curl == want, "curl: %s", twins.Curl)
	must.Equal(t, twins.CLI, `outboxweb requeue --reason=why -- 'it'\''s' 5`, "command")
}

func TestText_forPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	for got, want := range map[string]string{
		num(0): "0", num(999): "999", num(1000): "1,000", num(44200): "44,200", num(1234567): "1,234,567", num(-1234): "-1,234",
		rate(0) + "/": "0/", rate(0.25): "0.2", rate(41.6): "42", rate(12345.6): "12,346",
		relative(now, now): "now", relative(now.Add(-3*time.Minute), now): "3 min ago", relative(now.Add(4*time.Second), now): "in 4 s",
		exactly(.05): "50 ms", exactly(1): "1 s", exactly(1.5): "1,500 ms", exactly(60): "1 min", exactly(90): "90 s", exactly(5400): "90 min", exactly(3600): "1 h", // settings, which are not ages
		firstLine("a\nb"):                                            "a",
		sentence("event 2 failed"):                                   "Event 2 failed.",
		sentence("ümlaut?"):                                          "Ümlaut?",
		count(1, "row", "rows"):                                      "1 row",
		count(1200, "row", "rows"):                                   "1,200 rows",
		pct(outbox.Campaign{}) + "%":                                 "100%",
		pct(outbox.Campaign{HighWaterSeq: 3, AppliedSeq: 1}):         "33",
		prettyJSON(json.RawMessage(`{"n":12345678901234567890.10}`)): "{\n  \"n\": 12345678901234567890.10\n}",
	} {
		must.Equal(t, got, want)
	}
	long := firstLine(strings.Repeat("ü", 300))
	must.Hold(t, len(long) <= 250 && strings.HasSuffix(long, "…"), "a long line became %q", long)
}

func TestLinks_ofActionsNameWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	for _, action := range outbox.AuditedActions() {
		path := action.Info().Path
		about, want := []string{}, "/ops"
		for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if strings.HasPrefix(part, "{") {
				about = append(about, "a b")
				part = "a%20b"
			}
			want += "/" + part
		}
		got := NewLinks("/ops").Action(action, about...)
		must.Hold(t, path == "" || string(got) == want, "%s is asked for at %s, want %s", action, got, want)
	}
}

// The outboxweb command has no projections of a host service: it is shown where it needs none of them.
func TestTwins_ofAnEmbeddedConsole(t *testing.T) {
	t.Parallel()
	p := Page{Origin: "http://127.0.0.1:8080", Embedded: true, Me: outbox.Identity{Role: outbox.RoleAdmin},
		Running: outbox.Running{Versions: map[string]string{"orders": "1", "rooms": "2"}, InGo: map[string]bool{"rooms": true}}}
	run := func(projections ...string) NewRunView {
		return NewRunView{Request: outbox.RunRequest{Kind: outbox.RunVerify, All: true, Projections: projections}}
	}
	failed := outbox.Row{CampaignID: "c", Seq: 1, Status: outbox.Dead, LastError: "boom"}
	for what, tt := range map[string]struct {
		twins Twins
		shown bool
	}{
		"a run of all":              {newRunTwins(p, run()), false},
		"a run of both":             {newRunTwins(p, run("orders", "rooms")), false},
		"a run of a file":           {newRunTwins(p, run("orders")), true},
		"resuming a run of all":     {runTwins(p, outbox.Run{ID: 3, Kind: outbox.RunVerify, Status: outbox.RunFailed}), false},
		"showing a run":             {runTwins(p, outbox.Run{ID: 3, Kind: outbox.RunVerify, Status: outbox.RunCompleted}), true},
		"cancelling a run of all":   {runTwins(p, outbox.Run{ID: 3, Kind: outbox.RunVerify, Status: outbox.RunQueued}), true},
		"a pause of one in Go":      {pauseTwins(p, outbox.ProjectionInfo{Name: "rooms"}), false},
		"a pause of a file":         {pauseTwins(p, outbox.ProjectionInfo{Name: "orders"}), true},
		"a dry run":                 {dryRunTwins(p, DryRunView{}), false},
		"the rows of a campaign":    {modelTwins(p, ReadModelView{}), false},
		"a requeue":                 {requeueTwins(p, failed), true},
		"a failed row, in a report": {rowTwins(p, failed), true},
		"a pause of a publisher":    {publisherTwins(p, outbox.Publisher{}), true},
		"a retry of a rejected row": {p.asksOn(outbox.ActionIntakeRetry, nil, "shop", "1"), true},
	} {
		must.Hold(t, tt.twins.Curl != "" && (tt.twins.CLI != "") == tt.shown, "%s: %+v", what, tt.twins)
	}
	cli := rowTwins(p, failed).CLI
	must.Hold(t, !strings.Contains(cli, "explain"), "a failed row: %s", cli)
	html := rendered(t, twins(p, requeueTwins(p, failed)))
	for _, name := range []string{"OUTBOXWEB_JOURNAL_DB", "OUTBOXWEB_PROJECTIONS_DB", "OUTBOXWEB_PROJECTIONS<"} {
		must.Hold(t, strings.Contains(html, name), "no %s above the command: %s", name, html)
	}
}

func TestGuides_areHeadingsOfTheRunbook(t *testing.T) {
	t.Parallel()
	headings := map[Guide]bool{}
	for _, s := range docs.Named(docs.Operating).Sections {
		headings[Guide(s.Anchor)] = true
	}
	for _, g := range []Guide{GuideLag, GuideFailed, GuideDead, GuideCanary, GuideWorker, GuideDiverged, GuideWrong, GuideAside, GuideFile, GuideDisk, GuideUpgrade} {
		must.Hold(t, headings[g], "the runbook has no heading for #%s", g)
	}
	for _, kind := range outbox.FaultKinds {
		must.Hold(t, headings[Guide(kind.Guide())], "the runbook has no heading for a fault of the kind %s", kind)
	}
}

// For a problem the overview links to the guide for the worst one, and to none if all is well.
func TestCampaignGuide_followsTheState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	behind := outbox.Campaign{HighWaterSeq: 3, HeadSeq: 1, HeadStatus: outbox.Pending, HeadNextAttempt: now}
	for _, c := range []struct {
		name     string
		campaign outbox.Campaign
		found    finding.List
		want     Guide
	}{
		{"current", outbox.Campaign{}, nil, ""},
		{"paused", outbox.Campaign{Paused: &outbox.Pause{}}, nil, ""},
		{"diverged", outbox.Campaign{Diverged: "so"}, nil, GuideDiverged},
		{"dead", outbox.Campaign{HeadStatus: outbox.Dead}, nil, GuideDead},
		{"failed", outbox.Campaign{HeadStatus: outbox.Failed}, nil, GuideFailed},
		{"behind", behind, nil, GuideLag},
		{"nobody works", behind, finding.List{{Kind: outbox.FindsWorker}}, GuideWorker},
	} {
		must.Equal(t, Page{Findings: c.found}.campaignGuide(c.campaign), c.want, c.name, ": leads to")
	}
}
