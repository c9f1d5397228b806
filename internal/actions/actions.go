// Package actions binds actions to their use cases, once for all surfaces: the form of a page, the
// route of the API and the command are made of the line that an action has in All.
package actions

import (
	"context"
	"reflect"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

// Features are what actions work on. A process that performs only some actions needs only their features.
type Features struct {
	Queue       *outbox.Queue
	Maintenance *maintenance.Maintenance
	Operations  *operations.Operations
	Runs        *runs.Runs
	Tokens      *tokens.Tokens
	Publishers  *publishing.Progress
	Intake      *intake.Intake
	Alerts      *alerts.Alerts
	Facts       *facts.Reader
	Projections []campaign.ProjectionInfo // the loaded definitions
	// ViewCampaign is how the process shows a campaign.
	ViewCampaign func(context.Context, campaign.Campaign) campaign.CampaignView
	// TestPublisher sends a made-up event to a publisher's destination; a delivery failure is not an
	// error.
	TestPublisher func(context.Context, operator.SubscriptionName) (subscription.TestDelivery, error)
}

// Action is an action with its use case.
type Action struct {
	operator.ActionInfo
	Result reflect.Type // of what it answers with
	New    func() Call
}

// Call is one call of an action. It is a struct with tags, from which kong makes the arguments and the
// flags of a command.
type Call interface {
	// Fields are pointers to what the action is on and to the request that asks for it, to be filled.
	Fields() (on, asked any)
	// Do performs the action.
	Do(context.Context, *Features, operator.Command) (any, error)
	// Says is what a command prints of the result.
	Says(result any) string
}

// Act is an action as its use case sees it: where, by whose command, on what, and asked for with what.
type Act[K, B any] struct {
	*Features
	operator.Command
	On    K
	Asked B
}

// call is a Call of an action on a K that is asked for with a B and answers with an R.
type call[K, B, R any] struct {
	On    K `embed:""`
	Asked B `embed:""`
	do    func(context.Context, Act[K, B]) (R, error)
	says  func(on K, did R) string
}

func (c *call[K, B, R]) Fields() (on, asked any) { return &c.On, &c.Asked }

func (c *call[K, B, R]) Do(ctx context.Context, in *Features, o operator.Command) (any, error) {
	return c.do(ctx, Act[K, B]{in, o, c.On, c.Asked})
}

func (c *call[K, B, R]) Says(result any) string { return c.says(c.On, result.(R)) }

// bind is the line of an action: its use case, and what a command prints of the result. Without the
// latter it prints that the action is done.
func bind[K, B, R any](action operator.Action, do func(context.Context, Act[K, B]) (R, error), says func(on K, did R) string) Action {
	if says == nil {
		says = func(K, R) string { return "done: " + action.Info().Choice }
	}
	return Action{action.Info(), reflect.TypeFor[R](), func() Call { return &call[K, B, R]{do: do, says: says} }}
}
