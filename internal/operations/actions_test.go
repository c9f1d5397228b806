package operations_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.Beside() }, All: []storetest.Kind[*fixture]{
	{Action: "operation_start", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.Operations.Start(f.Ctx, o, operations.OperationRequest{Canary: true})
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from operation_rows`) == 0 }},
	{Action: "operation_cancel", Scene: runningOperation,
		Do: func(f *fixture, o operator.Command) (any, error) { return f.Operations.Cancel(f.Ctx, o, 1, "") },
		Undone: func(f *fixture) bool {
			return f.Number(`select count(*) from operation_rows where status = 'waiting'`) == 1
		}},
	{Action: "operation_acknowledge", Scene: endedOperation,
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.Operations.Acknowledge(f.Ctx, o, 1, "") },
		Undone: func(f *fixture) bool { return f.Operation(1).AcknowledgedAt == nil }},
}}

func runningOperation(f *fixture) {
	f.DeadHead()
	must.Get(f.Operations.Start(f.Ctx, storetest.Ben, operations.OperationRequest{Canary: true})).Or(f.TB)
}

func endedOperation(f *fixture) {
	runningOperation(f)
	must.Get(f.Operations.Cancel(f.Ctx, storetest.Ben, 1, "")).Or(f.TB)
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a operator.Action) bool { return strings.HasPrefix(string(a), "operation_") })
}
