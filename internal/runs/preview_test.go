package runs_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestPreviewRun_saysWhatARunWouldBeAbout(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.AppendN("b", 2)
	f.Exec(allApplied)
	for _, c := range []struct {
		order             outbox.RunRequest
		campaigns, events int64
	}{
		{enginetest.VerifyAll(), 2, 5},
		{enginetest.Rebuild("b", "b"), 1, 2},
		{outbox.RunRequest{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2}, 1, 2},
	} {
		p, err := f.Runs.Preview(f.Ctx, c.order, enginetest.LoadedRuns)
		if err != nil || p.Campaigns != c.campaigns || p.Events != c.events || p.BlockingRun != nil || p.Kind != c.order.Kind || len(p.Projections) == 0 {
			t.Errorf("the preview of %+v is %+v, %v", c.order, p, err)
		}
	}
	_, err := f.Runs.Preview(f.Ctx, enginetest.Rebuild("nobody"), enginetest.LoadedRuns)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.Runs.Preview(f.Ctx, outbox.RunRequest{Kind: outbox.RunVerify}, enginetest.LoadedRuns)
	refused(t, err, outbox.ErrInvalid)
}

func TestPreviewRun_namesTheRunInTheWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	run, err := f.Runs.Start(f.Ctx, ana(""), enginetest.Rebuild("a"), enginetest.LoadedRuns)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := f.Runs.Preview(f.Ctx, enginetest.VerifyAll(), enginetest.LoadedRuns); err != nil || p.BlockingRun == nil || p.BlockingRun.ID != run.ID {
		t.Errorf("the preview is %+v, %v; want run %d in the way", p, err, run.ID)
	}
	if p, err := f.Runs.Preview(f.Ctx, enginetest.Rebuild("b"), enginetest.LoadedRuns); err != nil || p.BlockingRun != nil {
		t.Errorf("the preview is %+v, %v; want nothing in the way", p, err)
	}
}
