package worker_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
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
			b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), func(o *enginetest.Options) {
				o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			b.Worker.Hurry()
			stop := func() {}
			applied := func(campaign string, seq int64) func() bool {
				return func() bool { return b.MustCampaign(campaign).AppliedSeq == seq }
			}
			if scene.running {
				stop = b.Start()
				b.MustAppend(enginetest.Noted("first"))
				storetest.Eventually(t, "the worker works", applied("first", 1))
			}
			b.MustAppend(enginetest.Noted("c"))
			pauseCampaign(t, b, "c")
			b.MustAppend(enginetest.Notes("c", 4)...)
			b.Exec(`delete from projection_apply_outbox where campaign_id = 'c'`)
			resumeCampaign(t, b, "c")
			if !scene.running {
				stop = b.Start()
			}
			storetest.Eventually(t, "all events are applied", applied("c", 5))
			stop()
			if !strings.Contains(log.String(), scene.logs) {
				t.Errorf("logged\n%s\nwant %q", log.String(), scene.logs)
			}
		})
	}
}
