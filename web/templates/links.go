package templates

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/request"
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
	over outbox.Range
}

// Within returns the links with a range, which those of pages with charts, and of lists that lead
// there, carry on.
func (l Links) Within(r outbox.Range) Links {
	l.over = r
	return l
}

// charted is the address of a page that carries the range.
func (l Links) charted(query url.Values, parts ...string) URL {
	if l.over == (outbox.Range{}) {
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
func (l Links) Action(a outbox.Action, about ...string) URL {
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

func positive(n int64) string {
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
func (l Links) FailuresOf(f outbox.FailureFilter) URL {
	switch f.Status {
	case "":
		f.Status = "all"
	case outbox.FailureOpen:
		f.Status = ""
	}
	return l.at(request.Values(f), "failures")
}

// StuckOf is the section of these events on that page.
func (l Links) StuckOf(f outbox.FailureFilter) URL { return l.FailuresOf(f) + "#stuck" }

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
func (l Links) ProjectionCursors(f outbox.CursorFilter) URL {
	return l.charted(request.Values(f), "projections", f.Projection)
}

// Instance is the entry of one instance on the page of instances.
func (l Links) Instance(id string) URL {
	return l.Instances() + "#" + URL(url.PathEscape(instanceAnchor(id)))
}

// Rows is the list of rows that match f, from its cursor.
func (l Links) Rows(f outbox.RowFilter) URL {
	if !l.api && f.Sort == outbox.SortAttention { // the order of the page
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
func (l Links) Operations(f outbox.OperationFilter) URL {
	return l.at(request.Values(f), "operations")
}

// Operation is one operation, with its rows that match f.
func (l Links) Operation(id int64, f outbox.OperationRowFilter) URL {
	return l.at(request.Values(f), "operations", strconv.FormatInt(id, 10))
}

// OperationOf is one operation.
func (l Links) OperationOf(id int64) URL { return l.Operation(id, outbox.OperationRowFilter{}) }

// NewOperation is the page that previews an operation on a selection and starts it.
func (l Links) NewOperation(s outbox.Selection) URL {
	return l.at(selectionValues(s), "operations", "new")
}

func selectionValues(s outbox.Selection) url.Values {
	f := s.Filter
	query := values("campaign", f.CampaignID, "event_type", f.EventType, "fingerprint", f.Fingerprint, "limit", positive(int64(f.Limit)))
	for _, r := range s.Rows {
		query.Add("rows", rowName(r))
	}
	return query
}

// rowName is a row in forms and addresses.
func rowName(r outbox.RowKey) string { return r.CampaignID + "/" + strconv.FormatInt(r.Seq, 10) }

// Campaigns is the list of campaigns that match f, from its cursor.
func (l Links) Campaigns(f outbox.CampaignFilter) URL {
	if !l.api && f.Sort == outbox.SortTrouble { // the order of the page
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
func (l Links) Tree(id string, seq int64, part outbox.Part, pointer string, from int) URL {
	return l.at(values("part", string(part), "at", pointer, "from", positive(int64(from))),
		"campaigns", id, "events", strconv.FormatInt(seq, 10), "tree")
}

// Payload is the download of an event's payload.
func (l Links) Payload(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10), "payload")
}

// Audit is the list of actions that match f, from its cursor.
func (l Links) Audit(f outbox.AuditFilter) URL { return l.at(request.Values(f), "audit") }

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
