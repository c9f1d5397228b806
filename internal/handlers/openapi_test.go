package handlers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/outboxweb/outboxweb/internal/apitest"
	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

var document = sync.OnceValues(func() (*apitest.Document, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err != nil {
		return nil, err
	}
	return apitest.Parse(openapi, apiPrefix)
})

// checkDocumented fails the test if an answer of the API, or a request that it took, does not conform
// to the document. Requests that are malformed on purpose cannot be read again.
func checkDocumented(t testing.TB, s *server, r *http.Request, rec *httptest.ResponseRecorder) {
	doc := must.Get(document()).Or(t)
	asked := r.Clone(context.Background())
	asked.URL.Path, asked.URL.RawPath = strings.TrimPrefix(r.URL.Path, s.links.Base()), strings.TrimPrefix(r.URL.RawPath, s.links.Base())
	if r.GetBody != nil {
		asked.Body, _ = r.GetBody()
	} else {
		asked.Body = nil
	}
	_, err := doc.Check(asked, rec.Code, rec.Header(), rec.Body.Bytes())
	must.Hold(t, err == nil, "%v", err)
}

// readFromServers is what only a whole server has; e2e reads it, and all that is read, from one with objects of every kind.
var readFromServers = map[string]bool{
	"/campaigns/{campaign}/events/{seq}/changes": true, "/campaigns/{campaign}/events/{seq}/fixture": true, "/campaigns/{campaign}/read-model": true, "/campaigns/{campaign}/read-model/cell": true,
	"/failures/{failure}": true, "/rehearsals/{run}": true, "/runs/{run}/results/{campaign}": true,
}

// Every operation is refused, and every reading one succeeds, as the document says: the requests check
// that. Acts succeed as it says in the scenarios of cmd/outboxweb.
func TestDocument_everyOperationIsRefusedAndReadingSucceeds(t *testing.T) {
	g, asAdmin := newGuarded(t).fill(), people[operator.RoleAdmin]
	for _, r := range everyRoute(t, g.site) {
		if r.entry.api.id == "" {
			continue
		}
		misspelt := r.sent
		misspelt.target += "?unknown=1"
		g.ask(r.sent, func(*http.Request) {}).want(t, 401)
		g.ask(misspelt, asAdmin).want(t, 422)
		if r.method == http.MethodGet && !readFromServers[strings.TrimPrefix(r.entry.pattern, apiPrefix)] {
			g.get(r.target, asAdmin).want(t, 200)
		}
	}
}

var update = flag.Bool("update", false, "write openapi.json as it is generated")

func TestDocument_isTheOneGenerated(t *testing.T) {
	text := generated(t)
	if *update {
		must.OK(t, os.WriteFile("openapi.json", text, 0o644))
		return
	}
	must.Hold(t, bytes.Equal(text, openapi), "openapi.json is not what is generated from the routes and types; run make generate")
}

func generated(t testing.TB) []byte {
	g := &generator{schemas{t, &sources{t, map[string]*sourcePackage{}}, map[string]usedType{}, openapi3.Schemas{}}, openapi3.ParametersMap{}, openapi3.ResponseBodies{}}
	routes := newServer(Config{Queue: outbox.New(new(store.Store)), Metrics: metrics.New(nil)}).routes
	paths := openapi3.NewPaths()
	for _, r := range routes {
		path, ok := strings.CutPrefix(r.pattern, apiPrefix)
		if !ok {
			continue
		}
		item := cmp.Or(paths.Value(path), &openapi3.PathItem{})
		item.SetOperation(r.method, g.operation(r))
		paths.Set(path, item)
	}
	text := must.Get(json.MarshalIndent(g.document(paths), "", "  ")).Or(t)
	return append(text, '\n')
}

// generator collects the components that operations refer to.
type generator struct {
	schemas
	parameters openapi3.ParametersMap
	responses  openapi3.ResponseBodies
}

func (g *generator) document(paths *openapi3.Paths) *openapi3.T {
	return &openapi3.T{
		OpenAPI: "3.1.0",
		Info: &openapi3.Info{Title: "outboxweb", Version: "1",
			Description: "The projection apply outbox: read it, append to it, repair it. Times are RFC 3339 in UTC. Lists are keyset-paged. Errors are application/problem+json. Beside what each address answers, all refuse an address of more than 16 KiB (414) and headers of more than 100 names or 128 KiB (431). A query parameter that an address does not take, or that is given twice, is refused (422).",
			License:     &openapi3.License{Name: "MIT", URL: "https://opensource.org/license/mit"}},
		Servers:  openapi3.Servers{{URL: apiPrefix, Description: "below the base path of the pages"}},
		Security: openapi3.SecurityRequirements{{}, {"token": {}}},
		Tags:     tagTexts,
		Paths:    paths,
		Components: &openapi3.Components{Schemas: g.made, Parameters: g.parameters, Responses: g.responses,
			SecuritySchemes: openapi3.SecuritySchemes{"token": {Value: &openapi3.SecurityScheme{Type: "http", Scheme: "bearer",
				Description: "a token that outboxweb token create has made; browsers come through a proxy that says who asks, and a server without an authenticator asks nobody"}}}},
	}
}

// tagTexts say what each part of the API is about.
var tagTexts = openapi3.Tags{
	{Name: string(tagSystem), Description: "The state of the whole system, its processes and its setup"},
	{Name: string(tagRows), Description: "Events not yet applied to the projections"},
	{Name: string(tagCampaigns), Description: "The ordering scopes, and how far their projections are"},
	{Name: string(tagEvents), Description: "The journal: reading it, appending to it, and events that are passed over"},
	{Name: string(tagFailures), Description: "What went wrong, by what it has in common, and where projections could not follow"},
	{Name: string(tagOperations), Description: "Requeues of many rows, carried out in waves and watched"},
	{Name: string(tagRuns), Description: "Replays, rebuilds and verifies"},
	{Name: string(tagProjections), Description: "The read models"},
	{Name: string(tagPublishers), Description: "Where events go beside the projections"},
	{Name: string(tagAudit), Description: "The audit log: actions done and refused"},
	{Name: string(tagIntake), Description: "Sources are databases of services whose rows are moved to the journal."},
	{Name: string(tagAlerts), Description: "Rules tell people of trouble and of its end."},
	{Name: string(tagTokens), Description: "API tokens authenticate"},
}

func (g *generator) operation(r route) *openapi3.Operation {
	o := &openapi3.Operation{OperationID: r.api.id, Tags: []string{string(r.api.tag)}, Summary: r.api.summary, Description: r.api.details,
		RequestBody: g.body(r.api.body), Responses: g.answers(r)}
	for _, found := range patternName.FindAllStringSubmatch(r.pattern, -1) {
		o.Parameters = append(o.Parameters, g.shared(pathParameter(found[1])))
	}
	for _, q := range r.takes {
		o.Parameters = append(o.Parameters, &openapi3.ParameterRef{Value: g.queryParameter(q)})
	}
	if r.keyed() {
		o.Parameters = append(o.Parameters, g.shared(&openapi3.Parameter{Name: "Idempotency-Key", In: "header",
			Schema:      openapi3.NewStringSchema().WithMaxLength(maxIdempotencyKey).NewRef(),
			Description: "a second request with this key is answered with the first one's result: to an append for 24 hours, to an act as long as its audit record is kept. What is refused leaves its key free"}))
	}
	return o
}

var patternName = regexp.MustCompile(`\{(\w+)\}`)

// pathParameter is a parameter of a pattern. Those of numbered objects are read by numberParam.
func pathParameter(name string) *openapi3.Parameter {
	p := openapi3.NewPathParameter(name).WithDescription("percent-escaped").WithSchema(openapi3.NewStringSchema())
	if is := map[string]string{"run": "its number, from 1", "operation": "its number, from 1", "failure": "its number, from 1", "token": "its number, from 1", "seq": "from 1"}[name]; is != "" {
		p.WithDescription(is).WithSchema(openapi3.NewInt64Schema().WithMin(1))
	}
	return p
}

// shared is a reference to a parameter that is the same under its name everywhere.
func (g *generator) shared(p *openapi3.Parameter) *openapi3.ParameterRef {
	name := p.In + "-" + p.Name
	g.parameters[name] = &openapi3.ParameterRef{Value: p}
	return &openapi3.ParameterRef{Ref: "#/components/parameters/" + name}
}

func (g *generator) queryParameter(q queryParameter) *openapi3.Parameter {
	t := q.field.Type
	if t.Kind() == reflect.Pointer { // a pointer distinguishes absence
		t = t.Elem()
	}
	schema := g.of(t, inBodies)
	if t == timeType { // also a date, or relative
		schema = openapi3.NewStringSchema().NewRef()
	}
	if q.name() == "cursor" { // as answers have it, whatever it is made of
		schema = openapi3.NewStringSchema().NewRef()
	} else {
		g.constrain(schema.Value, q.field)
	}
	return &openapi3.Parameter{Name: q.name(), In: "query", Description: g.sources.field(q.owner, q.field.Name), Schema: schema}
}

func (g *generator) body(b requestBody) *openapi3.RequestBodyRef {
	if len(b.types) == 0 {
		return nil
	}
	content := openapi3.NewContentWithJSONSchemaRef(g.anyOf(b.types, inBodies))
	return &openapi3.RequestBodyRef{Value: openapi3.NewRequestBody().WithRequired(b.required).WithContent(content)}
}

// unionNames are the schemas of values of one type or another, by the first.
var unionNames = map[reflect.Type]string{reflect.TypeFor[appendbody.NewEvent](): "Append", reflect.TypeFor[appendAnswer](): "Appended"}

func (g *generator) anyOf(types []reflect.Type, use usage) *openapi3.SchemaRef {
	if len(types) == 1 {
		return g.of(types[0], use)
	}
	either := &openapi3.Schema{}
	for _, t := range types {
		either.AnyOf = append(either.AnyOf, g.of(t, use))
	}
	name := unionNames[types[0]]
	g.made[name] = either.NewRef()
	return openapi3.NewSchemaRef("#/components/schemas/"+name, nil)
}

func (g *generator) answers(r route) *openapi3.Responses {
	all := openapi3.NewResponsesWithCapacity(0)
	for _, a := range r.api.answers {
		all.Set(fmt.Sprint(a.status), &openapi3.ResponseRef{Value: g.answer(a)})
	}
	for _, refused := range r.refuses() {
		all.Set(fmt.Sprint(refused.status), g.refused(refused))
	}
	return all
}

func (g *generator) answer(a apiAnswer) *openapi3.Response {
	response := openapi3.NewResponse().WithDescription(a.text)
	for media, types := range a.content {
		if response.Content == nil {
			response.Content = openapi3.Content{}
		}
		response.Content[media] = &openapi3.MediaType{Schema: (&openapi3.Schema{}).NewRef()}
		if types != nil {
			response.Content[media].Schema = g.anyOf(types, inAnswers)
		}
	}
	if a.located {
		response.Headers = openapi3.Headers{"Location": {Value: &openapi3.Header{Parameter: openapi3.Parameter{Required: true,
			Description: "where it can be followed", Schema: openapi3.NewStringSchema().NewRef()}}}}
	}
	return response
}

func (g *generator) refused(r refusal) *openapi3.ResponseRef {
	if g.responses[r.name] == nil {
		content := openapi3.NewContentWithSchemaRef(g.of(reflect.TypeFor[problem](), inAnswers), []string{"application/problem+json"})
		g.responses[r.name] = &openapi3.ResponseRef{Value: openapi3.NewResponse().WithDescription(r.text).WithContent(content)}
	}
	return &openapi3.ResponseRef{Ref: "#/components/responses/" + r.name}
}

// Refusals of all routes of a kind.
var (
	refusedPrefix    = refusal{"BadPrefix", http.StatusBadRequest, "a trusted proxy sent a malformed X-Forwarded-Prefix"}
	refusedUnknown   = refusal{"Unidentified", http.StatusUnauthorized, "not authenticated, or the credentials cannot be trusted"}
	refusedForbidden = refusal{"Forbidden", http.StatusForbidden, "the server is read-only, the request is cross-origin, or the role may not do this"}
	refusedMissing   = refusal{"NotFound", http.StatusNotFound, "not found"}
	refusedSlow      = refusal{"Slow", http.StatusRequestTimeout, "the body took too long to arrive"}
	refusedState     = refusal{"Conflict", http.StatusConflict, "the current state does not allow it, or is not the expected one"}
	refusedSize      = refusal{"TooLarge", http.StatusRequestEntityTooLarge, "over a limit"}
	refusedMedia     = refusal{"NotJSON", http.StatusUnsupportedMediaType, "not application/json, or compressed"}
	refusedHost      = refusal{"Misdirected", http.StatusMisdirectedRequest, "the Host is not allowed"}
	refusedInvalid   = refusal{"Invalid", http.StatusUnprocessableEntity, "the request is invalid; errors lists the fields"}
	refusedPace      = refusal{"TooManyActs", http.StatusTooManyRequests, "too many actions by one identity; Retry-After says when to retry"}
	refusedInternal  = refusal{"Internal", http.StatusInternalServerError, "an internal error, identified by its request id"}
	refusedBusy      = refusal{"Busy", http.StatusServiceUnavailable, "the database is busy or unavailable; try again"}
	refusedFull      = refusal{"Full", http.StatusInsufficientStorage, "the disk of the database is full; nothing was changed"}
)

// Refusals that any route of a kind may give.
var (
	readsRefuse     = []refusal{refusedPrefix, refusedUnknown, refusedForbidden, refusedHost, refusedInvalid, refusedInternal, refusedBusy}
	questionsRefuse = append(slices.Clip(readsRefuse), refusedMissing, refusedSlow, refusedSize, refusedMedia, refusedFull)
	actsRefuse      = append(slices.Clip(questionsRefuse), refusedState, refusedPace)
)

// refuses are all refusals of a route of the API.
func (t route) refuses() []refusal {
	all := slices.Clone(readsRefuse)
	switch {
	case t.action != "":
		all = slices.Clone(actsRefuse)
	case t.method == http.MethodPost:
		all = slices.Clone(questionsRefuse)
	case strings.Contains(t.pattern, "{"):
		all = append(all, refusedMissing)
	}
	for _, own := range t.api.refusals {
		all = slices.DeleteFunc(all, func(r refusal) bool { return r.status == own.status })
	}
	return append(all, t.api.refusals...)
}

// keyed reports whether a route of the API takes an Idempotency-Key.
func (t route) keyed() bool { return t.action != "" && t.action.Effect() != operator.ShowsHidden }
