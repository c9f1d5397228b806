package store_test

import (
	"strings"
	"testing"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// rowsOf lists the rows of an operation by campaign.
func (f *fixture) rowsOf(id int64) map[string]outbox.OperationRow {
	f.tb.Helper()
	page, err := f.operations.Rows(f.ctx, id, outbox.OperationRowFilter{})
	if err != nil {
		f.tb.Fatal(err)
	}
	rows := map[string]outbox.OperationRow{}
	for _, r := range page.Items {
		rows[r.CampaignID] = r
	}
	return rows
}

// applyNext applies the first rows of a campaign that is due.
func (f *fixture) applyNext(campaign string) {
	f.tb.Helper()
	c := f.claimOne(one, 1)
	if c.CampaignID != campaign {
		f.tb.Fatalf("claimed %s, want %s", c.CampaignID, campaign)
	}
	f.mustApply(c, c.Last)
	f.settle(one, store.Result{Claim: c, Applied: c.Last})
}

func TestStepOperation_leavesASkippedRowAlone(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(1))
	ids := f.killed("a", 3)
	op := f.startOperation(outbox.OperationOrder{Canary: true})
	f.stepOperation(op.ID) // the canary
	canary := ""
	for id, r := range f.rowsOf(op.ID) {
		if r.Status == outbox.ResultRequeued {
			canary = id
		}
	}
	if canary != ids[0] {
		t.Fatalf("the canary is %q, want %q", canary, ids[0])
	}
	_, err := f.SkipEvent(f.ctx, toSkip(ana(""), ids[0], 1), ids[0], 1)
	refused(t, err, outbox.ErrConflict, "is pending")
	f.skip(ids[1], 1)
	f.skip(ids[2], 1)
	if _, err := f.UnskipEvent(f.ctx, ana(""), ids[2], 1); err != nil {
		t.Fatal(err)
	}
	for f.operation(op.ID).Status == outbox.OperationRunning {
		f.drain()
		f.stepOperation(op.ID)
	}
	rows := f.rowsOf(op.ID)
	if r := rows[ids[1]]; r.Status != outbox.ResultSkipped || !strings.Contains(r.Detail, "skip by scene") {
		t.Errorf("the skipped row came to %s: %s", r.Status, r.Detail)
	}
	if r := rows[ids[2]]; r.Status != outbox.ResultSkipped || !strings.Contains(r.Detail, "unskip by ana") {
		t.Errorf("the row whose skip was taken back came to %s: %s", r.Status, r.Detail)
	}
	f.wantMarks(ids[1] + " 1 1")
	f.sound()
}

// A row that an operation has requeued may be passed over and come back while
// the events behind it are watched; its failure is then the operation's too.
func TestStepOperation_watchesARowThatIsUnskipped(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(2))
	f.append("a", 3)
	f.kill("a")
	f.skip("a", 1)
	f.kill("a") // what keeps it from being passed over
	op := f.startOperation(outbox.OperationOrder{})
	f.stepOperation(op.ID)
	f.applyNext("a") // passes over
	f.stepOperation(op.ID)
	if _, err := f.UnskipEvent(f.ctx, ana(""), "a", 1); err != nil {
		t.Fatal(err)
	}
	c := f.claimOne(one, 1)
	f.settle(one, store.Result{Claim: c, Failure: failure("no such thing")})
	f.stepOperation(op.ID)
	if r := f.rowsOf(op.ID)["a"]; r.Status != outbox.ResultFailedAgain || f.operation(op.ID).Status != outbox.OperationStopped {
		t.Errorf("the row came to %s: %s", r.Status, r.Detail)
	}
	if r := f.row("a", 1).Row; r.Status != outbox.Dead {
		t.Errorf("the row is %s, want it dead of the one attempt it had", r.Status)
	}
	f.wantMarks()
	f.sound()
}
