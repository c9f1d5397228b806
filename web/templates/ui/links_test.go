package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
)

func TestLinks_escapeEveryPartBelowTheBasePath(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]URL{"": "/campaigns", "/": "/campaigns", "/ops": "/ops/campaigns", "ops/x/": "/ops/x/campaigns"} {
		must.Equal(t, NewLinks(base).Campaigns(campaign.CampaignFilter{}), want, "base", base)
	}
	l := NewLinks("/ops")
	for got, want := range map[URL]URL{
		l.Overview():       "/ops/",
		l.API().Summary():  "/ops/api/v1/summary",
		l.Row("a/b%?#", 3): "/ops/rows/a%2Fb%25%3F%23/3",
		l.API().Action(operator.ActionRequeue, "a b", Itoa(3)):           "/ops/api/v1/rows/a%20b/3/requeue",
		l.Rows(campaign.RowFilter{Q: "a&b=c"}):                           "/ops/rows?q=a%26b%3Dc",
		l.Rows(campaign.RowFilter{Status: event.Dead, Limit: 5}):         "/ops/rows?limit=5&status=dead",
		l.Campaigns(campaign.CampaignFilter{Sort: campaign.SortTrouble}): "/ops/campaigns",
		l.CampaignAfter("c", 0):                                          "/ops/campaigns/c?after_seq=0",
		WithAction(l.Overview(), 7):                                      "/ops/?act=7",
		WithAction(l.Rows(campaign.RowFilter{Status: event.Dead}), 7):    "/ops/rows?status=dead&act=7",
		WithAction(l.Overview(), 0):                                      "/ops/",
		l.NewOperation(operations.Selection{Rows: []event.RowKey{{CampaignID: "a/b&c", Seq: 2}, {CampaignID: "d", Seq: 1}}}):            "/ops/operations/new?rows=a%2Fb%26c%2F2&rows=d%2F1",
		l.API().Operation(3, operations.OperationRowFilter{Status: operations.ResultDone}):                                              "/ops/api/v1/operations/3?status=done",
		l.NewRun(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a/b", "c&d"}, Projections: []string{"x"}, UntilSeq: 4}): "/ops/runs/new?campaign_ids=a%2Fb&campaign_ids=c%26d&kind=verify&projections=x&until_seq=4",
		l.RunResult(3, "a/b"):                                   "/ops/runs/3/results/a%2Fb",
		l.Run(3, replay.ResultFilter{Outcome: "drift"}, "c"):    "/ops/runs/3?log=c&outcome=drift",
		l.API().DryRun(replay.Trial{CampaignID: "a/b", Seq: 3}): "/ops/api/v1/rows/a%2Fb/3/dry-run?next=0",
		l.Operating(GuideLag):                                   "/ops/docs/operating#lag-rises",
		l.FailureGroup("seat … is #"):                           "/ops/failures?fingerprint=seat+%E2%80%A6+is+%23",
	} {
		must.Equal(t, got, want)
	}
}

func TestLinks_ofActionsNameWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	for _, action := range operator.AuditedActions() {
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

func TestOver_keepsTheRange(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for want, got := range map[string]URL{
		"/": Over("/", samples.Range{}), "/?range=6h": Over("/", samples.Range{Name: samples.RangeSix}),
		"/charts?range=7d&table=true#x":                                     Over("/charts?range=6h&table=true#x", samples.Range{Name: samples.RangeWeek}),
		"/charts?from=2026-11-21T12%3A00%3A00Z&to=2026-11-21T13%3A00%3A00Z": Over("/charts", samples.Range{From: at, To: at.Add(time.Hour)}),
	} {
		must.Equal(t, string(got), want)
	}
}
