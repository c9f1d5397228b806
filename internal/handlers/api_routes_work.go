package handlers

import (
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
	addStart(s, operator.ActionOperationStart, starter[operations.OperationStartRequest, operations.Operation]{readOperationForm, s.startOperation, operationStarted, operationStarted})
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
}

// routeRunsAPI adds the API's routes about replays, rebuilds and verifies.
func (s *server) routeRunsAPI() {
	s.apiGet("/runs", reply(s, filter[replay.RunFilter](s), s.Runs.List), endpoint{
		id: "listRuns", tag: tagRuns,
		summary: "Runs, newest first",
		query:   queryOf(replay.RunFilter{}),
		answers: gives[event.Page[replay.Run]]("a page of runs"),
	})
	addStart(s, operator.ActionRunStart, starter[replay.RunStartRequest, replay.Run]{readRunForm, s.startRun, runStarted, runStarted})
	addStart(s, operator.ActionRehearse, starter[replay.RehearsalStartRequest, replay.Run]{s.readRehearsalForm, s.startRehearsal, runStarted, rehearsalStarted})
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
}

func (s *server) routeVersionsAPI() {
	s.apiGet("/projections/{name}/versions/{version}/campaigns", reply(s, s.builtFilter, s.builtBy), endpoint{
		id: "listBuiltCampaigns", tag: tagProjections,
		summary: "Campaigns of which workers made rows with a version of a projection that are still there, by id",
		query:   queryOf(campaign.BuiltFilter{}),
		answers: gives[event.Page[campaign.BuiltCampaign]]("a page of them"),
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
	seek := operator.ActionPublisherSeek
	s.apiAdd(route{method: http.MethodPost, pattern: seek.Info().Path, role: operator.RoleViewer, action: seek}, // the handler checks the action's role itself, unless it is a dry run
		s.handle(s.jsonInput(s.apiSeekPublisher)), endpoint{body: takes[subscription.SeekRequest](), answers: gives[operator.Seek]("done and audited; for a dry run, what would be done")})
}
