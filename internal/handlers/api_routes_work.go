package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// routeOperationsAPI adds the API's routes about operations, the requeues of many rows.
func (s *server) routeOperationsAPI() {
	s.apiGet("/operations", reply(s, filter[operations.OperationFilter](s), s.Operations.List), endpoint{
		id: "listOperations", tag: tagOperations,
		summary: "Operations, newest first",
		query:   queryOf(operations.OperationFilter{}),
		answers: gives[event.Page[operations.Operation]]("a page of operations"),
	})
	addStart(s, operator.ActionOperationStart, starter[operations.OperationStartRequest, operations.Operation]{readOperationForm, s.startOperation, operationStarted, operationStarted}, endpoint{
		id: "startOperation", tag: tagOperations,
		summary: "Requeue dead rows as an operation: a fixed set of rows, in waves, watched",
	})
	s.apiAdd(route{method: http.MethodPost, pattern: "/operations/preview", role: operator.RoleViewer}, s.handle(s.jsonInput(serveJSON(s, s.readOperationPreview))), endpoint{ // a query too long for an address
		id: "previewOperation", tag: tagOperations,
		summary: "What an operation would do; changes nothing",
		body:    takes[operations.OperationStartRequest](),
		answers: gives[operations.OperationPreview]("the preview"),
	})
	s.apiGet("/operations/{operation}", reply(s, operationParam, s.Operations.Get), endpoint{
		id: "getOperation", tag: tagOperations,
		summary: "One operation: its groups, what it is waiting for, and other failures since it started",
		answers: gives[operations.OperationDetail]("the operation"),
	})
	s.apiGet("/operations/{operation}/rows", replyAbout(s, operationParam, filter[operations.OperationRowFilter](s), s.Operations.Rows), endpoint{
		id: "listOperationRows", tag: tagOperations,
		summary: "The result of each row of an operation",
		query:   queryOf(operations.OperationRowFilter{}),
		answers: gives[event.Page[operations.OperationRow]]("a page of rows"),
	})
	addAction(s, operator.ActionOperationCancel, onOperations, asSeen(s.Operations.Cancel), endpoint{
		id: "cancelOperation", tag: tagOperations,
		summary: "Cancel an operation: rows not attempted stay dead, rows in progress continue",
	})
	addAction(s, operator.ActionOperationAcknowledge, onOperations, asSeen(s.Operations.Acknowledge), endpoint{
		id: "acknowledgeOperation", tag: tagOperations,
		summary: "Acknowledge the outcome of an operation",
	})
}

// routeRunsAPI adds the API's routes about replays, rebuilds and verifies.
func (s *server) routeRunsAPI() {
	s.apiGet("/runs", reply(s, filter[replay.RunFilter](s), s.Runs.List), endpoint{
		id: "listRuns", tag: tagRuns,
		summary: "Runs, newest first",
		query:   queryOf(replay.RunFilter{}),
		answers: gives[event.Page[replay.Run]]("a page of runs"),
	})
	addStart(s, operator.ActionRunStart, starter[replay.RunStartRequest, replay.Run]{readRunForm, s.startRun, runStarted, runStarted}, endpoint{
		id: "startRun", tag: tagRuns,
		summary: "Start a replay, verify or rebuild; 409 names the blocking run",
	})
	addStart(s, operator.ActionRehearse, starter[replay.RehearsalStartRequest, replay.Run]{s.readRehearsalForm, s.startRehearsal, runStarted, rehearsalStarted}, endpoint{
		id: "rehearse", tag: tagRuns,
		summary: "Try changed projection files on copies of blocked campaigns",
	})
	s.apiGet("/rehearsals/{run}", reply(s, runParam, s.readRehearsal), endpoint{
		id: "getRehearsal", tag: tagRuns,
		summary: "One rehearsal: its run and its answer so far",
		answers: gives[replay.FixRehearsal]("the rehearsal"),
	})
	s.apiGet("/runs/{run}", reply(s, runParam, s.Runs.Get), endpoint{
		id: "getRun", tag: tagRuns,
		summary: "One run: its progress and outcome",
		answers: gives[replay.Run]("the run"),
	})
	addAction(s, operator.ActionRunCancel, onRuns, with[operator.ReasonRequest](s.Runs.Cancel), endpoint{
		id: "cancelRun", tag: tagRuns,
		summary: "Cancel a run: finished campaigns stay done, the others are unchanged",
	})
	addAction(s, operator.ActionRunResume, onRuns, with[operator.ReasonRequest](s.resumeRun), endpoint{
		id: "resumeRun", tag: tagRuns,
		summary: "Resume an interrupted or failed run where it stopped",
	})
	s.apiGet("/runs/{run}/results", reply(s, resultFilter, s.Runs.Results), endpoint{
		id: "listRunResults", tag: tagRuns,
		summary: "The result of each campaign of a run, without sample rows",
		query:   queryOf(replay.ResultFilter{}),
		answers: gives[event.Page[replay.RunResult]]("a page of results"),
	})
	s.apiGet("/runs/{run}/results/{campaign}", replyAbout(s, runParam, campaignParam, s.Runs.ResultOf), endpoint{
		id: "getRunResult", tag: tagRuns,
		summary: "The result of one campaign of a run, with sample rows that differ",
		answers: gives[replay.RunResult]("the result"),
	})
	s.apiGet("/runs/{run}/log", replyAbout(s, runParam, filter[paging](s), s.readRunLog), endpoint{
		id: "listRunLog", tag: tagRuns,
		summary: "The log of a run, newest first, with every error in full",
		query:   queryOf(paging{}),
		answers: gives[event.Page[replay.RunLine]]("a page of lines"),
	})
	s.apiGet("/campaigns/{campaign}/verifications", reply(s, campaignParam, s.readVerifications), endpoint{
		id: "listVerifications", tag: tagRuns,
		summary: "When each projection of a campaign was last verified",
		answers: gives[verifications]("the verifications"),
	})
}

func (s *server) routeProjectionsAPI() {
	s.apiGet("/projections", serveJSONList(s, s.knownProjections), endpoint{
		id: "listProjections", tag: tagProjections,
		summary: "The loaded projections, and then those that are not loaded any more",
		answers: gives[items[campaign.ProjectionInfo]]("the projections"),
	})
	s.apiGet("/projections/{name}", serveJSON(s, s.detailed), endpoint{
		id: "getProjection", tag: tagProjections,
		summary: "One projection",
		answers: gives[campaign.ProjectionDetail]("the projection"),
	})
	s.apiGet("/projections/{name}/cursors", reply(s, cursorFilter, s.projectionCursors), endpoint{
		id: "listProjectionCursors", tag: tagProjections,
		summary: "Campaigns where a projection is not live, by id",
		query:   queryOf(campaign.CursorFilter{}),
		answers: gives[event.Page[campaign.CampaignCursor]]("a page of its cursors"),
	})
	addAction(s, operator.ActionProjectionPause, onProjections, s.pauseProjection, endpoint{
		id: "pauseProjection", tag: tagProjections,
		summary: "Pause a projection for a campaign or for all; the others keep going",
		answers: gives[campaign.ProjectionPause]("the outcome"),
	})
	addAction(s, operator.ActionProjectionResume, onProjections, s.resumeProjection, endpoint{
		id: "resumeProjection", tag: tagProjections,
		summary: "Resume a paused projection; where it missed events, it is behind until a replay",
		answers: gives[campaign.ProjectionPause]("the outcome"),
	})
}

func (s *server) routePublishersAPI() {
	s.apiGet("/publishers", reply(s, filter[subscription.PublisherFilter](s), s.Publishers.Page), endpoint{
		id: "listPublishers", tag: tagPublishers,
		summary: "A page of publishers by name, with their lag, at most a second old",
		query:   queryOf(paging{}),
		answers: gives[event.Page[subscription.Publisher]]("a page of publishers"),
	})
	s.apiGet("/publishers/{topic}/{publisher}", reply(s, subscriptionParam, s.Publishers.Publisher), endpoint{
		id: "getPublisher", tag: tagPublishers,
		summary: "A publisher",
		answers: gives[subscription.Publisher]("the publisher"),
	})
	s.apiGet("/publishers/{topic}/{publisher}/history", replyAbout(s, subscriptionParam, s.readRange, s.Publishers.History), endpoint{
		id: "getPublisherHistory", tag: tagPublishers,
		summary: "The history of a publisher over a range",
		query:   queryOf(rangeQuery{}),
		answers: gives[publishing.PublisherHistory]("the history; steps without a record have no point"),
	})
	addAction(s, operator.ActionPublisherPause, onPublishers, with[operator.ReasonRequest](s.Publishers.Pause), endpoint{
		id: "pausePublisher", tag: tagPublishers,
		summary: "Pause a publisher; a batch in flight finishes first",
	})
	addAction(s, operator.ActionPublisherResume, onPublishers, with[operator.ReasonRequest](s.Publishers.Resume), endpoint{
		id: "resumePublisher", tag: tagPublishers,
		summary: "Resume a paused or failed publisher at once, with its errors cleared",
	})
	addAction(s, operator.ActionPublisherPauseAll, onPublisherNames, with[operator.ReasonRequest](s.Publishers.PauseAll), endpoint{
		id: "pausePublisherInAllTopics", tag: tagPublishers,
		summary: "Pause the publishers of a name in all topics at once",
		answers: gives[subscription.PublishersChange]("the publishers that were paused, and those that were paused already"),
	})
	addAction(s, operator.ActionPublisherResumeAll, onPublisherNames, with[operator.ReasonRequest](s.Publishers.ResumeAll), endpoint{
		id: "resumePublisherInAllTopics", tag: tagPublishers,
		summary: "Resume the paused and failed publishers of a name in all topics at once, with their errors cleared",
		answers: gives[subscription.PublishersChange]("the publishers that were resumed, and those that were active without errors"),
	})
	addAction(s, operator.ActionPublisherReset, onPublishers, with[operator.ReasonRequest](s.Publishers.Reset), endpoint{
		id: "resetPublisher", tag: tagPublishers,
		summary: "Clear a publisher's errors; a pause stays",
	})
	addAction(s, operator.ActionPublisherSkip, onPublishers, func(ctx context.Context, o operator.Command, name operator.SubscriptionName, asked subscription.PublisherSkipRequest) (subscription.Publisher, error) {
		return s.Publishers.SkipEvent(ctx, o, name, asked.Position)
	}, endpoint{
		id: "skipPublisherEvent", tag: tagPublishers,
		summary: "Skip the event that a publisher cannot deliver",
	})
	addAction(s, operator.ActionPublisherTest, onPublishers, with[operator.ReasonRequest](s.testPublisher), endpoint{
		id: "testPublisher", tag: tagPublishers,
		summary: "Send a test event to a publisher's destination",
		answers: gives[subscription.TestDelivery]("the outcome, also when it was not delivered"),
	})
	s.apiAdd(route{method: http.MethodPost, pattern: operator.ActionPublisherSeek.Info().Path, role: operator.RoleViewer, action: operator.ActionPublisherSeek},
		s.handle(s.jsonInput(s.apiSeekPublisher)), endpoint{ // the handler checks the action's role itself, unless it is a dry run
			id: "seekPublisher", tag: tagPublishers,
			summary: "Move a publisher's position (reset its offset), repeating or skipping events",
			body:    takes[subscription.SeekRequest](),
			answers: gives[operator.Seek]("done and audited; for a dry run, what would be done"),
		})
}
