package samples

import (
	"context"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
)

// MarkRequest asks for a marker in the charts.
type MarkRequest struct {
	Text string `json:"text" validate:"reason" api:"required,min=1" arg:"" help:"What happens now: one line of at most 500 bytes."`
	operator.ReasonRequest
}

// Named is what an operator or a script marked.
type Named struct {
	Text string `json:"text"`
}

// Mark marks this moment in the charts. The audit log keeps it; without a text it is event.ErrInvalid.
func Mark(ctx context.Context, s *store.Store, o operator.Command, text string) (Named, error) {
	asked := Named{strings.TrimSpace(text)}
	a := &store.Change{Command: o, Action: operator.ActionMark, Before: asked, Asked: asked}
	return store.Perform(ctx, s, a, func(*store.Tx, int64) (Named, error) {
		if asked.Text == "" || strings.ContainsAny(asked.Text, "\r\n") {
			return asked, event.Invalid("text", "a marker needs one line of text")
		}
		a.After = asked
		return asked, s.RequireReason(o, 0)
	})
}
