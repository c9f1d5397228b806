package handlers

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
)

// schemaNames are the schemas of types that have another name in Go.
var schemaNames = map[string]string{
	"CampaignView":   "Campaign",
	"InstanceState":  "Instance",
	"JudgedGroup":    "ErrorGroup",
	"Match":          "PublisherMatch",
	"Progress":       "RunProgress",
	"ProjectionInfo": "Projection",
	"DatabaseInfo":   "Database",
	"CostReport":     "Cost",
	"Field":          "ColumnValue",
	"FieldChange":    "ColumnChange",
	"Appended":       "AppendedEvent",
	"appendAnswer":   "AppendedOne",
	"auditAnswer":    "AuditPage",
	"batchAnswer":    "AppendedBatch",
	"failureGroups":  "ErrorGroupList",
	"instanceView":   "InstanceAtWork",
	"journalView":    "Journal",
	"rowView":        "RowDetail",
	"DeadRows":       "OperationFilter",
	"verifications":  "VerificationList",
	"Noted":          "GroupNoted",
	"RequeueFilter":  "OperationSelection",
}

// instanceShown is what the JSON method of campaign.InstanceState writes.
type instanceShown struct {
	instanceFacts
	HeartbeatSeconds  float64 `json:"heartbeat_seconds"`   // the heartbeat interval; 0 means that it writes only after it has worked
	ClockAheadSeconds float64 `json:"clock_ahead_seconds"` // how far its clock is known to be ahead of this server's, negative when behind; 0 when less than a second, or unknown. last_seen is by this server's clock
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	instanceType = reflect.TypeFor[campaign.InstanceState]()
)

// schemas makes schemas of Go types by the rules of encoding/json. Types with names become
// components.
//
// A field's tag api says what its type does not:
//
//	required    a body must have it, and an answer always has it
//	object      a document that is a JSON object
//	nullable    a list or a document that may be null
//	empty       a text that may also be empty
//	enum=A B    the permitted texts
//	default=V   its value if it is omitted
//	min=N max=N range of a number, or of the bytes of a text or items of a list
type schemas struct {
	t       testing.TB
	sources *sources
	types   map[string]usedType // by component
	made    openapi3.Schemas
}

// usedType is a type and the usage of its values: a component is for one of both.
type usedType struct {
	of  reflect.Type
	use usage
}

// usage is what a value is used for.
type usage int

const (
	inAnswers usage = iota
	inBodies        // fields are required only if tagged so, and unknown ones are refused
)

func (g *schemas) of(t reflect.Type, use usage) *openapi3.SchemaRef {
	switch t {
	case timeType:
		return openapi3.NewDateTimeSchema().NewRef()
	case reflect.TypeFor[json.RawMessage]():
		return (&openapi3.Schema{}).NewRef() // null is a value like any other
	case reflect.TypeFor[time.Duration]():
		return openapi3.NewStringSchema().NewRef()
	case reflect.TypeFor[campaign.Scope]():
		return openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()).NewRef()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(g.of(t.Elem(), use))
	case reflect.Slice:
		list := openapi3.NewArraySchema()
		list.Items = g.of(t.Elem(), use)
		return list.NewRef()
	case reflect.Map:
		values := &openapi3.Schema{Type: &openapi3.Types{"object"}}
		if t.Elem().Kind() == reflect.Interface {
			values.AdditionalProperties.Has = new(true)
		} else {
			values.AdditionalProperties.Schema = g.of(t.Elem(), use)
		}
		return values.NewRef()
	case reflect.Struct:
		return g.component(t, use)
	case reflect.String:
		text := openapi3.NewStringSchema()
		text.Enum = enum(g.sources.constants(t))
		return text.NewRef()
	case reflect.Bool:
		return openapi3.NewBoolSchema().NewRef()
	case reflect.Float64:
		return (&openapi3.Schema{Type: &openapi3.Types{"number"}}).NewRef()
	case reflect.Int, reflect.Int64:
		return openapi3.NewInt64Schema().NewRef()
	}
	g.t.Fatalf("there is no schema for type %s", t)
	return nil
}

func (g *schemas) component(t reflect.Type, use usage) *openapi3.SchemaRef {
	name := schemaName(t.Name())
	ref := openapi3.NewSchemaRef("#/components/schemas/"+name, nil)
	if known, is := g.types[name]; is {
		must.Need(g.t, known == usedType{t, use}, "schema %s would be of two types, or of one in answers and in bodies: %s and %s", name, known.of, t)
		return ref
	}
	g.types[name] = usedType{t, use}
	shown := t
	if t == instanceType {
		shown = reflect.TypeFor[instanceShown]()
	}
	schema := g.object(shown, use)
	if comment, ok := strings.CutPrefix(g.sources.comment(t), typeName(t)+" "); ok {
		schema.Description = name + " " + comment
	}
	g.made[name] = schema.NewRef()
	return ref
}

// schemaName is the name of the schema of a Go type name, with its type parameters.
func schemaName(goName string) string {
	base, parameter, generic := strings.Cut(strings.TrimSuffix(goName, "]"), "[")
	if generic {
		of := schemaName(parameter[strings.LastIndexByte(parameter, '.')+1:])
		if base == "items" {
			base = "List"
		}
		return of + base
	}
	if asked, is := strings.CutSuffix(base, "Request"); is {
		base = strings.TrimSuffix(asked, "Start") + "Body"
	}
	if name := schemaNames[base]; name != "" {
		return name
	}
	return strings.ToUpper(base[:1]) + base[1:]
}

func (g *schemas) object(t reflect.Type, use usage) *openapi3.Schema {
	schema := openapi3.NewObjectSchema()
	for _, f := range jsonFields(t) {
		property := g.of(f.shownType(use), use)
		g.constrain(property.Value, f.StructField)
		schema.Properties[f.name] = f.complete(property, g.sources.field(f.owner, f.Name))
		if f.required(use) {
			schema.Required = append(schema.Required, f.name)
		}
	}
	if use == inBodies {
		schema.AdditionalProperties.Has = new(false)
	}
	return schema
}

// schemaField is a field of a struct, or of one that it embeds, as encoding/json names it.
type schemaField struct {
	reflect.StructField
	name  string
	owner reflect.Type
}

// jsonFields are the fields of t in the order of the source, with those of embedded structs that t does not name itself.
func jsonFields(t reflect.Type) (all []schemaField) {
	for f := range t.Fields() {
		name := request.Name(f)
		embedded, more := f.Anonymous && name == "", []schemaField{{f, name, t}}
		if embedded {
			more = jsonFields(f.Type)
		}
		for _, f := range more {
			at := slices.IndexFunc(all, func(known schemaField) bool { return known.name == f.name })
			switch {
			case !f.IsExported() || f.name == "-":
			case at < 0:
				all = append(all, f)
			case !embedded:
				all[at] = f
			}
		}
	}
	return all
}

func (f schemaField) required(use usage) bool {
	if use == inAnswers {
		return !f.omitted() || f.says("required")
	}
	rules, _, _ := strings.Cut(f.Tag.Get("validate"), "dive")
	return slices.Contains(strings.Split(rules, ","), "required") || f.says("required")
}

// omitted reports whether the field is left out when it has no value.
func (f schemaField) omitted() bool { return strings.Contains(f.Tag.Get("json"), ",omit") }

// says reports whether the tag api of the field has a word.
func (f schemaField) says(word string) bool {
	return slices.Contains(strings.Split(f.Tag.Get("api"), ","), word)
}

// shownType is the type of the field in JSON: if a missing value is omitted, it is never null.
func (f schemaField) shownType(use usage) reflect.Type {
	if use == inAnswers && f.omitted() && f.Type.Kind() == reflect.Pointer {
		return f.Type.Elem()
	}
	return f.Type
}

// complete is a property with its description, and null where it may be that.
func (f schemaField) complete(property *openapi3.SchemaRef, comment string) *openapi3.SchemaRef {
	if f.says("nullable") {
		property = nullable(property)
	}
	if v := property.Value; v != nil && v.Type != nil && v.Type.IncludesNull() && len(v.Enum) > 0 {
		v.Enum = append(v.Enum, nil)
	}
	if comment == "" {
		return property
	}
	if property.Ref != "" {
		property = (&openapi3.Schema{AllOf: openapi3.SchemaRefs{property}}).NewRef()
	}
	property.Value.Description = comment
	return property
}

func nullable(of *openapi3.SchemaRef) *openapi3.SchemaRef {
	if of.Ref != "" {
		null := (&openapi3.Schema{Type: &openapi3.Types{openapi3.TypeNull}}).NewRef()
		return (&openapi3.Schema{AnyOf: openapi3.SchemaRefs{of, null}}).NewRef()
	}
	if of.Value.Type != nil {
		of.Value.Type.With(openapi3.TypeNull)
	}
	return of
}

// constrain adds the tags validate and api of a field to a schema. schema is nil for one defined
// elsewhere, to which nothing can be added.
func (g *schemas) constrain(schema *openapi3.Schema, f reflect.StructField) {
	if schema == nil {
		return
	}
	of := schema
	for _, rule := range strings.Split(f.Tag.Get("validate"), ",") {
		for part := range strings.SplitSeq(cmp.Or(request.Aliases[rule], rule), ",") {
			if part == "dive" {
				of = of.Items.Value
			}
			if of != nil {
				g.limit(of, part)
			}
		}
	}
	for rule := range strings.SplitSeq(f.Tag.Get("api"), ",") {
		g.limit(schema, rule)
	}
}

// limit adds a rule, of the tag validate or api, to a schema.
func (g *schemas) limit(schema *openapi3.Schema, rule string) {
	name, value, _ := strings.Cut(rule, "=")
	switch name {
	case "oneof", "enum":
		if value == "true false" {
			schema.Type = &openapi3.Types{"boolean"}
			return
		}
		schema.Enum = enum(strings.Fields(value))
	case "empty":
		schema.Enum = append([]any{""}, schema.Enum...)
	case "min", "max":
		g.bound(schema, name, g.number(value))
	case "maxbytes":
		schema.MaxLength = new(uint64(g.number(value)))
	case "object":
		schema.Type = &openapi3.Types{"object"}
		schema.AdditionalProperties.Has = new(true)
	case "default":
		if n, named := namedLimits[value]; named {
			value = strconv.Itoa(n)
		}
		schema.Default = value
		if !schema.Type.Includes("string") {
			must.OK(g.t, json.Unmarshal([]byte(value), &schema.Default))
		}
	}
}

func enum(texts []string) (values []any) {
	for _, text := range texts {
		values = append(values, text)
	}
	return values
}

// bound limits the size of a value: a number, the bytes of a text, or the number of items.
func (g *schemas) bound(schema *openapi3.Schema, name string, n int64) {
	switch count := uint64(n); {
	case schema.Type.Includes("integer") && name == "min":
		schema.Min = new(float64(n))
	case schema.Type.Includes("integer"):
		schema.Max = new(float64(n))
	case schema.Type.Includes("array") && name == "min":
		schema.MinItems = count
	case schema.Type.Includes("array"):
		schema.MaxItems = &count
	case schema.Type.Includes("string") && name == "min":
		schema.MinLength = count
	case schema.Type.Includes("object") && name == "max":
		schema.MaxProps = &count
	default:
		g.t.Fatalf("%s=%d says nothing of a value of type %v", name, n, schema.Type)
	}
}

// namedLimits are the limits that a tag api names.
var namedLimits = map[string]int{
	"DefaultPage": event.DefaultPage, "DefaultRequeue": event.DefaultRequeue, "MaxNamed": event.MaxNamed, "MaxOperation": event.MaxOperation,
	"MaxRunCampaigns": event.MaxRunCampaigns, "MaxConditionItems": event.MaxConditionItems, "MaxConditionTypes": event.MaxConditionTypes,
	"MaxConditionTags": event.MaxConditionTags, "MaxRehearsed": replay.MaxRehearsed, "MaxRehearsalFileList": replay.MaxRehearsalFileList,
}

func (g *schemas) number(text string) int64 {
	if n, named := namedLimits[text]; named {
		return int64(n)
	}
	return must.Get(strconv.ParseInt(text, 10, 64)).Or(g.t)
}

// sources is what the Go source of this module adds to reflection: comments, and the constants of a type.
type sources struct {
	t        testing.TB
	packages map[string]*sourcePackage // by import path
}

type sourcePackage struct {
	comments  map[string]string   // by TYPE, and by TYPE.FIELD
	constants map[string][]string // texts by type, in the order of the source, without the empty one
}

const modulePath = "github.com/outboxweb/outboxweb/"

func (s *sources) of(path string) *sourcePackage {
	if p := s.packages[path]; p != nil {
		return p
	}
	p := &sourcePackage{map[string]string{}, map[string][]string{}}
	s.packages[path] = p
	if !strings.HasPrefix(path, modulePath) {
		return p
	}
	for _, name := range must.Get(filepath.Glob(filepath.Join("..", "..", strings.TrimPrefix(path, modulePath), "*.go"))).Or(s.t) {
		text := must.Get(os.ReadFile(name)).Or(s.t)
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)).Or(s.t)
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				p.read(d)
			}
		}
	}
	return p
}

func (p *sourcePackage) read(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			p.comments[spec.Name.Name] = sentence(spec.Doc, d.Doc)
			if of, is := spec.Type.(*ast.StructType); is {
				for _, f := range of.Fields.List {
					for _, n := range f.Names {
						p.comments[spec.Name.Name+"."+n.Name] = sentence(f.Doc, f.Comment)
					}
				}
			}
		case *ast.ValueSpec:
			typed, isTyped := spec.Type.(*ast.Ident)
			if d.Tok != token.CONST || !isTyped || len(spec.Values) != 1 {
				continue
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				if text, err := strconv.Unquote(value.Value); err == nil && text != "" {
					p.constants[typed.Name] = append(p.constants[typed.Name], text)
				}
			}
		}
	}
}

var goNil = regexp.MustCompile(`\bnil\b`)

// sentence is the first nonempty comment, in one line and in the terms of JSON.
func sentence(comments ...*ast.CommentGroup) string {
	for _, c := range comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); text != "" {
			return goNil.ReplaceAllString(text, "null")
		}
	}
	return ""
}

func typeName(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

func (s *sources) comment(t reflect.Type) string { return s.of(t.PkgPath()).comments[typeName(t)] }

func (s *sources) constants(t reflect.Type) (all []string) {
	if t != reflect.TypeFor[operator.Action]() {
		return s.of(t.PkgPath()).constants[typeName(t)]
	}
	for _, action := range operator.AllActions() {
		all = append(all, string(action))
	}
	return all
}

// field is the comment of a field. One that begins with the field's name and a verb is reduced to the rest.
func (s *sources) field(of reflect.Type, name string) string {
	if of == reflect.TypeFor[instanceFacts]() {
		of = instanceType
	}
	comment := s.of(of.PkgPath()).comments[typeName(of)+"."+name]
	for _, verb := range []string{" is ", " are "} {
		if rest, ok := strings.CutPrefix(comment, name+verb); ok {
			return strings.TrimSuffix(rest, ".")
		}
	}
	return comment
}
