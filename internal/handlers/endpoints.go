package handlers

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/request"
)

// endpoint describes a route to API clients. It is declared where the route is added; openapi.json
// is generated from it. Path parameters come from the pattern.
type endpoint struct {
	id       string // unique among endpoints; clients name their functions after it
	tag      apiTag
	summary  string // one line, without a final stop
	details  string // more details; may be empty
	query    queryParameters
	body     requestBody
	answers  []apiAnswer
	refusals []refusal // in addition to those of every route of its kind; they replace those with the same status
}

// apiTag is a section of the API.
type apiTag string

// The sections of the API, in the order of the document.
const (
	tagSystem      apiTag = "system"
	tagRows        apiTag = "rows"
	tagCampaigns   apiTag = "campaigns"
	tagEvents      apiTag = "events"
	tagFailures    apiTag = "failures"
	tagOperations  apiTag = "operations"
	tagRuns        apiTag = "runs"
	tagProjections apiTag = "projections"
	tagPublishers  apiTag = "publishers"
	tagIntake      apiTag = "intake"
	tagAlerts      apiTag = "alerts"
	tagAudit       apiTag = "audit"
	tagTokens      apiTag = "tokens"
)

// of completes the description of a route that performs an action with what the action says of itself.
func (e endpoint) of(action operator.Action) endpoint {
	if info := action.Info(); action != "" {
		e.id, e.tag, e.summary, e.details = info.ID, apiTag(info.Tag), info.Summary, info.Details
	}
	return e
}

// queryParameter is a field of a struct that fill sets from a query.
type queryParameter struct {
	owner reflect.Type // the struct that has the field
	field reflect.StructField
}

func (p queryParameter) name() string { return request.Name(p.field) }

type queryParameters []queryParameter

// queryOf returns the parameters that fill reads into structs of these types, in the order of their
// fields.
func queryOf(structs ...any) (all queryParameters) {
	for _, s := range structs {
		t := reflect.TypeOf(s)
		for _, f := range request.Fields(t) {
			owner := t
			if in := f.Index[:len(f.Index)-1]; len(in) > 0 {
				owner = t.FieldByIndex(in).Type
			}
			all = append(all, queryParameter{owner, f})
		}
	}
	return all
}

// named returns the parameter with a name, or nil.
func (q queryParameters) named(name string) *queryParameter {
	for i := range q {
		if q[i].name() == name {
			return &q[i]
		}
	}
	return nil
}

// only returns the parameters with these names.
func (q queryParameters) only(names ...string) queryParameters {
	return slices.DeleteFunc(slices.Clone(q), func(p queryParameter) bool { return !slices.Contains(names, p.name()) })
}

// without returns the parameters except those with these names.
func (q queryParameters) without(names ...string) queryParameters {
	return slices.DeleteFunc(slices.Clone(q), func(p queryParameter) bool { return slices.Contains(names, p.name()) })
}

func (q queryParameters) names() []string {
	names := make([]string, len(q))
	for i, p := range q {
		names[i] = p.name()
	}
	return names
}

// requestBody is an endpoint's body: a JSON object of one of the types. Without types it has none.
type requestBody struct {
	types    []reflect.Type
	required bool
}

// takes returns a required body.
func takes[T any]() requestBody { return requestBody{[]reflect.Type{reflect.TypeFor[T]()}, true} }

// asks returns a body that is required if one of its fields is.
func asks(t reflect.Type) requestBody {
	return requestBody{[]reflect.Type{t}, slices.ContainsFunc(request.Fields(t), request.Required)}
}

// or returns a body of either type.
func (b requestBody) or(other requestBody) requestBody {
	return requestBody{append(slices.Clip(b.types), other.types...), b.required}
}

// apiAnswer is a successful answer of an endpoint.
type apiAnswer struct {
	status  int
	text    string
	content map[string][]reflect.Type // by media type; several types mean any of them, nil is undocumented
	located bool                      // with the header Location
}

const (
	mediaJSON = "application/json"
	mediaCSV  = "text/csv"
)

// gives returns the answer 200 with a T as JSON.
func gives[T any](text string) []apiAnswer { return givesOf(reflect.TypeFor[T](), text) }

func givesOf(t reflect.Type, text string) []apiAnswer {
	return []apiAnswer{{status: http.StatusOK, text: text, content: map[string][]reflect.Type{mediaJSON: {t}}}}
}

// givesEither returns an answer with an A or a B as JSON.
func givesEither[A, B any](status int, text string) apiAnswer {
	return apiAnswer{status: status, text: text, content: map[string][]reflect.Type{mediaJSON: {reflect.TypeFor[A](), reflect.TypeFor[B]()}}}
}

// givesFile returns the answer of an export: all items of a list.
func givesFile[T any]() []apiAnswer {
	return []apiAnswer{{status: http.StatusOK, text: "all of them, streamed as a file; a connection that ends early means an incomplete file",
		content: map[string][]reflect.Type{mediaJSON: {reflect.TypeFor[[]T]()}, mediaCSV: {reflect.TypeFor[string]()}}}}
}

// starts returns the answer 202 with the started work, which the header Location leads to.
func starts[T any]() []apiAnswer {
	a := gives[T]("started and audited")
	a[0].status, a[0].located = http.StatusAccepted, true
	return a
}

// refusal is an error answer.
type refusal struct {
	name   string // in the document
	status int
	text   string
}

// Refusals of some routes in addition to those of all routes of their kind.
var (
	refusedHidden    = refusal{"Hidden", http.StatusForbidden, "this server hides payloads, is read-only, the request is cross-origin, or the role may not do this"}
	refusedAppend    = refusal{"AppendConflict", http.StatusConflict, "the current state does not allow it or is not the expected one, or an append with this Idempotency-Key is in progress"}
	refusedDryRun    = refusal{"NotTried", http.StatusConflict, "the event is already applied, or the campaign cannot be dry-run"}
	refusedReplaying = refusal{"Replaying", http.StatusServiceUnavailable, "the campaign is still being replayed, or too many are; try again"}
	refusedRange     = refusal{"NoSuchRange", http.StatusRequestedRangeNotSatisfiable, "the payload ends before the range that was asked for"}
	refusedWaiting   = refusal{"TooManyWaits", http.StatusTooManyRequests, "too many requests by one identity are waiting for projections; Retry-After says when to retry"}
	refusedFixture   = refusal{"NoFixture", http.StatusConflict, "the event does not fail, fails in Go, or has too many events before it"}
	refusedRoom      = refusal{"NoRoom", http.StatusServiceUnavailable, "the database is busy or unavailable, or there is no room for another large append; try again"}
	refusedLate      = refusal{"Late", http.StatusGatewayTimeout, "the wait timed out"}
)

// checkQuery refuses queries that cannot be read, and parameters that the route does not take: a
// misspelt filter would select everything. The addresses of probes and scrapers take any.
func (t route) checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" || t.pattern == "" || t.pattern == "/metrics" {
		return nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return event.Invalid("", "the query string is malformed%s: write name=value, with & between parameters and escapes in values, such as %%3B for ; and %%25 for %%", unreadable(r.URL.RawQuery))
	}
	known := t.takes.without("act").names()
	wrong := map[string]string{}
	for name, values := range given {
		switch p := t.takes.named(name); {
		case p == nil && len(known) == 0:
			wrong[name] = fmt.Sprintf("%q is not a query parameter of this URL, which takes none", name)
		case p == nil:
			wrong[name] = fmt.Sprintf("%q is not a query parameter of this URL; it takes %s", name, event.OrList(known))
		case len(values) > 1 && !request.Repeats(p.field):
			wrong[name] = name + " is given more than once"
		}
	}
	if len(wrong) > 0 {
		return &request.Invalid{Fields: wrong}
	}
	return nil
}

// unreadable quotes the first pair of a query that cannot be read.
func unreadable(query string) string {
	for pair := range strings.SplitSeq(query, "&") {
		if _, err := url.ParseQuery(pair); err != nil {
			return fmt.Sprintf(" at %.200q", pair)
		}
	}
	return ""
}
