package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// A fault at the start may end later, like one during work.
func TestRun_beginsOnceItCan(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"instances", "campaigns"} {
		var refused atomic.Int64
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.Logging(func(message string) {
			if strings.Contains(message, "retrying") {
				refused.Add(1)
			}
		}))
		b.MustAppend(enginetest.Notes("a", 3)...)
		b.Exec(`alter table ` + away + ` rename to elsewhere`)
		b.Worker.Hurry()
		stop := b.Start()
		storetest.Eventually(t, "a start without "+away+" fails twice", func() bool { return refused.Load() >= 2 })
		b.Exec(`alter table elsewhere rename to ` + away)
		b.MustWait("a", 3)
		stop()
		b.MustHaveApplied("a", 3)
		b.Sound()
	}
}

func TestRun_leavesNothingWhereItNeverBegan(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.Logging(func(message string) {
		if strings.Contains(message, "retrying") {
			refused.Add(1)
		}
	}))
	b.Exec(`alter table instances rename to elsewhere`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Worker.Run(ctx) }()
	storetest.Eventually(t, "the start fails", func() bool { return refused.Load() > 0 })
	cancel()
	must.OK(t, <-ended)
	b.Exec(`alter table elsewhere rename to instances`)
	states, err := b.Instances(t.Context())
	must.Hold(t, err == nil && len(states) == 0, "instances are %+v, %v", states, err)
}
