package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// apiPrefix is the path of the JSON API below the base path.
const apiPrefix = "/api/v1"

func (s *server) routeAPI() {
	s.routeActions()
	s.routeSystemAPI()
	s.routeRowsAPI()
	s.routeCampaignsAPI()
	s.routeEventsAPI()
	s.routeFailuresAPI()
	s.routeOperationsAPI()
	s.routeRunsAPI()
	s.routeProjectionsAPI()
	s.routeVersionsAPI()
	s.routePublishersAPI()
	s.routeIntakeAPI()
	s.routeAlertsAPI()
	s.routeAuditAPI()
	s.routeTokensAPI()
}

func (s *server) routeSystemAPI() {
	s.apiGet("/summary", serveJSON(s, s.summary), endpoint{
		id: "getSummary", tag: tagSystem,
		summary: "The state of the whole system, at most a second old",
		answers: gives[campaign.Summary]("the summary"),
	})
	s.apiGet("/findings", serveJSONList(s, func(ctx context.Context) ([]finding.Finding, error) { return s.findings(ctx) }), endpoint{
		id: "listFindings", tag: tagSystem,
		summary: "What is wrong now, the worst first, at most a second old",
		answers: gives[items[finding.Finding]]("the findings"),
	})
	s.apiGet("/history", serveJSON(s, s.readHistory), endpoint{
		id: "getHistory", tag: tagSystem,
		summary: "The data of all charts over a range, at most a second old",
		query:   queryOf(historyQuery{}),
		answers: gives[wholeHistory]("the history; steps without a record have no point"),
	})
	s.apiGet("/gaps", serveJSONList(s, s.maintenance.Gaps), endpoint{
		id: "listGaps", tag: tagSystem,
		summary: "Campaigns with events that have neither been applied nor have a row",
		answers: gives[items[campaign.Gap]]("the gaps"),
	})
	s.apiGet("/instances", serveJSONList(s, s.viewInstances), endpoint{
		id: "listInstances", tag: tagSystem,
		summary: "Instances of the last week and the leases they hold",
		details: "Instances that died holding leases come first.",
		answers: gives[items[instanceView]]("the instances"),
	})
	s.apiGet("/about", serveJSON(s, s.readAbout), endpoint{
		id: "getAbout", tag: tagSystem,
		summary: "This process, its databases and its configuration, without secrets",
		answers: gives[campaign.About]("its configuration, and the console's overhead since it started"),
	})
	s.apiGet("/openapi.json", s.apiDocument, endpoint{
		id: "getDocument", tag: tagSystem,
		summary: "This document",
		answers: gives[map[string]any]("the document"),
	})
}

func (s *server) routeRowsAPI() {
	s.apiGet("/rows", reply(s, s.rowFilter, s.Queue.Rows), endpoint{
		id: "listRows", tag: tagRows,
		summary: "Rows: events not yet applied to the projections",
		query:   queryOf(campaign.RowFilter{}),
		answers: gives[event.Page[campaign.Row]]("a page of rows"),
	})
	s.apiGet("/rows/{campaign}/{seq}", reply(s, rowParam, s.viewRow), endpoint{
		id: "getRow", tag: tagRows,
		summary: "One row with its event, attempts and activity",
		answers: gives[rowView]("the row"),
	})
	s.apiGet("/rows/{campaign}/{seq}/dry-run", serveJSON(s, s.readDryRun), endpoint{
		id: "dryRunRow", tag: tagRows,
		summary:  "Dry run: what applying a row's event would change, with the events before it and some after it",
		details:  "The rows that would change, or the error. Runs on copies; nothing changes.",
		query:    queryOf(dryRunQuery{}),
		answers:  gives[replay.RunResult]("the outcome, as of a campaign of a rehearsal"),
		refusals: []refusal{refusedDryRun},
	})
	s.apiView(operator.RoleViewer, "/export/rows", s.stream(s.exportRows), endpoint{
		id: "exportRows", tag: tagRows,
		summary: "All rows that match, as CSV or JSON",
		query:   rowsFile,
		answers: givesFile[campaign.Row](),
	})
}

func (s *server) routeCampaignsAPI() {
	s.apiGet("/campaigns", reply(s, filter[campaign.CampaignFilter](s), s.viewCampaigns), endpoint{
		id: "listCampaigns", tag: tagCampaigns,
		summary: "Campaigns",
		query:   queryOf(campaign.CampaignFilter{}),
		answers: gives[event.Page[campaignView]]("a page of campaigns"),
	})
	s.apiGet("/campaigns/{campaign}", s.apiCampaign, endpoint{
		id: "getCampaign", tag: tagCampaigns,
		summary:  "One campaign; with min_seq, once its projections have that seq",
		query:    queryOf(waitQuery{}).only("min_seq", "timeout"),
		answers:  gives[campaignView]("the campaign"),
		refusals: []refusal{refusedWaiting, refusedLate},
	})
	s.apiGet("/campaigns/{campaign}/projections", reply(s, campaignParam, s.readCursors), endpoint{
		id: "listCampaignCursors", tag: tagCampaigns,
		summary: "How far each loaded projection is in a campaign",
		answers: gives[items[campaign.Cursor]]("the projections' cursors"),
	})
	s.apiGet("/campaigns/{campaign}/history", replyAbout(s, campaignParam, s.readRange, s.readCampaignHistory), endpoint{
		id: "getCampaignHistory", tag: tagCampaigns,
		summary:  "How far behind a campaign was over a range, per minute, or per quarter of an hour where the range is long or old",
		query:    queryOf(rangeQuery{}),
		answers:  gives[items[samples.CampaignPoint]]("the minutes at which it was behind for more than 5 s and among the hundred behind for longest"),
		refusals: []refusal{refusedLate},
	})
	s.apiGet("/campaigns/{campaign}/read-model", replyAbout(s, campaignParam, filter[timetravel.ModelQuery](s), s.readReadModel), endpoint{
		id: "getReadModel", tag: tagCampaigns,
		summary:  "The rows that the journal gives a campaign, as of any of its events, and how the live rows compare",
		details:  "A replay of the journal gives them. The first request replays the campaign; while that takes long the answer is 503.",
		query:    queryOf(timetravel.ModelQuery{}),
		answers:  gives[timetravel.ReadModel]("the rows, with what the event changed and what set each cell"),
		refusals: []refusal{refusedReplaying},
	})
	s.apiGet("/campaigns/{campaign}/read-model/cell", replyAbout(s, campaignParam, filter[modelCellQuery](s), s.readModelCell), endpoint{
		id: "getReadModelCell", tag: tagCampaigns,
		summary:  "One value of a read model as of an event, what set it, and the values before",
		query:    queryOf(modelCellQuery{}),
		answers:  gives[timetravel.ModelHistory]("the value, whole"),
		refusals: []refusal{refusedReplaying},
	})
	s.apiView(operator.RoleViewer, "/export/campaigns", s.stream(s.exportCampaigns), endpoint{
		id: "exportCampaigns", tag: tagCampaigns,
		summary: "All campaigns that match, as CSV or JSON",
		query:   campaignsFile,
		answers: givesFile[campaignView](),
	})
}

// routeEventsAPI adds the API's routes about events of the journal.
func (s *server) routeEventsAPI() {
	s.apiGet("/campaigns/{campaign}/events", replyAbout(s, campaignParam, filter[eventsQuery](s), s.readEvents), endpoint{
		id: "listEvents", tag: tagEvents,
		summary: "The events of a campaign, in order",
		query:   queryOf(eventsQuery{}),
		answers: gives[event.Page[event.Event]]("a page of events"),
	})
	s.apiGet("/find", serveJSON(s, s.findAnswer), endpoint{
		id: "find", tag: tagEvents,
		summary: "Find anything by a text, and the actions that it asks for, such as pause acct-7",
		details: "Campaigns, events, entities, requests, runs, operations, causes, projections, publishers, sources and actors. What the text names whole is first. At most a few of each kind.",
		query:   queryOf(searchQuery{}),
		answers: gives[Found]("what was found"),
	})
	s.apiGet("/events", reply(s, s.eventFilter, s.searchEvents), endpoint{
		id: "searchEvents", tag: tagEvents,
		summary: "Events of all campaigns, newest first unless reversed, without their documents",
		details: "Ids, entities, requests, tags, campaigns and types are found by an index. Actors, sessions and text are looked for in the events one by one: a page ends after some 100,000 of them or 0.4 seconds, with partial set and a next_cursor to continue from; looked says how far it came. Values are compared as they are shown: redacted ones are not found. In a range of time, events are found if the clocks of the appending processes differ by at most ten minutes. With settled the first page has the position to put into the condition of an append (see Conditional appends); on PostgreSQL that waits for appends in progress, and answers 503 while one stays open.",
		query:   queryOf(search.EventFilter{}),
		answers: gives[search.FoundEvents]("a page of events"),
	})
	s.apiAction(operator.ActionAppend, s.apiAppend, endpoint{
		query: queryOf(waitQuery{}).only("wait", "timeout"),
		body:  takes[appendbody.NewEvent]().or(takes[appendbody.Batch]()),
		answers: []apiAnswer{
			givesEither[appendAnswer, batchAnswer](http.StatusOK, "every event was already there"),
			givesEither[appendAnswer, batchAnswer](http.StatusCreated, "appended"),
		},
		refusals: []refusal{refusedAppend, refusedWaiting, refusedRoom, refusedLate},
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}/changes", reply(s, rowParam, s.readChanges), endpoint{
		id: "listEventChanges", tag: tagEvents,
		summary:  "The rows of the projections that an applied event changed, at most 100",
		answers:  gives[items[timetravel.ModelTable]]("the rows by table"),
		refusals: []refusal{refusedReplaying},
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}", reply(s, rowParam, ofRow(s.Store.Event)), endpoint{
		id: "getEvent", tag: tagEvents,
		summary: "One event",
		answers: gives[event.Event]("the event"),
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}/history", reply(s, rowParam, ofRow(s.Runs.EventHistory)), endpoint{
		id: "getEventHistory", tag: tagEvents,
		summary: "The history of an event: appended, failed attempts, actions, and when and by which worker or run it was applied",
		details: "As far back as --keep-history and --keep-audit allow, and of runs as far as the results of the latest are kept.",
		answers: gives[campaign.EventHistory]("the steps, the oldest first"),
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}/explanation", reply(s, rowParam, s.explanation), endpoint{
		id: "getEventExplanation", tag: tagEvents,
		summary:  "Why projections fail at an event: the statement, its values, and the row that has the key already",
		details:  "By the loaded projections and the live rows. Values that look like secrets are hidden.",
		answers:  gives[projection.EventExplanation]("the explanation; without failures if none is open"),
		refusals: []refusal{refusedRoom},
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}/fixture", s.fixture, endpoint{
		id: "getEventFixture", tag: tagEvents,
		summary:  "A failing event as a file, with which outboxweb reproduce sees it fail elsewhere",
		details:  "The campaign's events up to it, at most 2,000 and 10 MiB, the files of the projections, and the error. Values that look like secrets are hidden, and the file says so.",
		answers:  gives[projection.Fixture]("the file"),
		refusals: []refusal{refusedFixture, refusedHidden, refusedRoom},
	})
	s.apiGet("/campaigns/{campaign}/events/{seq}/payload", s.payload, endpoint{
		id: "getEventPayload", tag: tagEvents,
		summary:  "The payload of an event as a file",
		details:  "Exactly as stored, except values that look like secrets.",
		answers:  payloadAnswers,
		refusals: []refusal{refusedHidden, refusedRange},
	})
	s.apiAction(operator.ActionReveal, s.apiReveal, endpoint{
		body:    takes[operator.ActionRequest](),
		answers: gives[event.Event]("the event as it is stored"),
	})
	s.apiGet("/campaigns/{campaign}/skips", replyAbout(s, campaignParam, filter[event.SkipFilter](s), s.readSkips), endpoint{
		id: "listSkips", tag: tagEvents,
		summary: "Skipped events, newest first, including undone skips",
		query:   queryOf(paging{}),
		answers: gives[event.Page[event.Skip]]("a page of skips"),
	})
	s.apiGet("/journal", serveJSON(s, s.readJournal), endpoint{
		id: "getJournal", tag: tagEvents,
		summary: "The journal's last position, to be read before the events that a conditional append depends on",
		details: "No more events appear at or below it.",
		answers: gives[journalView]("the journal"),
	})
}

func (s *server) routeFailuresAPI() {
	s.apiGet("/failures/groups", serveJSON(s, s.readFailureGroups), endpoint{
		id: "listFailureGroups", tag: tagFailures,
		summary: "Failed and dead rows grouped by error fingerprint",
		answers: gives[failureGroups]("the groups, those with the most dead rows first"),
	})
	s.apiGet("/failures", reply(s, failureFilter(""), s.Store.ReadModel().Failures), endpoint{
		id: "listFailures", tag: tagFailures,
		summary: "Events that quarantined projections, newest first",
		query:   queryOf(campaign.FailureFilter{}),
		answers: gives[event.Page[campaign.ProjectionFailure]]("a page of failures"),
	})
	s.apiGet("/failures/{failure}", reply(s, failureParam, s.Store.ReadModel().Failure), endpoint{
		id: "getFailure", tag: tagFailures,
		summary: "One projection failure",
		answers: gives[campaign.ProjectionFailure]("the failure"),
	})
}

// routeAuditAPI adds the API's routes about the audit log.
func (s *server) routeAuditAPI() {
	s.apiGet("/audit", reply(s, filter[operator.AuditFilter](s), s.viewAudit), endpoint{
		id: "listActs", tag: tagAudit,
		summary: "The audit log: actions done and refused, newest first unless reversed",
		query:   queryOf(operator.AuditFilter{}),
		answers: gives[auditAnswer]("a page of audit records"),
	})
	s.apiView(operator.RoleViewer, "/export/audit", s.stream(s.exportAudit), endpoint{
		id: "exportActs", tag: tagAudit,
		summary: "All audit records that match, as CSV or JSON",
		query:   auditFile,
		answers: givesFile[operator.AuditEntry](),
	})
}

func (s *server) routeTokensAPI() {
	s.apiView(operator.RoleAdmin, "/tokens", s.handle(serveJSONList(s, s.Tokens.List)), endpoint{
		id: "listTokens", tag: tagTokens,
		summary: "API tokens, valid ones first; for admins",
		answers: gives[items[operator.Token]]("the latest 1,000, and those of the server's file of tokens"),
	})
}
