package handlers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
)

var document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openapi)
	if err == nil {
		err = doc.Validate(context.Background())
	}
	if err == nil {
		closeSchemas(doc)
	}
	return doc, err
})

// closeSchemas makes the document refuse unknown fields, so that the tests detect undocumented
// fields in answers. Schemas that others are composed of stay open, unless only a description is
// added to them.
func closeSchemas(doc *openapi3.T) {
	all, parts := map[*openapi3.Schema]bool{}, map[*openapi3.Schema]bool{}
	var gather func(refs ...*openapi3.SchemaRef)
	gather = func(refs ...*openapi3.SchemaRef) {
		for _, ref := range refs {
			if ref == nil || ref.Value == nil || all[ref.Value] {
				continue
			}
			all[ref.Value] = true
			if ref.Value.Type == nil && len(ref.Value.AnyOf) == 0 {
				ref.Value.Nullable = true // valid by the standard, which this checker does not support
			}
			gather(ref.Value.Items)
			for _, property := range ref.Value.Properties {
				gather(property)
			}
			for _, part := range slices.Concat(ref.Value.AllOf, ref.Value.AnyOf) {
				parts[part.Value] = parts[part.Value] || len(ref.Value.AllOf) != 1
				gather(part)
			}
		}
	}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for _, response := range operation.Responses.Map() {
				for _, content := range response.Value.Content {
					gather(content.Schema)
				}
			}
		}
	}
	for schema := range all {
		if len(schema.Properties) > 0 && len(schema.AllOf) == 0 && !parts[schema] && schema.AdditionalProperties.Schema == nil {
			schema.AdditionalProperties.Has = new(bool)
		}
	}
}

func TestDocument_namesExactlyTheRoutesThereAre(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	var documented, routed []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	err = chi.Walk(newSite(t).srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if path, ok := strings.CutPrefix(route, apiPrefix); ok {
			routed = append(routed, method+" "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routed {
		if !slices.Contains(documented, route) {
			t.Errorf("%s is served and not documented", route)
		}
	}
	for _, route := range documented {
		if !slices.Contains(routed, route) {
			t.Errorf("%s is documented and not served", route)
		}
	}
	if len(routed) < 20 {
		t.Errorf("only %d routes were found", len(routed))
	}
}

// checkDocumented fails the test if an answer of the API does not conform to the document.
func checkDocumented(t testing.TB, s *server, r *http.Request, rec *httptest.ResponseRecorder) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	route := chi.NewRouteContext()
	path, ok := strings.CutPrefix(strings.TrimPrefix(r.URL.EscapedPath(), s.links.Base()), apiPrefix)
	if !ok || !s.router.Match(route, r.Method, apiPrefix+path) {
		return
	}
	pattern := strings.TrimPrefix(route.RoutePattern(), apiPrefix)
	item := doc.Paths.Value(pattern)
	if item == nil {
		return // a route of the test itself; the routes of the server are compared elsewhere
	}
	params := map[string]string{}
	for i, name := range route.URLParams.Keys {
		params[name], _ = url.PathUnescape(route.URLParams.Values[i])
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params,
			Route: &routers.Route{Spec: doc, Path: pattern, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)}},
		Status: rec.Code, Header: rec.Header(), Body: io.NopCloser(bytes.NewReader(rec.Body.Bytes())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		t.Errorf("%s %s answers what the document does not describe: %v", r.Method, r.URL, err)
	}
	if r.Method == http.MethodPost && r.GetBody != nil && rec.Code < 300 {
		checkTaken(t, input.RequestValidationInput)
	}
}

// checkTaken fails the test if an accepted body does not conform to the document. Deliberately
// invalid bodies are excluded: they cannot be read again.
func checkTaken(t testing.TB, input *openapi3filter.RequestValidationInput) {
	t.Helper()
	r := input.Request.Clone(context.Background())
	r.Body, _ = input.Request.GetBody()
	if r.ContentLength == 0 {
		return
	}
	input.Request = r
	input.Options = &openapi3filter.Options{}
	if err := openapi3filter.ValidateRequestBody(context.Background(), input, input.Route.Operation.RequestBody.Value); err != nil {
		t.Errorf("%s %s takes a body that the document does not describe: %v", r.Method, r.URL, err)
	}
}
