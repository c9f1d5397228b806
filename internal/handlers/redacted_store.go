package handlers

import (
	"context"
	"iter"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// What the handlers ask of the store, each with its answer as readers may see it.

func (v redacted) AcknowledgeOperation(ctx context.Context, o outbox.Order, id int64, seen outbox.OperationStatus) (outbox.Operation, error) {
	result, err := v.of.AcknowledgeOperation(ctx, o, id, seen)
	return shown(v, result), v.wording(err)
}

func (v redacted) Act(ctx context.Context, id int64) (outbox.Act, error) {
	result, err := v.of.Act(ctx, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) ActOfKey(ctx context.Context, key string) (int64, error) {
	result, err := v.of.ActOfKey(ctx, key)
	return result, v.wording(err)
}

func (v redacted) ActiveRuns(ctx context.Context) ([]outbox.Run, error) {
	result, err := v.of.ActiveRuns(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) Acts(ctx context.Context, f outbox.ActFilter) (outbox.Page[outbox.Act], error) {
	result, err := v.of.Acts(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) ActsInPages(ctx context.Context, f outbox.ActFilter) iter.Seq2[[]outbox.Act, error] {
	return shownPages(v, v.of.ActsInPages(ctx, f))
}

func (v redacted) ActsOn(ctx context.Context, target outbox.Target, limit int) ([]outbox.Act, error) {
	result, err := v.of.ActsOn(ctx, target, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) ActsRemovedBefore(ctx context.Context) (time.Time, error) {
	result, err := v.of.ActsRemovedBefore(ctx)
	return result, v.wording(err)
}

func (v redacted) AdmitTest(ctx context.Context, o outbox.Order, name outbox.PairName) (*outbox.TestDelivery, error) {
	result, err := v.publishers.AdmitTest(ctx, o, name)
	return shown(v, result), v.wording(err)
}

func (v redacted) Append(ctx context.Context, a store.Append) ([]store.Appended, error) {
	result, err := v.of.Append(ctx, a)
	return result, v.wording(err)
}

func (v redacted) AppendOnce(ctx context.Context, a store.Append, key store.AppendKey) ([]store.Appended, bool, error) {
	result, repeated, err := v.of.AppendOnce(ctx, a, key)
	return result, repeated, v.wording(err)
}

func (v redacted) Blocked(ctx context.Context, limit int) ([]outbox.Blocked, error) {
	result, err := v.of.Blocked(ctx, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) Campaign(ctx context.Context, id string) (outbox.Campaign, error) {
	result, err := v.of.Campaign(ctx, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) CampaignHistory(ctx context.Context, id string, since time.Time) ([]outbox.CampaignPoint, error) {
	result, err := v.of.CampaignHistory(ctx, id, since)
	return shown(v, result), v.wording(err)
}

func (v redacted) Campaigns(ctx context.Context, f outbox.CampaignFilter) (outbox.Page[outbox.Campaign], error) {
	result, err := v.of.Campaigns(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) CampaignsInPages(ctx context.Context, f outbox.CampaignFilter) iter.Seq2[[]outbox.Campaign, error] {
	return shownPages(v, v.of.CampaignsInPages(ctx, f))
}

func (v redacted) CancelOperation(ctx context.Context, o outbox.Order, id int64, seen outbox.OperationStatus) (outbox.Operation, error) {
	result, err := v.of.CancelOperation(ctx, o, id, seen)
	return shown(v, result), v.wording(err)
}

func (v redacted) CancelRun(ctx context.Context, o outbox.Order, id int64) (outbox.Run, error) {
	result, err := v.of.CancelRun(ctx, o, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) Cursors(ctx context.Context, campaign string, loaded []outbox.ProjectionInfo) ([]outbox.Cursor, error) {
	result, err := v.of.Cursors(ctx, campaign, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) Databases(ctx context.Context) ([]outbox.DatabaseInfo, error) {
	result, err := v.of.Databases(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) DeadLetterRow(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Row, error) {
	result, err := v.of.DeadLetterRow(ctx, o, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) DescribeProjections(ctx context.Context, loaded []outbox.ProjectionInfo) ([]outbox.ProjectionInfo, error) {
	result, err := v.of.DescribeProjections(ctx, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) Drifted(ctx context.Context, limit int) ([]outbox.Verification, error) {
	result, err := v.of.Drifted(ctx, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) ErrorGroups(ctx context.Context) (outbox.ErrorGroups, error) {
	result, err := v.of.ErrorGroups(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) Event(ctx context.Context, campaign string, seq int64) (outbox.Event, error) {
	result, err := v.of.Event(ctx, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) EventHistory(ctx context.Context, campaign string, seq int64) (outbox.EventHistory, error) {
	result, err := v.of.EventHistory(ctx, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) EventLines(ctx context.Context, campaign string, first, last int64) ([]outbox.EventLine, error) {
	result, err := v.of.EventLines(ctx, campaign, first, last)
	return shown(v, result), v.wording(err)
}

func (v redacted) EventWithin(ctx context.Context, campaign string, seq, limit int64) (outbox.EventDetail, error) {
	result, err := v.of.EventWithin(ctx, campaign, seq, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) Events(ctx context.Context, campaign string, afterSeq int64, limit int) (outbox.Page[outbox.Event], error) {
	result, err := v.of.Events(ctx, campaign, afterSeq, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) Failure(ctx context.Context, id int64) (outbox.ProjectionFailure, error) {
	result, err := v.of.Failure(ctx, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) Failures(ctx context.Context, f outbox.FailureFilter) (outbox.Page[outbox.ProjectionFailure], error) {
	result, err := v.of.Failures(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) Gaps(ctx context.Context) ([]outbox.Gap, error) {
	result, err := v.of.Gaps(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) HeldCursors(ctx context.Context, campaign string, loaded []outbox.ProjectionInfo) ([]outbox.Cursor, error) {
	result, err := v.of.HeldCursors(ctx, campaign, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) History(ctx context.Context, span outbox.Span) (outbox.History, error) {
	result, err := v.of.History(ctx, span)
	return shown(v, result), v.wording(err)
}

func (v redacted) Instances(ctx context.Context) ([]outbox.InstanceState, error) {
	result, err := v.of.Instances(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) NoteGroup(ctx context.Context, o outbox.Order, fingerprint, note string) (*outbox.GroupNote, error) {
	result, err := v.of.NoteGroup(ctx, o, fingerprint, note)
	return shown(v, result), v.wording(err)
}

func (v redacted) Operation(ctx context.Context, id int64) (outbox.OperationDetail, error) {
	result, err := v.of.Operation(ctx, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) OperationRows(ctx context.Context, id int64, f outbox.OperationRowFilter) (outbox.Page[outbox.OperationRow], error) {
	result, err := v.of.OperationRows(ctx, id, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) Operations(ctx context.Context, f outbox.OperationFilter) (outbox.Page[outbox.Operation], error) {
	result, err := v.of.Operations(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) Pace(ctx context.Context) (float64, error) {
	result, err := v.of.Pace(ctx)
	return result, v.wording(err)
}

func (v redacted) PauseCampaign(ctx context.Context, o outbox.Order, id string) (outbox.Campaign, error) {
	result, err := v.of.PauseCampaign(ctx, o, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) PauseProjection(ctx context.Context, o outbox.Order, projection, campaign string, loaded []outbox.ProjectionInfo) (outbox.ProjectionHold, error) {
	result, err := v.of.PauseProjection(ctx, o, projection, campaign, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) PausePublisher(ctx context.Context, o outbox.Order, name outbox.PairName) (outbox.Publisher, error) {
	result, err := v.publishers.PausePublisher(ctx, o, name)
	return shown(v, result), v.wording(err)
}

func (v redacted) Paused(ctx context.Context, limit int) ([]outbox.Campaign, error) {
	result, err := v.of.Paused(ctx, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) Position(ctx context.Context) (int64, error) {
	result, err := v.of.Position(ctx)
	return result, v.wording(err)
}

func (v redacted) PreviewOperation(ctx context.Context, selection outbox.Selection) (outbox.OperationPreview, error) {
	result, err := v.of.PreviewOperation(ctx, selection)
	return shown(v, result), v.wording(err)
}

func (v redacted) PreviewRun(ctx context.Context, order outbox.RunOrder, loaded []outbox.ProjectionInfo) (outbox.RunPreview, error) {
	result, err := v.of.PreviewRun(ctx, order, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) PreviewSeek(ctx context.Context, name outbox.PairName, target outbox.SeekTarget) (outbox.Seek, error) {
	result, err := v.publishers.PreviewSeek(ctx, name, target)
	return shown(v, result), v.wording(err)
}

func (v redacted) ProjectionCursors(ctx context.Context, f outbox.CursorFilter, loaded []outbox.ProjectionInfo) (outbox.Page[outbox.CampaignCursor], error) {
	result, err := v.of.ProjectionCursors(ctx, f, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) Publisher(ctx context.Context, name outbox.PairName) (outbox.Publisher, error) {
	result, err := v.publishers.Publisher(ctx, name)
	return shown(v, result), v.wording(err)
}

func (v redacted) PublisherHistory(ctx context.Context, name outbox.PairName, span outbox.Span) ([]outbox.PublisherPoint, error) {
	result, err := v.publishers.PublisherHistory(ctx, name, span)
	return shown(v, result), v.wording(err)
}

func (v redacted) Publishers(ctx context.Context) ([]outbox.Publisher, error) {
	result, err := v.publishers.Publishers(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) Ready(ctx context.Context) []string {
	return shown(v, v.of.Ready(ctx))
}

func (v redacted) RecordTestDelivery(ctx context.Context, o outbox.Order, d outbox.TestDelivery) error {
	return v.wording(v.publishers.RecordTestDelivery(ctx, o, d))
}

func (v redacted) RepairGaps(ctx context.Context, o outbox.Order) (outbox.Repaired, error) {
	result, err := v.of.RepairGaps(ctx, o)
	return shown(v, result), v.wording(err)
}

func (v redacted) ReplayCampaign(ctx context.Context, o outbox.Order, id string) (outbox.Repaired, error) {
	result, err := v.of.ReplayCampaign(ctx, o, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) RequeueDead(ctx context.Context, o outbox.Order, f outbox.RequeueFilter) (outbox.Requeued, error) {
	result, err := v.of.RequeueDead(ctx, o, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) RequeueRow(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Row, error) {
	result, err := v.of.RequeueRow(ctx, o, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) ResetPublisher(ctx context.Context, o outbox.Order, name outbox.PairName) (outbox.Publisher, error) {
	result, err := v.publishers.ResetPublisher(ctx, o, name)
	return shown(v, result), v.wording(err)
}

func (v redacted) ResumeCampaign(ctx context.Context, o outbox.Order, id string) (outbox.Campaign, error) {
	result, err := v.of.ResumeCampaign(ctx, o, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) ResumeProjection(ctx context.Context, o outbox.Order, projection, campaign string, loaded []outbox.ProjectionInfo) (outbox.ProjectionHold, error) {
	result, err := v.of.ResumeProjection(ctx, o, projection, campaign, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) ResumePublisher(ctx context.Context, o outbox.Order, name outbox.PairName) (outbox.Publisher, error) {
	result, err := v.publishers.ResumePublisher(ctx, o, name)
	return shown(v, result), v.wording(err)
}

func (v redacted) ResumeRun(ctx context.Context, o outbox.Order, id int64, loaded []outbox.ProjectionInfo) (outbox.Run, error) {
	result, err := v.of.ResumeRun(ctx, o, id, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) RetryFailed(ctx context.Context, o outbox.Order, f outbox.RequeueFilter) (outbox.Retried, error) {
	result, err := v.of.RetryFailed(ctx, o, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) RetryRow(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Row, error) {
	result, err := v.of.RetryRow(ctx, o, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) Row(ctx context.Context, campaign string, seq int64) (outbox.RowDetail, error) {
	result, err := v.of.Row(ctx, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) RowWithin(ctx context.Context, campaign string, seq, limit int64) (outbox.RowDetail, error) {
	result, err := v.of.RowWithin(ctx, campaign, seq, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) Run(ctx context.Context, id int64) (outbox.Run, error) {
	result, err := v.of.Run(ctx, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) RunLog(ctx context.Context, id int64, cursor string, limit int) (outbox.Page[outbox.RunLine], error) {
	result, err := v.of.RunLog(ctx, id, cursor, limit)
	return shown(v, result), v.wording(err)
}

func (v redacted) RunResultOf(ctx context.Context, id int64, campaign string) (outbox.RunResult, error) {
	result, err := v.of.RunResultOf(ctx, id, campaign)
	return shown(v, result), v.wording(err)
}

func (v redacted) RunResults(ctx context.Context, f outbox.ResultFilter) (outbox.Page[outbox.RunResult], error) {
	result, err := v.of.RunResults(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) Runs(ctx context.Context, f outbox.RunFilter) (outbox.Page[outbox.Run], error) {
	result, err := v.of.Runs(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) SeekPublisher(ctx context.Context, o outbox.Order, name outbox.PairName, target outbox.SeekTarget, seen *outbox.Seek) (outbox.Seek, error) {
	result, err := v.publishers.SeekPublisher(ctx, o, name, target, seen)
	return shown(v, result), v.wording(err)
}

func (v redacted) SkipEvent(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Row, error) {
	result, err := v.of.SkipEvent(ctx, o, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) SkipPublisherEvent(ctx context.Context, o outbox.Order, name outbox.PairName, position int64) (outbox.Publisher, error) {
	result, err := v.publishers.SkipPublisherEvent(ctx, o, name, position)
	return shown(v, result), v.wording(err)
}

func (v redacted) Skips(ctx context.Context, f outbox.SkipFilter) (outbox.Page[outbox.Skip], error) {
	result, err := v.of.Skips(ctx, f)
	return shown(v, result), v.wording(err)
}

func (v redacted) StartOperation(ctx context.Context, o outbox.Order, order outbox.OperationOrder) (outbox.Operation, error) {
	result, err := v.of.StartOperation(ctx, o, order)
	return shown(v, result), v.wording(err)
}

func (v redacted) StartRun(ctx context.Context, o outbox.Order, order outbox.RunOrder, loaded []outbox.ProjectionInfo) (outbox.Run, error) {
	result, err := v.of.StartRun(ctx, o, order, loaded)
	return shown(v, result), v.wording(err)
}

func (v redacted) Summary(ctx context.Context) (outbox.Summary, error) {
	result, err := v.of.Summary(ctx)
	return shown(v, result), v.wording(err)
}

func (v redacted) UnskipEvent(ctx context.Context, o outbox.Order, campaign string, seq int64) (outbox.Skip, error) {
	result, err := v.of.UnskipEvent(ctx, o, campaign, seq)
	return shown(v, result), v.wording(err)
}

func (v redacted) Verifications(ctx context.Context, campaign string) ([]outbox.Verification, error) {
	result, err := v.of.Verifications(ctx, campaign)
	return shown(v, result), v.wording(err)
}

func (v redacted) WaitApplied(ctx context.Context, campaign string, seq int64) (int64, error) {
	result, err := v.of.WaitApplied(ctx, campaign, seq)
	return result, v.wording(err)
}

func (v redacted) RecordRefusal(ctx context.Context, o outbox.Order, refused outbox.RefusedAct) (int64, error) {
	result, err := v.of.RecordRefusal(ctx, o, refused)
	return result, v.wording(err)
}

func (v redacted) RevokeToken(ctx context.Context, o outbox.Order, id int64) (outbox.Token, error) {
	result, err := v.of.RevokeToken(ctx, o, id)
	return shown(v, result), v.wording(err)
}

func (v redacted) Tokens(ctx context.Context) ([]outbox.Token, error) {
	result, err := v.of.Tokens(ctx)
	return shown(v, result), v.wording(err)
}
