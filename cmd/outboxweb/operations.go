package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// operation starts an operation and, when asked to, follows it.
func (c *requeueCmd) operation(ctx context.Context, a *app, st *engine.Engine, o operator.Command) error {
	loaded, err := installed(ctx, st)
	if err != nil {
		return err
	}
	if err := st.Runs.RestOn(ctx, c.Rehearsal, loaded); err != nil {
		return err
	}
	selection := operations.Selection{Filter: c.Filter()}
	var preview operations.OperationPreview
	if c.Rehearsal > 0 {
		if preview, err = st.Operations.Preview(ctx, selection, c.Rehearsal); err != nil {
			return err
		}
	}
	op, err := st.Operations.Start(ctx, o, operations.OperationRequest{Selection: selection, Canary: true, Rehearsal: c.Rehearsal})
	if err != nil {
		return err
	}
	if n := preview.RehearsedFailing; n > 0 {
		fmt.Fprintf(a.err, "%s that failed in rehearsal %d left out\n", event.Count(n, "dead row", "dead rows"), c.Rehearsal)
	}
	if n := preview.Rows - preview.Rehearsed; n > 0 {
		fmt.Fprintf(a.err, "rehearsal %d did not try %s of the rows, or they were retried since; they are requeued, too, and stop their error's group if they fail\n", c.Rehearsal, event.Number(n))
	}
	if err := a.warnWithoutWorker(ctx, st, "operation %d is queued until one does: start outboxweb serve", op.ID); err != nil {
		return err
	}
	if c.Wait {
		return a.follow(ctx, st, op.ID, c.jsonFlag)
	}
	pace, err := st.Pace(ctx)
	if err != nil {
		return err
	}
	estimate := campaign.Estimate(op.Totals.Chosen+op.Released, pace)
	if estimate != "" {
		estimate = "; " + estimate
	}
	return c.print(a, op, "started operation %d: %s, %s of them heads; %s behind the heads%s\nfollow it with: outboxweb operations show %d", op.ID,
		event.Count(op.Totals.Chosen, "dead row", "dead rows"), event.Number(op.Heads), event.Count(op.Released, "row waits", "rows wait"), estimate, op.ID)
}

// warnWithoutWorker prints on stderr what happens to the operation when no worker is running.
func (a *app) warnWithoutWorker(ctx context.Context, st *engine.Engine, format string, id int64) error {
	summary, err := st.Summary(ctx)
	if err == nil && !summary.Worker.Running {
		fmt.Fprintln(a.err, "no worker is running, so", fmt.Sprintf(format, id))
	}
	return err
}

// follow waits for an operation to end and prints it. It fails unless the operation is done.
func (a *app) follow(ctx context.Context, st *engine.Engine, id int64, as jsonFlag) error {
	var d operations.OperationDetail
	err := a.watch(ctx, "requeue", nil, func() (ended bool, done, total int64, err error) {
		d, err = st.Operations.Get(ctx, id)
		return d.Status != operations.OperationRunning, d.Totals.Ended(), d.Totals.Chosen, err
	})
	if err != nil {
		return err
	}
	return a.printOperation(d, as)
}

// printOperation prints an operation; it fails if the operation stopped or was cancelled.
func (a *app) printOperation(d operations.OperationDetail, as jsonFlag) error {
	err := as.show(a, d, func() error { return a.describeOperation(d) })
	return cmp.Or(err, problems(d.Status.CutShort()))
}

func (a *app) describeOperation(d operations.OperationDetail) error {
	fmt.Fprintf(a.out, "operation %d is %s, started by %s\n%s\n", d.ID, d.Status, d.StartedBy, d.Why)
	if d.Rehearsal > 0 {
		fmt.Fprintf(a.out, "it rests on rehearsal %d; %s\n", d.Rehearsal, d.CoverText())
	}
	if d.Status == operations.OperationDone {
		fmt.Fprintln(a.out, verifyNext(""))
	}
	for _, l := range d.Loads {
		fmt.Fprintf(a.out, "deployed while it ran, at %s: %s\n", stamp(l.At), d.LoadText(l))
	}
	fmt.Fprintln(a.out)
	t := table(a.out)
	fmt.Fprintln(t, "CHOSEN\tWAITING\tREQUEUED\tDONE\tQUARANTINED\tSKIPPED\tFAILED AGAIN\tNOT ATTEMPTED\tNOT WATCHED")
	n := d.Totals
	t.row(n.Chosen, n.Waiting, n.Requeued, n.Done, n.Quarantined, n.Skipped, n.FailedAgain, n.Left, n.Unwatched)
	t.Flush()
	fmt.Fprintln(a.out)
	if err := printColumns(a.out, jobs.GroupColumns(d.Operation), d.Groups); err != nil {
		return err
	}
	if d.MoreGroups > 0 {
		fmt.Fprintf(a.out, "and %s\n", event.Count(d.MoreGroups, "smaller group", "smaller groups"))
	}
	for i, r := range d.NewFailures {
		if i == 0 {
			fmt.Fprintln(a.out, "\nnew failures outside this operation that remain:")
		}
		t.row(firstLine(r.CampaignID, idShown), r.Seq, r.Status, firstLine(r.LastError, 100))
	}
	t.Flush()
	for i, f := range d.NewQuarantines {
		if i == 0 {
			fmt.Fprintln(a.out, "\nprojections quarantined in its campaigns since it started, which still are:")
		}
		t.row(firstLine(f.CampaignID, idShown), f.Seq, f.Projection, firstLine(f.Message, 100))
	}
	return t.Flush()
}

// operationsCmd lists, shows and cancels requeues of many rows.
type operationsCmd struct {
	List operationsListCmd `cmd:"" help:"List operations, newest first."`
	Show operationsShowCmd `cmd:"" help:"Show an operation; exit 1 if it stopped or was cancelled."`
	kong.Plugins
}

type operationsListCmd struct {
	Filter operations.OperationFilter `embed:""`
	Open   bool                       `help:"Only operations that are not acknowledged."`
	listFlags
}

// Run lists operations.
func (c *operationsListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	if c.Filter.Limit = c.Limit; c.Open {
		c.Filter.Acknowledged = new(bool)
	}
	page, err := st.Operations.List(ctx, c.Filter)
	return printPage(a, c.jsonFlag, err, "operations", page, jobs.OperationColumns())
}

type operationsShowCmd struct {
	ID   int64 `arg:"" help:"The operation's number."`
	Wait bool  `help:"Follow the operation until it ends."`
	jsonFlag
}

// Run shows one operation.
func (c *operationsShowCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	if c.Wait {
		return a.follow(ctx, st, c.ID, c.jsonFlag)
	}
	d, err := st.Operations.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	return a.printOperation(d, c.jsonFlag)
}
