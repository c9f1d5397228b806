package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
)

// What keeps a worker from beginning may end later, like what keeps it from
// going on.
func TestRun_beginsOnceItCan(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"instances", "campaigns"} {
		var refused atomic.Int64
		b := open(t, define(t, ledger), logging(func(message string) {
			if strings.Contains(message, "tried again") {
				refused.Add(1)
			}
		}))
		b.mustAppend(t, notes("a", 3)...)
		mustExec(t, b.journal, `alter table `+away+` rename to elsewhere`)
		stop := b.start(t)
		eventually(t, "a start without "+away+" fails twice", func() bool { return refused.Load() >= 2 })
		mustExec(t, b.journal, `alter table elsewhere rename to `+away)
		b.mustWait(t, "a", 3)
		stop()
		b.mustHaveApplied(t, "a", 3)
		b.mustBeSound(t)
	}
}

func TestRun_leavesNothingWhereItNeverBegan(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	b := open(t, define(t, ledger), logging(func(message string) {
		if strings.Contains(message, "tried again") {
			refused.Add(1)
		}
	}))
	mustExec(t, b.journal, `alter table instances rename to elsewhere`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.worker.Run(ctx) }()
	eventually(t, "the start fails", func() bool { return refused.Load() > 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("a worker that never began ends with %v", err)
	}
	mustExec(t, b.journal, `alter table elsewhere rename to instances`)
	states, err := b.Instances(t.Context())
	if err != nil || len(states) != 0 {
		t.Errorf("instances are %+v, %v", states, err)
	}
}
