package templates

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

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
			if p.from != end || p.width < 5 || n.Of(p.result) == 0 {
				t.Errorf("%+v: part %+v after %d", n, p, end)
			}
			end = p.from + p.width
		}
		if end != 1000 {
			t.Errorf("%+v: the bar ends at %d", n, end)
		}
	}
	if parts := progressParts(outbox.Operation{}); len(parts) != 0 {
		t.Errorf("an operation without rows has %+v", parts)
	}
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
	if want := `outboxweb requeue --dead --canary --campaign='it'\''s' --limit=7 --confirm='requeue 7 rows' --reason 'why'`; twins.CLI != want {
		t.Errorf("command: %s", twins.CLI)
	}
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
