package actions

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// All are the actions with their use cases, but those that need more than a request: starting work,
// moving a publisher, revealing and appending. Commands are listed in this order.
var All = []Action{
	bind(operator.ActionRequeue, onRow[campaign.RequeueRowRequest]((*outbox.Queue).RequeueRow), nil),
	bind(operator.ActionRequeueMany, func(ctx context.Context, a Act[Nothing, campaign.RequeueRequest]) (campaign.Requeued, error) {
		return a.Queue.RequeueDead(ctx, a.Command, a.Asked.Filter())
	}, nil),
	bind(operator.ActionRetry, onRow[operator.ActionRequest]((*outbox.Queue).RetryRow), nil),
	bind(operator.ActionRetryMany, func(ctx context.Context, a Act[Nothing, campaign.RetryRequest]) (campaign.Retried, error) {
		return a.Queue.RetryFailed(ctx, a.Command, a.Asked.Filter())
	}, nil),
	bind(operator.ActionDeadLetter, onRow[operator.ActionRequest]((*outbox.Queue).DeadLetterRow), func(_ Row, row campaign.Row) string {
		return fmt.Sprintf("campaign %s seq %d (%s) is dead after %s; %s behind it", row.CampaignID, row.Seq, row.EventType,
			event.Count(int64(row.AttemptCount), "failed attempt", "failed attempts"), event.Count(row.BlockedBehind, "row waits", "rows wait"))
	}),
	bind(operator.ActionSkip, func(ctx context.Context, a Act[Row, campaign.SkipRequest]) (campaign.Row, error) {
		a.Command.Hold = a.Asked.Hold
		return onRow[campaign.SkipRequest]((*outbox.Queue).SkipEvent)(ctx, a)
	}, func(_ Row, row campaign.Row) string {
		return fmt.Sprintf("skipped campaign %s seq %d (%s); %s behind it", row.CampaignID, row.Seq, row.EventType, event.Count(row.BlockedBehind, "row waits", "rows wait"))
	}),
	bind(operator.ActionUnskip, onRow[operator.ActionRequest]((*outbox.Queue).UnskipEvent), func(_ Row, skip event.Skip) string {
		return fmt.Sprintf("un-skipped campaign %s seq %d (%s); it will be applied like any other event", skip.CampaignID, skip.Seq, skip.EventType)
	}),

	bind(operator.ActionPause, func(ctx context.Context, a Act[Campaign, operator.CampaignPauseRequest]) (campaign.CampaignView, error) {
		a.Command = a.Asked.Lasting(a.Command)
		return onCampaign((*outbox.Queue).PauseCampaign)(ctx, Act[Campaign, operator.ActionRequest]{a.Features, a.Command, a.On, a.Asked.ActionRequest})
	}, func(_ Campaign, v campaign.CampaignView) string {
		return fmt.Sprintf("paused campaign %s: %s", v.CampaignID, v.Why)
	}),
	bind(operator.ActionResume, onCampaign((*outbox.Queue).ResumeCampaign), func(_ Campaign, v campaign.CampaignView) string {
		return fmt.Sprintf("resumed campaign %s: %s", v.CampaignID, v.Why)
	}),
	bind(operator.ActionReplay, func(ctx context.Context, a Act[Campaign, operator.ActionRequest]) (campaign.Repaired, error) {
		return a.Queue.ReplayCampaign(ctx, a.Command, a.On.ID)
	}, func(on Campaign, done campaign.Repaired) string {
		return fmt.Sprintf("replayed campaign %s: %s enqueued, %s of applied events removed", on.ID,
			event.Count(done.Inserted, "row", "rows"), event.Count(done.Removed, "row", "rows"))
	}),
	bind(operator.ActionRepairGaps, func(ctx context.Context, a Act[Nothing, operator.ActionRequest]) (campaign.Repaired, error) {
		return a.Maintenance.RepairGaps(ctx, a.Command)
	}, nil),
	bind(operator.ActionNoteErrors, func(ctx context.Context, a Act[ErrorGroup, campaign.NoteRequest]) (Noted, error) {
		note, err := a.Queue.SetGroupNote(ctx, a.Command, a.Asked.Fingerprint, a.Asked.Note)
		return Noted{a.Asked.Fingerprint, note}, err
	}, func(_ ErrorGroup, noted Noted) string {
		if noted.Note == nil {
			return "note removed"
		}
		return "note saved"
	}),

	bind(operator.ActionOperationCancel, func(ctx context.Context, a Act[Operation, operations.OperationActionRequest]) (operations.Operation, error) {
		return a.Operations.Cancel(ctx, a.Command, a.On.ID, a.Asked.Seen())
	}, func(_ Operation, op operations.Operation) string {
		return fmt.Sprintf("cancelled operation %d: %s not attempted, %s in progress", op.ID, event.Count(op.Totals.Left, "row", "rows"), event.Number(op.Totals.Unwatched))
	}),
	bind(operator.ActionOperationAcknowledge, func(ctx context.Context, a Act[Operation, operations.OperationActionRequest]) (operations.Operation, error) {
		return a.Operations.Acknowledge(ctx, a.Command, a.On.ID, a.Asked.Seen())
	}, func(_ Operation, op operations.Operation) string {
		return fmt.Sprintf("acknowledged operation %d, which is %s", op.ID, op.Status)
	}),
	bind(operator.ActionRunCancel, func(ctx context.Context, a Act[Run, operator.ReasonRequest]) (replay.Run, error) {
		return a.Runs.Cancel(ctx, a.Command, a.On.ID)
	}, nil),
	bind(operator.ActionRunResume, func(ctx context.Context, a Act[Run, operator.ReasonRequest]) (replay.Run, error) {
		return a.Runs.Resume(ctx, a.Command, a.On.ID, a.Projections)
	}, nil),
	bind(operator.ActionProjectionPause, func(ctx context.Context, a Act[Projection, campaign.PauseRequest]) (campaign.ProjectionPause, error) {
		return a.Runs.PauseProjection(ctx, a.Asked.Lasting(a.Command), a.On.Name, a.Asked.CampaignID, a.Projections)
	}, pauseText("paused")),
	bind(operator.ActionProjectionResume, func(ctx context.Context, a Act[Projection, campaign.ResumeRequest]) (campaign.ProjectionPause, error) {
		return a.Runs.ResumeProjection(ctx, a.Command, a.On.Name, a.Asked.CampaignID, a.Projections)
	}, pauseText("resumed")),

	bind(operator.ActionPublisherPause, func(ctx context.Context, a Act[Publisher, operator.HoldRequest]) (subscription.Publisher, error) {
		return a.Publishers.Pause(ctx, a.Asked.Lasting(a.Command), a.On.Name.SubscriptionName)
	}, nil),
	bind(operator.ActionPublisherResume, func(ctx context.Context, a Act[Publisher, operator.ReasonRequest]) (subscription.Publisher, error) {
		return a.Publishers.Resume(ctx, a.Command, a.On.Name.SubscriptionName)
	}, nil),
	bind(operator.ActionPublisherPauseAll, func(ctx context.Context, a Act[Publishers, operator.HoldRequest]) (subscription.PublishersChange, error) {
		return a.Publishers.PauseAll(ctx, a.Asked.Lasting(a.Command), a.On.Name)
	}, nil),
	bind(operator.ActionPublisherResumeAll, func(ctx context.Context, a Act[Publishers, operator.ReasonRequest]) (subscription.PublishersChange, error) {
		return a.Publishers.ResumeAll(ctx, a.Command, a.On.Name)
	}, nil),
	bind(operator.ActionPublisherReset, func(ctx context.Context, a Act[Publisher, operator.ReasonRequest]) (subscription.Publisher, error) {
		return a.Publishers.Reset(ctx, a.Command, a.On.Name.SubscriptionName)
	}, func(_ Publisher, p subscription.Publisher) string {
		return PublisherText("reset", p)
	}),
	bind(operator.ActionPublisherSkip, func(ctx context.Context, a Act[Publisher, subscription.PublisherSkipRequest]) (subscription.Publisher, error) {
		return a.Publishers.SkipEvent(ctx, a.Command, a.On.Name.SubscriptionName, a.Asked.Position)
	}, func(_ Publisher, p subscription.Publisher) string {
		return fmt.Sprintf("publisher %s skips the event at position %d; it is %s, lag: %s", p, p.Position, p.Status, p.Lag())
	}),
	bind(operator.ActionPublisherTest, func(ctx context.Context, a Act[Publisher, operator.ReasonRequest]) (subscription.TestDelivery, error) {
		name := a.On.Name.SubscriptionName
		return a.Publishers.Test(ctx, a.Command, name, func(ctx context.Context) (subscription.TestDelivery, error) { return a.TestPublisher(ctx, name) })
	}, nil),

	bind(operator.ActionTokenRevoke, func(ctx context.Context, a Act[Token, operator.ActionRequest]) (operator.Token, error) {
		return a.Tokens.RevokeToken(ctx, a.Command, a.On.ID)
	}, func(_ Token, token operator.Token) string {
		return fmt.Sprintf("revoked token %d (%s)", token.ID, token.Role)
	}),
	bind(operator.ActionAlertTest, func(ctx context.Context, a Act[Receiver, operator.ReasonRequest]) (alerts.AlertTestResult, error) {
		return a.Alerts.Test(ctx, a.Command, a.On.Name)
	}, nil),
	bind(operator.ActionAlertMute, func(ctx context.Context, a Act[Rule, alerts.AlertMuteRequest]) (alerts.AlertMute, error) {
		return a.Alerts.Mute(ctx, a.Command, a.On.Name, a.Asked.For)
	}, func(on Rule, m alerts.AlertMute) string {
		return fmt.Sprintf("muted %s until %s", on.Name, m.Until.Format(time.RFC3339))
	}),
	bind(operator.ActionAlertUnmute, func(ctx context.Context, a Act[Rule, operator.ReasonRequest]) (alerts.AlertMute, error) {
		return a.Alerts.Unmute(ctx, a.Command, a.On.Name)
	}, func(on Rule, _ alerts.AlertMute) string { return "unmuted " + on.Name }),

	bind(operator.ActionMark, func(ctx context.Context, a Act[Moment, samples.MarkRequest]) (samples.Named, error) {
		return samples.Mark(ctx, a.Queue.Store, a.Command, a.Asked.Text)
	}, func(_ Moment, m samples.Named) string { return "marked: " + m.Text }),

	bind(operator.ActionTake, func(ctx context.Context, a Act[Wrong, campaign.TakeRequest]) (finding.Taken, error) {
		return a.Facts.Take(ctx, a.Command, a.Asked)
	}, func(_ Wrong, t finding.Taken) string { return t.Says() }),

	bind(operator.ActionIntakeRetry, func(ctx context.Context, a Act[inbound.RejectionKey, operator.ReasonRequest]) (inbound.IntakeRejection, error) {
		return a.Intake.Retry(ctx, a.Command, a.On.Source, a.On.ID)
	}, func(_ inbound.RejectionKey, r inbound.IntakeRejection) string {
		return fmt.Sprintf("rejected row %d of source %s is retried by the server that holds the source", r.ID, r.Source)
	}),
	bind(operator.ActionIntakeDiscard, func(ctx context.Context, a Act[inbound.RejectionKey, inbound.DiscardRequest]) (inbound.IntakeRejection, error) {
		return a.Intake.Discard(ctx, a.Command, a.On.Source, a.On.ID)
	}, func(_ inbound.RejectionKey, r inbound.IntakeRejection) string {
		return fmt.Sprintf("rejected row %d of source %s is discarded by the server that holds the source; its campaign %s continues", r.ID, r.Source, r.CampaignID)
	}),
	bind(operator.ActionIntakeHandOver, func(ctx context.Context, a Act[Source, inbound.HandOverRequest]) (operator.IntakeHandOver, error) {
		return a.Intake.HandOver(ctx, a.Command, a.On.Name)
	}, func(_ Source, h operator.IntakeHandOver) string {
		return fmt.Sprintf("source %s is taken from journal %s at the next read of the server that has it in its configuration", h.Source, h.From)
	}),
}

// Noted is the answer to pinning a note.
type Noted struct {
	Fingerprint string              `json:"fingerprint" redact:"-"`
	Note        *campaign.GroupNote `json:"note"` // nil when it was removed
}

// PublisherText says how a publisher is after an action on it.
func PublisherText(past string, p subscription.Publisher) string {
	return fmt.Sprintf("%s publisher %s: it is %s at position %d of %d, lag: %s", past, p, p.Status, p.Position, p.HeadPosition, p.Lag())
}

// pauseText says how a projection is after it was paused or resumed.
func pauseText(past string) func(Projection, campaign.ProjectionPause) string {
	return func(_ Projection, h campaign.ProjectionPause) string {
		where, now := "for all campaigns", ""
		if h.CampaignID != "" {
			where = fmt.Sprintf("for campaign %s at event %d", h.CampaignID, h.AppliedSeq)
		}
		if h.State != past {
			now = "; now " + h.State
		}
		text := fmt.Sprintf("%s projection %s %s%s", past, h.Projection, where, now)
		if h.Behind > 0 {
			text += fmt.Sprintf("\n%s for a replay", event.Count(h.Behind, "campaign waits", "campaigns wait"))
		}
		if h.Quarantined > 0 {
			again := request.CommandLine("outboxweb runs start replay", replay.RunRequest{All: true, Projections: []string{h.Projection}})
			text += fmt.Sprintf("\nit is quarantined in %s: fix its file, then %s", event.Count(h.Quarantined, "campaign", "campaigns"), again)
		}
		if h.BlockedByRun > 0 {
			text += fmt.Sprintf("\nthe replay starts when run %d ends", h.BlockedByRun)
		}
		return text
	}
}
