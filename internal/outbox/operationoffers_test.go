package outbox

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

var operationNoon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

func TestOperation_actionsFollowTheState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		got, want []Action
	}{
		{"an operation", []Action{Operation{Status: OperationRunning}.Action()}, []Action{ActionOperationCancel}},
		{"a stopped operation", []Action{Operation{Status: OperationStopped}.Action()}, []Action{ActionOperationAcknowledge}},
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
		{"an acknowledged operation is acknowledged", Operation{Status: OperationStopped, AcknowledgedAt: &operationNoon}.Acknowledgeable(), false},
	} {
		must.Equal(t, c.got, c.want, c.name)
	}
}
