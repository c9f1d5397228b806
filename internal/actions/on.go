package actions

import (
	"context"
	"fmt"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// What actions are on: the address of a route names it, and the arguments of a command.
type (
	// Nothing is what actions without an object are on.
	Nothing struct{}
	// Moment is now, in the charts.
	Moment struct{}
	// Wrong is what the request names, of what is wrong.
	Wrong struct{}
	// Row is a row and its event.
	Row struct {
		CampaignID string `arg:"" name:"campaign" help:"The event's campaign."`
		Seq        Seq    `arg:"" help:"The event's seq."`
	}
	Campaign struct {
		ID string `arg:"" name:"campaign" help:"The campaign's id."`
	}
	Projection struct {
		Name string `arg:"" help:"The projection."`
	}
	Publisher struct {
		Name PublisherName `arg:"" name:"publisher" help:"The publisher, as TOPIC/PUBLISHER."`
	}
	// Publishers are those of a name in all topics.
	Publishers struct {
		Name string `arg:"" help:"The publishers' name."`
	}
	Operation struct {
		ID int64 `arg:"" help:"The operation's number."`
	}
	Run struct {
		ID int64 `arg:"" help:"The run's number."`
	}
	Token struct {
		ID int64 `arg:"" help:"The token's number, from token list."`
	}
	Source struct {
		Name string `arg:"" name:"source" help:"The source, as named in the configuration file."`
	}
	// Rule is a rule of alerts.
	Rule struct {
		Name string `arg:"" name:"rule" values:"alert-rule" help:"The rule's name, or all."`
	}
	// Receiver is one of alerts.
	Receiver struct {
		Name string `arg:"" name:"receiver" help:"The receiver's name, as shown by alerts."`
	}
	// ErrorGroup are the rows with an error in common, which the request names.
	ErrorGroup struct {
		Fingerprint string `kong:"-"`
	}
)

// Seq is an event's number in its campaign.
type Seq int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Seq) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("must be a number of 1 or more, not %q", text)
	}
	*s = Seq(n)
	return nil
}

// PublisherName names a publisher as TOPIC/PUBLISHER.
type PublisherName struct{ operator.SubscriptionName }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PublisherName) UnmarshalText(text []byte) (err error) {
	p.SubscriptionName, err = operator.ParseSubscriptionName(string(text))
	return err
}

// onRow adapts a use case on a row.
func onRow[B, R any](do func(*outbox.Queue, context.Context, operator.Command, string, int64) (R, error)) func(context.Context, Act[Row, B]) (R, error) {
	return func(ctx context.Context, a Act[Row, B]) (R, error) {
		return do(a.Queue, ctx, a.Command, a.On.CampaignID, int64(a.On.Seq))
	}
}

// onCampaign adapts a use case that changes a campaign, and answers with how it is shown.
func onCampaign(do func(*outbox.Queue, context.Context, operator.Command, string) (campaign.Campaign, error)) func(context.Context, Act[Campaign, operator.ActionRequest]) (campaign.CampaignView, error) {
	return func(ctx context.Context, a Act[Campaign, operator.ActionRequest]) (campaign.CampaignView, error) {
		changed, err := do(a.Queue, ctx, a.Command, a.On.ID)
		if err != nil {
			return campaign.CampaignView{}, err
		}
		return a.ViewCampaign(ctx, changed), nil
	}
}
