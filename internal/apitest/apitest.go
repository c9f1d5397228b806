// Package apitest holds requests and answers against the API's document, as strictly as JSON Schema
// 2020-12 has it and with every schema closed: what the document does not name is a fault.
package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI 3.1 document. It is safe for concurrent use.
type Document struct {
	prefix string // of its paths
	paths  map[string]map[string]operation
	root   any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by pointer
}

// operation is what is read of an operation; its schemas are compiled by their pointers.
type operation struct {
	Parameters  []parameter
	RequestBody *struct{ Required bool }
	Responses   map[string]struct {
		Ref     string `json:"$ref"`
		Headers map[string]struct{ Required bool }
		Content map[string]any
	}
}

type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
	Required bool
	Schema   struct{ Type string }
}

const resource = "openapi.json"

// Parse returns a document whose paths are below a prefix, such as /api/v1.
func Parse(text []byte, prefix string) (*Document, error) {
	d := &Document{prefix: prefix, schemas: map[string]*jsonschema.Schema{}, compiler: jsonschema.NewCompiler()}
	var read struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d.paths, d.root = read.Paths, root
	closeSchemas(root)
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource(resource, root)
}

// closeSchemas makes every object with named fields refuse others.
func closeSchemas(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, named := node["properties"].(map[string]any); named && node["additionalProperties"] == nil && node["type"] != nil {
			node["additionalProperties"] = false
		}
		for _, part := range node {
			closeSchemas(part)
		}
	case []any:
		for _, part := range node {
			closeSchemas(part)
		}
	}
}

// Operations are the methods and paths of the document.
func (d *Document) Operations() (all []string) {
	for path, item := range d.paths {
		for method := range item {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

// Check returns the operation that a request is for, empty if the document has none, and what in the
// answer, or in the request if it was taken, is not as the document says. The address of the request
// is without the base path; a request without its body is not checked.
func (d *Document) Check(r *http.Request, status int, header http.Header, body []byte) (operation string, err error) {
	path, names := d.find(r)
	o, ok := d.paths[path][strings.ToLower(r.Method)]
	if !ok {
		return "", nil
	}
	at := "/paths/" + escape(path) + "/" + strings.ToLower(r.Method)
	d.mu.Lock()
	defer d.mu.Unlock()
	err = d.checkAnswer(o, at, status, header, body)
	if status < 300 && (r.Body != nil || o.RequestBody == nil) {
		err = errors.Join(err, d.checkRequest(o, at, r, names))
	}
	if err != nil {
		err = fmt.Errorf("%s %s, answered with %d: %w", r.Method, r.URL, status, err)
	}
	return r.Method + " " + path, err
}

// find returns the path of the document that a request is for, and the values of its parameters.
func (d *Document) find(r *http.Request) (path string, values map[string]string) {
	below, ok := strings.CutPrefix(r.URL.EscapedPath(), d.prefix)
	if !ok {
		return "", nil
	}
	given, fixed := strings.Split(below, "/"), -1
	for template := range d.paths {
		parts := strings.Split(template, "/")
		named, found := 0, map[string]string{}
		fits := len(parts) == len(given)
		for i := 0; fits && i < len(parts); i++ {
			if name, is := strings.CutPrefix(parts[i], "{"); is {
				found[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(given[i])
				named++
			} else {
				fits = parts[i] == given[i]
			}
		}
		if fits && len(parts)-named > fixed {
			path, values, fixed = template, found, len(parts)-named
		}
	}
	return path, values
}

func (d *Document) checkAnswer(o operation, at string, status int, header http.Header, body []byte) error {
	at += "/responses/" + fmt.Sprint(status)
	answer, ok := o.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("the status is not documented: %.300s", body)
	}
	if answer.Ref != "" {
		at = strings.TrimPrefix(answer.Ref, "#")
		if err := d.read(at, &answer); err != nil {
			return err
		}
	}
	for name, h := range answer.Headers {
		if h.Required && header.Get(name) == "" {
			return fmt.Errorf("the header %s is missing", name)
		}
	}
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if len(answer.Content) == 0 && len(body) == 0 {
		return nil
	}
	if _, ok := answer.Content[media]; err != nil || !ok {
		return fmt.Errorf("the media type is %q: %.300s", header.Get("Content-Type"), body)
	}
	if strings.HasSuffix(media, "json") {
		return d.valid(at+"/content/"+escape(media)+"/schema", body)
	}
	return nil
}

func (d *Document) checkRequest(o operation, at string, r *http.Request, names map[string]string) error {
	given := r.URL.Query()
	for i, p := range o.Parameters {
		pointer := fmt.Sprintf("%s/parameters/%d", at, i)
		if p.Ref != "" {
			pointer = strings.TrimPrefix(p.Ref, "#")
			if err := d.read(pointer, &p); err != nil {
				return err
			}
		}
		value, ok := names[p.Name]
		switch p.In {
		case "query":
			value, ok = given.Get(p.Name), given.Get(p.Name) != "" // an empty one is as none
			given.Del(p.Name)
		case "header":
			value, ok = r.Header.Get(p.Name), r.Header.Get(p.Name) != ""
		}
		if p.Required && !ok {
			return fmt.Errorf("the parameter %s is missing", p.Name)
		}
		if !ok {
			continue
		}
		if p.Schema.Type == "string" || p.Schema.Type == "" {
			quoted, _ := json.Marshal(value)
			value = string(quoted)
		} else if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			value = strconv.FormatInt(n, 10) // +1 and 01 are no numbers of JSON
		}
		if err := d.valid(pointer+"/schema", []byte(value)); err != nil {
			return fmt.Errorf("the parameter %s: %w", p.Name, err)
		}
	}
	if len(given) > 0 {
		return fmt.Errorf("parameters that the document does not name were taken: %v", given)
	}
	if o.RequestBody == nil {
		return nil
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil || len(sent) == 0 && !o.RequestBody.Required {
		return err
	}
	return d.valid(at+"/requestBody/content/application~1json/schema", sent)
}

// read decodes what a pointer leads to.
func (d *Document) read(pointer string, v any) error {
	node := d.root
	for _, name := range strings.Split(pointer, "/")[1:] {
		node = node.(map[string]any)[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	text, err := json.Marshal(node)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// valid checks a JSON text against the schema that a pointer leads to.
func (d *Document) valid(pointer string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w in %.300s", err, text)
	}
	schema := d.schemas[pointer]
	if schema == nil {
		if schema, err = d.compiler.Compile(resource + "#" + escapeURL(pointer)); err != nil {
			return err
		}
		d.schemas[pointer] = schema
	}
	return schema.Validate(value)
}

func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

func escapeURL(pointer string) string { return (&url.URL{Path: pointer}).EscapedPath() }
