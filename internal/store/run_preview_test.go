package store_test

import (
	"testing"

	"outboxweb/internal/outbox"
)

func TestPreviewRun_saysWhatARunWouldBeAbout(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 2)
	for _, c := range []struct {
		order             outbox.RunOrder
		campaigns, events int64
	}{
		{verifyAll(), 2, 5},
		{rebuild("b", "b"), 1, 2},
		{outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2}, 1, 2},
	} {
		p, err := f.runs.Preview(f.ctx, c.order, loadedRuns)
		if err != nil || p.Campaigns != c.campaigns || p.Events != c.events || p.InTheWay != nil || p.Kind != c.order.Kind || len(p.Projections) == 0 {
			t.Errorf("the preview of %+v is %+v, %v", c.order, p, err)
		}
	}
	_, err := f.runs.Preview(f.ctx, rebuild("nobody"), loadedRuns)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.runs.Preview(f.ctx, outbox.RunOrder{Kind: outbox.RunVerify}, loadedRuns)
	refused(t, err, outbox.ErrInvalid)
}

func TestPreviewRun_namesTheRunInTheWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.append("b", 1)
	run, err := f.runs.Start(f.ctx, ana(""), rebuild("a"), loadedRuns)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := f.runs.Preview(f.ctx, verifyAll(), loadedRuns); err != nil || p.InTheWay == nil || p.InTheWay.ID != run.ID {
		t.Errorf("the preview is %+v, %v; want run %d in the way", p, err, run.ID)
	}
	if p, err := f.runs.Preview(f.ctx, rebuild("b"), loadedRuns); err != nil || p.InTheWay != nil {
		t.Errorf("the preview is %+v, %v; want nothing in the way", p, err)
	}
}
