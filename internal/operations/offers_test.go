package operations

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

var noon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

func TestOperation_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []operator.Action
	}{
		{"an operation", []operator.Action{Operation{Status: OperationRunning}.Action()}, []operator.Action{operator.ActionOperationCancel}},
		{"a stopped operation", []operator.Action{Operation{Status: OperationStopped}.Action()}, []operator.Action{operator.ActionOperationAcknowledge}},
	} {
		must.Same(t, c.got, c.want, c.name)
	}
}

func TestOperation_whatMayBeDone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want bool
	}{
		{"a running operation is acknowledged", Operation{Status: OperationRunning}.Acknowledgeable(), false},
		{"an acknowledged operation is acknowledged", Operation{Status: OperationStopped, AcknowledgedAt: &noon}.Acknowledgeable(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
