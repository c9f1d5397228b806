package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// routeOperationsAPI adds the API's routes about operations, the requeues of many rows.
func (s *server) routeOperationsAPI() {
	s.apiGet("/operations", reply(s, filter[outbox.OperationFilter](s), s.Operations.List), endpoint{
		id: "listOperations", tag: tagOperations,
		summary: "Operations, newest first",
		query:   queryOf(outbox.OperationFilter{}),
		answers: gives[outbox.Page[outbox.Operation]]("a page of operations"),
	})
	addStart(s, outbox.ActionOperationStart, starter[outbox.OperationStartRequest, outbox.Operation]{readOperationForm, s.startOperation, operationStarted, operationStarted}, endpoint{
		id: "startOperation", tag: tagOperations,
		summary: "Requeue dead rows as an operation: a fixed set of rows, in waves, watched",
	})
	s.apiAdd(route{method: http.MethodPost, pattern: "/operations/preview", role: outbox.RoleViewer}, s.handle(s.jsonInput(serveJSON(s, s.readOperationPreview))), endpoint{ // a query too long for an address
		id: "previewOperation", tag: tagOperations,
		summary: "What an operation would do; changes nothing",
		body:    takes[outbox.OperationStartRequest](),
		answers: gives[outbox.OperationPreview]("the preview"),
	})
	s.apiGet("/operations/{operation}", reply(s, operationParam, s.Operations.Get), endpoint{
		id: "getOperation", tag: tagOperations,
		summary: "One operation: its groups, what it is waiting for, and other failures since it started",
		answers: gives[outbox.OperationDetail]("the operation"),
	})
	s.apiGet("/operations/{operation}/rows", replyAbout(s, operationParam, filter[outbox.OperationRowFilter](s), s.Operations.Rows), endpoint{
		id: "listOperationRows", tag: tagOperations,
		summary: "The result of each row of an operation",
		query:   queryOf(outbox.OperationRowFilter{}),
		answers: gives[outbox.Page[outbox.OperationRow]]("a page of rows"),
	})
	addAction(s, outbox.ActionOperationCancel, onOperations, asSeen(s.Operations.Cancel), endpoint{
		id: "cancelOperation", tag: tagOperations,
		summary: "Cancel an operation: rows not attempted stay dead, rows in progress continue",
	})
	addAction(s, outbox.ActionOperationAcknowledge, onOperations, asSeen(s.Operations.Acknowledge), endpoint{
		id: "acknowledgeOperation", tag: tagOperations,
		summary: "Acknowledge the outcome of an operation",
	})
}

// routeRunsAPI adds the API's routes about replays, rebuilds and verifies.
func (s *server) routeRunsAPI() {
	s.apiGet("/runs", reply(s, filter[outbox.RunFilter](s), s.Runs.List), endpoint{
		id: "listRuns", tag: tagRuns,
		summary: "Runs, newest first",
		query:   queryOf(outbox.RunFilter{}),
		answers: gives[outbox.Page[outbox.Run]]("a page of runs"),
	})
	addStart(s, outbox.ActionRunStart, starter[outbox.RunStartRequest, outbox.Run]{readRunForm, s.startRun, runStarted, runStarted}, endpoint{
		id: "startRun", tag: tagRuns,
		summary: "Start a replay, verify or rebuild; 409 names the blocking run",
	})
	addStart(s, outbox.ActionRehearse, starter[outbox.RehearsalStartRequest, outbox.Run]{s.readRehearsalForm, s.startRehearsal, runStarted, rehearsalStarted}, endpoint{
		id: "rehearse", tag: tagRuns,
		summary: "Try changed projection files on copies of blocked campaigns",
	})
	s.apiGet("/rehearsals/{run}", reply(s, runParam, s.readRehearsal), endpoint{
		id: "getRehearsal", tag: tagRuns,
		summary: "One rehearsal: its run and its answer so far",
		answers: gives[outbox.FixRehearsal]("the rehearsal"),
	})
	s.apiGet("/runs/{run}", reply(s, runParam, s.Runs.Get), endpoint{
		id: "getRun", tag: tagRuns,
		summary: "One run: its progress and outcome",
		answers: gives[outbox.Run]("the run"),
	})
	addAction(s, outbox.ActionRunCancel, onRuns, with[outbox.ReasonRequest](s.Runs.Cancel), endpoint{
		id: "cancelRun", tag: tagRuns,
		summary: "Cancel a run: finished campaigns stay done, the others are unchanged",
	})
	addAction(s, outbox.ActionRunResume, onRuns, with[outbox.ReasonRequest](s.resumeRun), endpoint{
		id: "resumeRun", tag: tagRuns,
		summary: "Resume an interrupted or failed run where it stopped",
	})
	s.apiGet("/runs/{run}/results", reply(s, resultFilter, s.Runs.Results), endpoint{
		id: "listRunResults", tag: tagRuns,
		summary: "The result of each campaign of a run, without sample rows",
		query:   queryOf(outbox.ResultFilter{}),
		answers: gives[outbox.Page[outbox.RunResult]]("a page of results"),
	})
	s.apiGet("/runs/{run}/results/{campaign}", replyAbout(s, runParam, campaignParam, s.Runs.ResultOf), endpoint{
		id: "getRunResult", tag: tagRuns,
		summary: "The result of one campaign of a run, with sample rows that differ",
		answers: gives[outbox.RunResult]("the result"),
	})
	s.apiGet("/runs/{run}/log", replyAbout(s, runParam, filter[paging](s), s.readRunLog), endpoint{
		id: "listRunLog", tag: tagRuns,
		summary: "The log of a run, newest first, with every error in full",
		query:   queryOf(paging{}),
		answers: gives[outbox.Page[outbox.RunLine]]("a page of lines"),
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
		answers: gives[items[outbox.ProjectionInfo]]("the projections"),
	})
	s.apiGet("/projections/{name}", serveJSON(s, s.detailed), endpoint{
		id: "getProjection", tag: tagProjections,
		summary: "One projection",
		answers: gives[outbox.ProjectionDetail]("the projection"),
	})
	s.apiGet("/projections/{name}/cursors", reply(s, cursorFilter, s.projectionCursors), endpoint{
		id: "listProjectionCursors", tag: tagProjections,
		summary: "Campaigns where a projection is not live, by id",
		query:   queryOf(outbox.CursorFilter{}),
		answers: gives[outbox.Page[outbox.CampaignCursor]]("a page of its cursors"),
	})
	addAction(s, outbox.ActionProjectionPause, onProjections, s.pauseProjection, endpoint{
		id: "pauseProjection", tag: tagProjections,
		summary: "Pause a projection for a campaign or for all; the others keep going",
		answers: gives[outbox.ProjectionPause]("the outcome"),
	})
	addAction(s, outbox.ActionProjectionResume, onProjections, s.resumeProjection, endpoint{
		id: "resumeProjection", tag: tagProjections,
		summary: "Resume a paused projection; where it missed events, it is behind until a replay",
		answers: gives[outbox.ProjectionPause]("the outcome"),
	})
}

func (s *server) routePublishersAPI() {
	s.apiGet("/publishers", reply(s, filter[outbox.PublisherFilter](s), s.Publishers.Page), endpoint{
		id: "listPublishers", tag: tagPublishers,
		summary: "A page of publishers by name, with their lag, at most a second old",
		query:   queryOf(paging{}),
		answers: gives[outbox.Page[outbox.Publisher]]("a page of publishers"),
	})
	s.apiGet("/publishers/{topic}/{publisher}", reply(s, subscriptionParam, s.Publishers.Publisher), endpoint{
		id: "getPublisher", tag: tagPublishers,
		summary: "A publisher",
		answers: gives[outbox.Publisher]("the publisher"),
	})
	s.apiGet("/publishers/{topic}/{publisher}/history", replyAbout(s, subscriptionParam, s.readRange, s.Publishers.History), endpoint{
		id: "getPublisherHistory", tag: tagPublishers,
		summary: "The history of a publisher over a range",
		query:   queryOf(rangeQuery{}),
		answers: gives[outbox.PublisherHistory]("the history; steps without a record have no point"),
	})
	addAction(s, outbox.ActionPublisherPause, onPublishers, with[outbox.ReasonRequest](s.Publishers.Pause), endpoint{
		id: "pausePublisher", tag: tagPublishers,
		summary: "Pause a publisher; a batch in flight finishes first",
	})
	addAction(s, outbox.ActionPublisherResume, onPublishers, with[outbox.ReasonRequest](s.Publishers.Resume), endpoint{
		id: "resumePublisher", tag: tagPublishers,
		summary: "Resume a paused or failed publisher at once, with its errors cleared",
	})
	addAction(s, outbox.ActionPublisherPauseAll, onPublisherNames, with[outbox.ReasonRequest](s.Publishers.PauseAll), endpoint{
		id: "pausePublisherInAllTopics", tag: tagPublishers,
		summary: "Pause the publishers of a name in all topics at once",
		answers: gives[outbox.PublishersChange]("the publishers that were paused, and those that were paused already"),
	})
	addAction(s, outbox.ActionPublisherResumeAll, onPublisherNames, with[outbox.ReasonRequest](s.Publishers.ResumeAll), endpoint{
		id: "resumePublisherInAllTopics", tag: tagPublishers,
		summary: "Resume the paused and failed publishers of a name in all topics at once, with their errors cleared",
		answers: gives[outbox.PublishersChange]("the publishers that were resumed, and those that were active without errors"),
	})
	addAction(s, outbox.ActionPublisherReset, onPublishers, with[outbox.ReasonRequest](s.Publishers.Reset), endpoint{
		id: "resetPublisher", tag: tagPublishers,
		summary: "Clear a publisher's errors; a pause stays",
	})
	addAction(s, outbox.ActionPublisherSkip, onPublishers, func(ctx context.Context, o outbox.Command, name outbox.SubscriptionName, asked outbox.PublisherSkipRequest) (outbox.Publisher, error) {
		return s.Publishers.SkipEvent(ctx, o, name, asked.Position)
	}, endpoint{
		id: "skipPublisherEvent", tag: tagPublishers,
		summary: "Skip the event that a publisher cannot deliver",
	})
	addAction(s, outbox.ActionPublisherTest, onPublishers, with[outbox.ReasonRequest](s.testPublisher), endpoint{
		id: "testPublisher", tag: tagPublishers,
		summary: "Send a test event to a publisher's destination",
		answers: gives[outbox.TestDelivery]("the outcome, also when it was not delivered"),
	})
	s.apiAdd(route{method: http.MethodPost, pattern: outbox.ActionPublisherSeek.Info().Path, role: outbox.RoleViewer, action: outbox.ActionPublisherSeek},
		s.handle(s.jsonInput(s.apiSeekPublisher)), endpoint{ // the handler checks the action's role itself, unless it is a dry run
			id: "seekPublisher", tag: tagPublishers,
			summary: "Move a publisher's position (reset its offset), repeating or skipping events",
			body:    takes[outbox.SeekRequest](),
			answers: gives[outbox.Seek]("done and audited; for a dry run, what would be done"),
		})
}
