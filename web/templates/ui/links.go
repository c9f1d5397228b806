package ui

import (
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/static"
)

// URL is a link made by Links: on this server, below its base path, every part escaped. Nothing
// else may be used in an href, an action or an hx-get.
type URL = templ.SafeURL

// Links makes every URL of the pages and the API, below one base path. The
// zero value serves from the root.
type Links struct {
	base string // empty, or starts with / and does not end with one
	api  bool   // the links are those of the JSON API
	over samples.Range
}

// Within returns the links with a range, which those of pages with charts, and of lists that lead
// there, carry on.
func (l Links) Within(r samples.Range) Links {
	l.over = r
	return l
}

// charted is the address of a page that carries the range.
func (l Links) charted(query url.Values, parts ...string) URL {
	if l.over == (samples.Range{}) {
		return l.at(query, parts...)
	}
	return Over(l.at(query, parts...), l.over)
}

// NewLinks returns links below a base path; "/", "/ops" and "/ops/" are base paths.
func NewLinks(basePath string) Links {
	trimmed := strings.Trim(basePath, "/")
	if trimmed == "" {
		return Links{}
	}
	return Links{base: "/" + trimmed}
}

// Base is the path that every link starts with: empty, or such as "/ops".
func (l Links) Base() string { return l.base }

// API returns the links of the JSON equivalents: l.API().Row(c, 3) is the API's path for l.Row(c,
// 3).
func (l Links) API() Links { return Links{base: l.base + "/api/v1", api: true} }

func (l Links) at(query url.Values, parts ...string) URL {
	var b strings.Builder
	b.WriteString(l.base)
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	if len(parts) == 0 {
		b.WriteByte('/')
	}
	if q := query.Encode(); q != "" {
		b.WriteByte('?')
		b.WriteString(q)
	}
	return URL(b.String())
}

// Action is the POST target of an action. About fills the braces of its path, in order.
func (l Links) Action(a operator.Action, about ...string) URL {
	parts := strings.Split(strings.TrimPrefix(a.Info().Path, "/"), "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i], about = about[0], about[1:]
		}
	}
	return l.at(nil, parts...)
}

// values makes a query of name-value pairs, without the empty ones.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

func Positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Asset is the URL of an embedded file, by one of the names in package static.
func (l Links) Asset(name string) URL {
	return URL(l.base + "/static/" + static.Path(name))
}

func (l Links) Overview() URL { return l.charted(nil) }

// Failures is the page of errors that rows have in common; FailureGroup shows one of them.
func (l Links) Failures() URL { return l.at(nil, "failures") }

func (l Links) FailureGroup(fingerprint string) URL {
	return l.at(url.Values{"fingerprint": {fingerprint}}, "failures")
}

// FailuresOf is that page with the events that failed in projections and match f.
func (l Links) FailuresOf(f campaign.FailureFilter) URL {
	switch f.Status {
	case "":
		f.Status = "all"
	case campaign.FailureOpen:
		f.Status = ""
	}
	return l.at(request.Values(f), "failures")
}

// StuckOf is the section of these events on that page.
func (l Links) StuckOf(f campaign.FailureFilter) URL { return l.FailuresOf(f) + "#stuck" }

// FailureGroups is the API's list of error groups.
func (l Links) FailureGroups() URL { return l.at(nil, "failures", "groups") }

// RetryGroup makes the failed rows of an error due now.
func (l Links) RetryGroup() URL { return l.at(nil, "failures", "groups", "retry") }

func (l Links) History() URL     { return l.at(nil, "history") }
func (l Links) Summary() URL     { return l.at(nil, "summary") }
func (l Links) Projections() URL { return l.charted(nil, "projections") }
func (l Links) Alerts() URL      { return l.at(nil, "alerts") }
func (l Links) Instances() URL   { return l.charted(nil, "instances") }
func (l Links) About() URL       { return l.at(nil, "about") }
func (l Links) Watch() URL       { return l.at(nil, "watch") }
func (l Links) OpenAPI() URL     { return l.at(nil, "openapi.json") }

// Projection is one projection.
func (l Links) Projection(name string) URL { return l.charted(nil, "projections", name) }

// ProjectionCursors is one projection's page with the campaigns that match f and in which it is not
// live.
func (l Links) ProjectionCursors(f campaign.CursorFilter) URL {
	return l.charted(request.Values(f), "projections", f.Projection)
}

// Version is a version of a projection, with the campaigns that f selects of those that it built.
func (l Links) Version(f campaign.BuiltFilter) URL {
	parts := []string{"projections", f.Projection, "versions", f.Version}
	if l.api {
		parts = append(parts, "campaigns")
	}
	return l.at(request.Values(f), parts...)
}

// Instance is the entry of one instance on the page of instances.
func (l Links) Instance(id string) URL {
	return l.Instances() + "#" + URL(url.PathEscape(InstanceAnchor(id)))
}

// Rows is the list of rows that match f, from its cursor.
func (l Links) Rows(f campaign.RowFilter) URL {
	if !l.api && f.Sort == campaign.SortAttention { // the order of the page
		f.Sort = ""
	}
	return l.at(request.Values(f), "rows")
}

func rowPath(campaign string, seq int64, more ...string) []string {
	return append([]string{"rows", campaign, strconv.FormatInt(seq, 10)}, more...)
}

// Row is a row in the API. Pages show it with its event.
func (l Links) Row(campaign string, seq int64) URL { return l.at(nil, rowPath(campaign, seq)...) }

// Operations is the list of operations that match f, from its cursor.
func (l Links) Operations(f operations.OperationFilter) URL {
	return l.at(request.Values(f), "operations")
}

// Operation is one operation, with its rows that match f.
func (l Links) Operation(id int64, f operations.OperationRowFilter) URL {
	return l.at(request.Values(f), "operations", strconv.FormatInt(id, 10))
}

// OperationOf is one operation.
func (l Links) OperationOf(id int64) URL { return l.Operation(id, operations.OperationRowFilter{}) }

// NewOperation is the page that previews an operation on a selection and starts it.
func (l Links) NewOperation(s operations.Selection) URL {
	return l.at(SelectionValues(s), "operations", "new")
}

func SelectionValues(s operations.Selection) url.Values {
	f := s.Filter
	query := values("campaign", f.CampaignID, "event_type", f.EventType, "fingerprint", f.Fingerprint, "limit", Positive(int64(f.Limit)))
	for _, r := range s.Rows {
		query.Add("rows", RowName(r))
	}
	return query
}

// RowName is a row in forms and addresses.
func RowName(r event.RowKey) string { return r.CampaignID + "/" + strconv.FormatInt(r.Seq, 10) }

// Campaigns is the list of campaigns that match f, from its cursor.
func (l Links) Campaigns(f campaign.CampaignFilter) URL {
	if !l.api && f.Sort == campaign.SortTrouble { // the order of the page
		f.Sort = ""
	}
	return l.charted(request.Values(f), "campaigns")
}

func (l Links) Campaign(id string) URL { return l.charted(nil, "campaigns", id) }

// CampaignAfter is a campaign's page with its events from the one after seq.
func (l Links) CampaignAfter(id string, seq int64) URL {
	return l.charted(url.Values{"after_seq": {strconv.FormatInt(seq, 10)}}, "campaigns", id)
}

func (l Links) Events(id string) URL { return l.at(nil, "campaigns", id, "events") }

func (l Links) Event(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10))
}

// Tree is a location in a document of an event, by its JSON pointer; from is the index of the first
// member shown.
func (l Links) Tree(id string, seq int64, part event.Part, pointer string, from int) URL {
	return l.at(values("part", string(part), "at", pointer, "from", Positive(int64(from))),
		"campaigns", id, "events", strconv.FormatInt(seq, 10), "tree")
}

// Payload is the download of an event's payload.
func (l Links) Payload(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10), "payload")
}

// Fixture is the download of a failing event's fixture.
func (l Links) Fixture(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10), "fixture")
}

// Audit is the list of actions that match f, from its cursor.
func (l Links) Audit(f operator.AuditFilter) URL { return l.at(request.Values(f), "audit") }

// WithAction adds the id of the action whose outcome the page shows.
func WithAction(u URL, act int64) URL {
	if act <= 0 {
		return u
	}
	sep := "?"
	if strings.Contains(string(u), "?") {
		sep = "&"
	}
	return u + URL(sep+"act="+strconv.FormatInt(act, 10))
}

// Charts is the page with every chart; ChartTable has their numbers.
func (l Links) Charts() URL     { return l.charted(nil, "charts") }
func (l Links) ChartTable() URL { return l.charted(values("table", "true"), "charts") }

// HandOver is the page for the next shift, and HandOverFile the same as a file.
func (l Links) HandOver() URL     { return l.at(nil, "handover") }
func (l Links) HandOverFile() URL { return l.at(values("file", "true"), "handover") }

// Docs is the list of documents, or of search results.
func (l Links) Docs(query string) URL {
	if query == "" {
		return l.at(nil, "docs")
	}
	return l.at(url.Values{"q": {query}}, "docs")
}

// Doc is a document, at a heading if one is given.
func (l Links) Doc(name, anchor string) URL {
	u := l.at(nil, "docs", name)
	if anchor != "" {
		u += "#" + URL(url.PathEscape(anchor))
	}
	return u
}

// Operating is the runbook, at a guide if one is given.
func (l Links) Operating(g Guide) URL { return l.Doc(docs.Operating, string(g)) }

// DryRunForm is the target of the form of a dry run.
func (l Links) DryRunForm(campaign string, seq int64) URL {
	return l.at(nil, rowPath(campaign, seq, "dry-run")...)
}

// EventTab is a part of an event's page.
type EventTab string

// The tabs of an event's page. TabHappened is the default.
const (
	TabHappened   EventTab = ""
	TabPayload    EventTab = "payload"
	TabNeighbours EventTab = "neighbours"
	TabRows       EventTab = "rows"
	TabDetails    EventTab = "details"
)

// EventTab is a tab of an event's page.
func (l Links) EventTab(id string, seq int64, tab EventTab) URL {
	var query url.Values
	if tab != TabHappened {
		query = url.Values{"tab": {string(tab)}}
	}
	return l.at(query, "campaigns", id, "events", strconv.FormatInt(seq, 10))
}

// Explanation is the API's explanation of an event's failures.
func (l Links) Explanation(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10), "explanation")
}

// Below is an address below the base path, with its query and anchor.
func (l Links) Below(page string) URL { return URL(l.base + page) }

// guideLink is a heading of a document: "operating#lag-rises".
func (l Links) guideLink(guide string) URL {
	doc, heading, _ := strings.Cut(guide, "#")
	return l.Doc(doc, heading)
}

// Intake is the list of sources, and its counterpart in the API.
func (l Links) Intake() URL { return l.at(nil, "intake") }

// Source is one source with its rejected rows.
func (l Links) Source(name, cursor string, limit int) URL {
	return l.at(values("cursor", cursor, "limit", Positive(int64(limit))), "intake", name)
}

// SourceOf is one source, from its first rejected row.
func (l Links) SourceOf(name string) URL { return l.Source(name, "", 0) }

// Rejections is the API's list of a source's rejected rows.
func (l Links) Rejections(name string) URL { return l.at(nil, "intake", name, "rejections") }

func (l Links) Publishers() URL { return l.PublishersOf(subscription.PublisherFilter{}) }

func (l Links) PublishersOf(f subscription.PublisherFilter) URL {
	return l.charted(request.Values(f), "publishers")
}

func (l Links) Publisher(n operator.SubscriptionName) URL {
	return l.charted(nil, "publishers", n.Topic, n.Publisher)
}

// ReadModel is a campaign's rows that match q.
func (l Links) ReadModel(q timetravel.ModelQuery) URL {
	return l.at(request.Values(q), "campaigns", q.CampaignID, "read-model")
}

// LiveReadModel is a campaign's rows as the projections database has them.
func (l Links) LiveReadModel(campaign string) URL {
	return l.at(values("live", "1"), "campaigns", campaign, "read-model")
}

// ModelCell is one cell of a read model as of an event.
func (l Links) ModelCell(campaign, row, column string, seq int64) URL {
	return l.at(values("row", row, "column", column, "seq", Positive(seq)), "campaigns", campaign, "read-model", "cell")
}

// Changes is the API's list of rows that an event changed.
func (l Links) Changes(campaign string, seq int64) URL {
	return l.at(nil, "campaigns", campaign, "events", Itoa(seq), "changes")
}

// Rehearse is the page on which a fix of an error is rehearsed, empty for any.
func (l Links) Rehearse(fingerprint string) URL { return l.RehearseFile(fingerprint, "") }

// RehearseFile is that page with the file of a projection to edit.
func (l Links) RehearseFile(fingerprint, projection string) URL {
	return l.at(values("fingerprint", fingerprint, "projection", projection), "rehearsals", "new")
}

// RehearseVersion is that page with another version of the projection's file.
func (l Links) RehearseVersion(fingerprint, projection, version string) URL {
	return l.at(values("fingerprint", fingerprint, "projection", projection, "version", version), "rehearsals", "new")
}

// RehearseAgain is that page with the file that a rehearsal tried.
func (l Links) RehearseAgain(d replay.FixRehearsal, projection string) URL {
	return l.at(values("fingerprint", d.Fingerprint, "projection", projection, "rehearsal", Itoa(d.Run.ID)), "rehearsals", "new")
}

// Rehearsal is one rehearsal with its answer; for the API's links.
func (l Links) Rehearsal(id int64) URL { return l.at(nil, "rehearsals", Itoa(id)) }

// CanaryOf is the page that starts an operation which rests on a rehearsal; an empty selection is the
// rows that would pass.
func (l Links) CanaryOf(rehearsal int64, s operations.Selection) URL {
	query := SelectionValues(s)
	query.Set("rehearsal", Itoa(rehearsal))
	return l.at(query, "operations", "new")
}

// Runs is the list of runs that match f, from its cursor.
func (l Links) Runs(f replay.RunFilter) URL {
	return l.at(request.Values(f), "runs")
}

func runPath(id int64, more ...string) []string {
	return append([]string{"runs", strconv.FormatInt(id, 10)}, more...)
}

// Run is one run, with its results that match f and its log from a cursor; the page needs no RunID
// in f.
func (l Links) Run(id int64, f replay.ResultFilter, log string) URL {
	return l.at(values("outcome", f.Outcome, "cursor", f.Cursor, "limit", Positive(int64(f.Limit)), "log", log), runPath(id)...)
}

// RunOf is a run without filters.
func (l Links) RunOf(id int64) URL { return l.Run(id, replay.ResultFilter{}, "") }

// RunResult is the result of one campaign of a run.
func (l Links) RunResult(id int64, campaign string) URL {
	return l.at(nil, runPath(id, "results", campaign)...)
}

// RunLog is the log of a run from a cursor; only the API has it separately.
func (l Links) RunLog(id int64, cursor string) URL {
	return l.at(values("cursor", cursor), runPath(id, "log")...)
}

// NewRun is the page that previews a run and starts it.
func (l Links) NewRun(o replay.RunRequest) URL {
	return l.at(request.Values(o), "runs", "new")
}

// RebuildOf is the page that previews a rebuild of what a verify found to differ.
func (l Links) RebuildOf(verify int64) URL {
	return l.at(values("drifted", Positive(verify)), "runs", "new")
}

// DryRun is the dry run of a row's event and some next ones.
func (l Links) DryRun(t replay.Trial) URL {
	query := url.Values{"next": {strconv.FormatInt(t.Next, 10)}}
	if t.Without {
		query.Set("without", "true")
	}
	return l.at(query, rowPath(t.CampaignID, t.Seq, "dry-run")...)
}

// SearchEvents is the list of events of all campaigns that match f, from its cursor.
func (l Links) SearchEvents(f search.EventFilter) URL { return l.at(request.Values(f), "events") }

// Search is the page of what a text may mean; Suggestions are its list of options.
func (l Links) Search(text string) URL { return l.at(values("q", text), "search") }

func (l Links) Suggestions() URL { return l.at(nil, "search", "suggestions") }

// Skips is the list of a campaign's skips in the API.
func (l Links) Skips(id string) URL { return l.at(nil, "campaigns", id, "skips") }

// CampaignSkips is the section of a campaign's page that lists its skipped events.
func (l Links) CampaignSkips(id string) URL { return l.Campaign(id) + "#skipped" }

func (l Links) Metrics() URL { return l.at(nil, "metrics") }
func (l Links) Ready() URL   { return l.at(nil, "readyz") }

// Tokens is the list of API tokens; RevokeToken revokes one.
func (l Links) Tokens() URL { return l.at(nil, "tokens") }

// View is the list of a view, filtered.
func (l Links) View(v search.View) URL {
	to := l.at(nil, v.List)
	if v.Query == "" {
		return to
	}
	return to + URL("?"+v.Query)
}

// Over is a page with charts over a range.
func Over(page URL, r samples.Range) URL {
	switch {
	case r.Free():
		return asking(page, "range", "", "from", r.From.Format(time.RFC3339), "to", r.To.Format(time.RFC3339))
	case r.Label() == string(samples.RangeHour):
		return asking(page, "range", "", "from", "", "to", "")
	}
	return asking(page, "range", string(r.Name), "from", "", "to", "")
}

// Beside is a page with charts that shows an earlier range beside its own: one of samples.Besides before it,
// or one that ended at a time; none if word is empty.
func Beside(page URL, word string) URL { return asking(page, "beside", word) }

// Asks is the value that a page's query has under a name; empty if none.
func Asks(page URL, name string) string {
	_, text, _ := strings.Cut(string(page), "?")
	query, _ := url.ParseQuery(text)
	return query.Get(name)
}

// asking is a page with other values in its query, which pairs have after their names; an empty one is none.
func asking(page URL, pairs ...string) URL {
	address, fragment, anchored := strings.Cut(string(page), "#")
	path, text, _ := strings.Cut(address, "?")
	query, _ := url.ParseQuery(text)
	for i := 0; i < len(pairs); i += 2 {
		query.Del(pairs[i])
	}
	maps.Copy(query, values(pairs...))
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if anchored {
		path += "#" + fragment
	}
	return URL(path)
}

func InstanceAnchor(id string) string { return "instance-" + id }

// RequestOver returns a request of a kind over one campaign or all, and one projection or all.
func RequestOver(kind replay.RunKind, campaign, projection string) replay.RunRequest {
	o := replay.RunRequest{Kind: kind, All: campaign == ""}
	if campaign != "" {
		o.Campaigns = []string{campaign}
	}
	if projection != "" {
		o.Projections = []string{projection}
	}
	return o
}
