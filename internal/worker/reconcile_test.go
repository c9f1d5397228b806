package worker_test

import (
	"slices"
	"sync"
	"testing"
)

func TestWorker_appliesWhatLostItsRows(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		running bool
		logs    string
	}{
		"before it starts": {false, "reconciled"},
		"while it runs":    {true, "the self-check repaired a campaign"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var messages []string
			b := open(t, define(t, ledger), logging(func(message string) {
				mu.Lock()
				defer mu.Unlock()
				messages = append(messages, message)
			}))
			applied := func(campaign string, seq int64) func() bool {
				return func() bool { return b.campaign(t, campaign).AppliedSeq == seq }
			}
			if scene.running {
				b.start(t)
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
				b.start(t)
			}
			eventually(t, "all events are applied", applied("c", 5))
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(messages, scene.logs) {
				t.Errorf("logged %q, want %q", messages, scene.logs)
			}
		})
	}
}
