package handlers

import (
	"net/http"

	"outboxweb/internal/outbox"
)

// routeOperationsAPI adds what the API has of requeues of many rows.
func (s *server) routeOperationsAPI() {
	s.apiGet("/operations", reply(s, operationFilter, s.Operations.List), endpoint{
		id: "listOperations", tag: tagOperations,
		summary: "Operations, newest first",
		query:   queryOf(operationsQuery{}),
		answers: gives[outbox.Page[outbox.Operation]]("a page of operations"),
	})
	s.apiAct(outbox.ActOperationStart, s.apiStartOperation, endpoint{
		id: "startOperation", tag: tagOperations,
		summary: "Requeue dead rows as an operation: frozen, in waves, watched",
		body:    takes[operationBody](),
		answers: starts[outbox.Operation](),
	})
	s.apiQuestion(outbox.RoleViewer, "/operations/preview", tell(s, s.readOperationPreview), endpoint{
		id: "previewOperation", tag: tagOperations,
		summary: "What an operation would do; changes nothing",
		body:    takes[operationBody](),
		answers: gives[outbox.OperationPreview]("the preview"),
	})
	s.apiGet("/operations/{operation}", reply(s, operationParam, s.Operations.Get), endpoint{
		id: "getOperation", tag: tagOperations,
		summary: "One operation, its groups, what it waits for, and what else failed meanwhile",
		answers: gives[outbox.OperationDetail]("the operation"),
	})
	s.apiGet("/operations/{operation}/rows", tell(s, s.readOperationRows), endpoint{
		id: "listOperationRows", tag: tagOperations,
		summary: "What became of each row of an operation",
		query:   queryOf(operationRowsQuery{}),
		answers: gives[outbox.Page[outbox.OperationRow]]("a page of rows"),
	})
	addAct(s, outbox.ActOperationCancel, s.asksOfOperation(), asSeen(s.Operations.Cancel), endpoint{
		id: "cancelOperation", tag: tagOperations,
		summary: "End an operation: rows it has not touched stay dead, those under way go on",
		body:    mayTake[operationActBody](),
	})
	addAct(s, outbox.ActOperationAcknowledge, s.asksOfOperation(), asSeen(s.Operations.Acknowledge), endpoint{
		id: "acknowledgeOperation", tag: tagOperations,
		summary: "Note that somebody has seen how an operation ended",
		body:    mayTake[operationActBody](),
	})
}

// routeRunsAPI adds what the API has of replays, rebuilds and verifies.
func (s *server) routeRunsAPI() {
	s.apiGet("/runs", reply(s, runFilter, s.Runs.List), endpoint{
		id: "listRuns", tag: tagRuns,
		summary: "Runs, newest first",
		query:   queryOf(runsQuery{}),
		answers: gives[outbox.Page[outbox.Run]]("a page of runs"),
	})
	s.apiAct(outbox.ActRunStart, s.apiStartRun, endpoint{
		id: "startRun", tag: tagRuns,
		summary: "Start a replay, a verify or a rebuild; 409 names the run in the way",
		body:    takes[runBody](),
		answers: starts[outbox.Run](),
	})
	s.apiGet("/runs/{run}", reply(s, runParam, s.Runs.Get), endpoint{
		id: "getRun", tag: tagRuns,
		summary: "One run: how far it is and what came of it",
		answers: gives[outbox.Run]("the run"),
	})
	addAct(s, outbox.ActRunCancel, s.asksOfRun(), s.Runs.Cancel, endpoint{
		id: "cancelRun", tag: tagRuns,
		summary: "End a run: what it has done stays, everything else is as it was",
		body:    mayTake[runActBody](),
	})
	addAct(s, outbox.ActRunResume, s.asksOfRun(), s.resumeRun, endpoint{
		id: "resumeRun", tag: tagRuns,
		summary: "Let an interrupted or failed run go on where it stopped",
		body:    mayTake[runActBody](),
	})
	s.apiGet("/runs/{run}/results", reply(s, resultFilter, s.Runs.Results), endpoint{
		id: "listRunResults", tag: tagRuns,
		summary: "What became of each campaign of a run, without samples of rows",
		query:   queryOf(resultsQuery{}),
		answers: gives[outbox.Page[outbox.RunResult]]("a page of results"),
	})
	s.apiGet("/runs/{run}/results/{campaign}", tell(s, s.readRunResult), endpoint{
		id: "getRunResult", tag: tagRuns,
		summary: "What became of one campaign of a run, with samples of the rows that differ",
		answers: gives[outbox.RunResult]("the result"),
	})
	s.apiGet("/runs/{run}/log", tell(s, s.readRunLog), endpoint{
		id: "listRunLog", tag: tagRuns,
		summary: "The log of a run, newest first, with every error in full",
		query:   queryOf(paging{}),
		answers: gives[outbox.Page[outbox.RunLine]]("a page of lines"),
	})
	s.apiGet("/campaigns/{campaign}/verifications", reply(s, campaignParam, s.readVerifications), endpoint{
		id: "listVerifications", tag: tagRuns,
		summary: "When each projection of a campaign was last compared with its journal",
		answers: gives[verifications]("the verifications"),
	})
}

// routeProjectionsAPI adds what the API has of projections.
func (s *server) routeProjectionsAPI() {
	s.apiGet("/projections", tellAll(s, s.describeProjections), endpoint{
		id: "listProjections", tag: tagProjections,
		summary: "The loaded projections",
		answers: gives[items[outbox.ProjectionInfo]]("the projections"),
	})
	s.apiGet("/projections/{name}", tell(s, s.described), endpoint{
		id: "getProjection", tag: tagProjections,
		summary: "One projection",
		answers: gives[outbox.ProjectionInfo]("the projection"),
	})
	s.apiGet("/projections/{name}/cursors", tell(s, s.readProjectionCursors), endpoint{
		id: "listProjectionCursors", tag: tagProjections,
		summary: "The campaigns that a projection does not follow, by id",
		query:   queryOf(cursorsQuery{}),
		answers: gives[outbox.Page[outbox.CampaignCursor]]("a page of its cursors"),
	})
	addAct(s, outbox.ActProjectionPause, s.asksOfHold(), s.pauseProjection, endpoint{
		id: "pauseProjection", tag: tagProjections,
		summary: "Stop a projection for a campaign, or for all; the others go on",
		body:    mayTake[holdBody](),
		answers: gives[outbox.ProjectionHold]("what came of it"),
	})
	addAct(s, outbox.ActProjectionResume, s.asksOfHold(), s.resumeProjection, endpoint{
		id: "resumeProjection", tag: tagProjections,
		summary: "Let a paused projection go on; where events were applied meanwhile it is behind until a replay",
		body:    mayTake[holdBody](),
		answers: gives[outbox.ProjectionHold]("what came of it"),
	})
}

// routePublishersAPI adds what the API has of publishers.
func (s *server) routePublishersAPI() {
	s.apiGet("/publishers", tellAll(s, s.Publishers.Publishers), endpoint{
		id: "listPublishers", tag: tagPublishers,
		summary: "All publishers in the order of their names with their lags, at most a second old",
		answers: gives[items[outbox.Publisher]]("the publishers"),
	})
	s.apiGet("/publishers/{topic}/{publisher}", reply(s, pairParam, s.Publishers.Publisher), endpoint{
		id: "getPublisher", tag: tagPublishers,
		summary: "A publisher",
		answers: gives[outbox.Publisher]("the publisher"),
	})
	s.apiGet("/publishers/{topic}/{publisher}/history", tell(s, s.readPublisherHistory), endpoint{
		id: "getPublisherHistory", tag: tagPublishers,
		summary: "How a publisher stood and went over the last hour or day",
		query:   queryOf(overviewQuery{}),
		answers: gives[outbox.PublisherHistory]("the history; steps before the first sample have no point"),
	})
	addAct(s, outbox.ActPublisherPause, s.asksOfPublisher(), s.Publishers.Pause, endpoint{
		id: "pausePublisher", tag: tagPublishers,
		summary: "Stop a publisher until it is resumed; a batch in flight ends first",
		body:    mayTake[publisherBody](),
	})
	addAct(s, outbox.ActPublisherResume, s.asksOfPublisher(), s.Publishers.Resume, endpoint{
		id: "resumePublisher", tag: tagPublishers,
		summary: "Let a publisher that is paused or has failed go on at once, with no errors counted",
		body:    mayTake[publisherBody](),
	})
	addAct(s, outbox.ActPublisherReset, s.asksOfPublisher(), s.Publishers.Reset, endpoint{
		id: "resetPublisher", tag: tagPublishers,
		summary: "Forget a publisher's errors; a pause stays",
		body:    mayTake[publisherBody](),
	})
	addAct(s, outbox.ActPublisherSkip, s.asksOfPublisherSkip(), s.skipPublisherEvent, endpoint{
		id: "skipPublisherEvent", tag: tagPublishers,
		summary: "Pass over the event that a publisher cannot deliver",
		body:    takes[publisherSkipBody](),
	})
	addAct(s, outbox.ActPublisherTest, s.asksOfPublisher(), s.testPublisher, endpoint{
		id: "testPublisher", tag: tagPublishers,
		summary: "Send a made-up event to a publisher's destination",
		body:    mayTake[publisherBody](),
		answers: gives[outbox.TestDelivery]("what came of it, also when it was not delivered"),
	})
	s.apiAdd(route{method: http.MethodPost, pattern: outbox.ActPublisherSeek.Info().Path, role: outbox.RoleViewer, action: outbox.ActPublisherSeek},
		s.handle(s.jsonInput(s.apiSeekPublisher)), endpoint{ // it asks for the act's role itself, unless it only asks what would be
			id: "seekPublisher", tag: tagPublishers,
			summary: "Let a publisher go on elsewhere in the journal, repeating or skipping events",
			body:    takes[seekBody](),
			answers: gives[outbox.Seek]("done, and audited; of a dry run what would be done"),
		})
}
