package worker_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

func TestWorker_appliesWhatLostItsRows(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		running bool
		logs    string
	}{
		"before it starts": {false, "level=INFO msg=reconciled campaigns=1 named=[c] rows_inserted=5"},
		"while it runs":    {true, `level=WARN msg="the self-check repaired a campaign" campaign=c counts_corrected=true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			stop := func() {}
			b := open(t, define(t, ledger), func(_ *store.Options, c *worker.Config) {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			applied := func(campaign string, seq int64) func() bool {
				return func() bool { return b.campaign(t, campaign).AppliedSeq == seq }
			}
			if scene.running {
				stop = b.start(t)
				b.mustAppend(t, noted("first"))
				eventually(t, "the worker works", applied("first", 1))
			}
			b.mustAppend(t, noted("c"))
			if _, err := b.PauseCampaign(t.Context(), operator, "c"); err != nil {
				t.Fatal(err)
			}
			b.mustAppend(t, notes("c", 4)...)
			mustExec(t, b.journal, `delete from projection_apply_outbox where campaign_id = 'c'`)
			if _, err := b.ResumeCampaign(t.Context(), operator, "c"); err != nil {
				t.Fatal(err)
			}
			if !scene.running {
				stop = b.start(t)
			}
			eventually(t, "all events are applied", applied("c", 5))
			stop()
			if !strings.Contains(log.String(), scene.logs) {
				t.Errorf("logged\n%s\nwant %q", log.String(), scene.logs)
			}
		})
	}
}
