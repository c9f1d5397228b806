// Package request reads requests and writes them: one struct with tags describes a filter or an
// action wherever it is asked for. Its json tags name the fields of queries, forms and JSON bodies
// alike, its validate tags limit their values, and its kong tags make the flags of a command.
//
// Refusals name the field and say what it must be, to be shown as they are.
package request

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-playground/validator/v10"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
)

// Invalid is an ErrInvalid about several fields.
type Invalid struct {
	Fields map[string]string // what is wrong with each, by its name
}

// Unwrap returns event.ErrInvalid.
func (e *Invalid) Unwrap() error { return event.ErrInvalid }

func (e *Invalid) Error() string {
	messages := make([]string, 0, len(e.Fields))
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		messages = append(messages, e.Fields[name])
	}
	return strings.Join(messages, "; ")
}

// Name is the name of a field in JSON, in queries and in forms.
func Name(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// fieldsOf are the Fields of types: pages write an address for each of their links.
var fieldsOf sync.Map

// Fields are the fields of a request, with those of embedded structs, in the order of the source. Callers
// share them and must not change them.
func Fields(t reflect.Type) (all []reflect.StructField) {
	if fields, found := fieldsOf.Load(t); found {
		return fields.([]reflect.StructField)
	}
	for _, f := range reflect.VisibleFields(t) {
		if name := Name(f); !f.Anonymous && name != "" && name != "-" {
			all = append(all, f)
		}
	}
	fieldsOf.Store(t, all)
	return all
}

// checker validates the structs that requests are read into.
var checker = newChecker()

func newChecker() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		if name := Name(f); !f.Anonymous || name != "" {
			return name
		}
		return embedded
	})
	err := v.RegisterValidation("maxbytes", func(fl validator.FieldLevel) bool {
		limit, err := strconv.Atoi(fl.Param())
		return err == nil && len(fl.Field().String()) <= limit
	})
	for name, rules := range Aliases {
		v.RegisterAlias(name, rules)
	}
	if err == nil {
		err = v.RegisterValidation("text", func(fl validator.FieldLevel) bool { return IsText(fl.Field().String()) })
	}
	if err != nil { // only an empty name or a nil function is refused
		panic(err)
	}
	return v
}

// Aliases are validation rules shared by several requests, by their name in field tags.
var Aliases = map[string]string{
	"action": oneOf(operator.AuditedActions()),
	"status": oneOf(event.Statuses), "state": oneOf(campaign.States), "span": oneOf(samples.Spans), "range": oneOf(samples.RangeNames), "role": oneOf(operator.Roles), "auth": oneOf(operator.Auths),
	"runkind": oneOf(replay.RunKinds), "startedkind": oneOf(replay.ScopedRunKinds), "runstatus": oneOf(replay.RunStatuses),
	"operationstatus": oneOf(operations.OperationStatuses), "rowresult": oneOf(operations.RowResults),

	"id":          atMost(event.MaxIDLength),
	"fingerprint": atMost(event.MaxFingerprint),
	"reason":      atMost(event.MaxReason),
	"phrase":      atMost(event.MaxPhrase),
	"note":        atMost(event.MaxNote),
	"cursor":      atMost(2000),
	"pagesize":    upTo(event.MaxPage),
	"requeued":    upTo(event.MaxRequeue),
	"operated":    upTo(event.MaxOperation),
}

// Choices are the values that a field may have; nil if it may have others.
func Choices(f reflect.StructField) []string {
	for rule := range strings.SplitSeq(f.Tag.Get("validate"), ",") {
		if words, found := strings.CutPrefix(cmp.Or(Aliases[rule], rule), "oneof="); found {
			return strings.Fields(words)
		}
	}
	return nil
}

// embedded stands for an embedded struct, which is no part of the name of its fields.
const embedded = "^"

func atMost(bytes int) string { return fmt.Sprintf("text,maxbytes=%d", bytes) }
func upTo(n int) string       { return fmt.Sprintf("min=1,max=%d", n) }

func oneOf[T ~string](words []T) string {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	return "oneof=" + strings.Join(names, " ")
}

// IsText reports whether every database can store and compare s.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// Check validates a filled struct and words its errors: it returns an Invalid.
func Check(params any) error {
	err := checker.Struct(params)
	var found validator.ValidationErrors
	if !errors.As(err, &found) {
		return err
	}
	fields := make(map[string]string, len(found))
	for _, f := range found {
		_, name, _ := strings.Cut(f.Namespace(), ".")
		name = strings.ReplaceAll(name, embedded+".", "")
		fields[name] = name + " " + rule(f)
	}
	return &Invalid{Fields: fields}
}

// rule says what a field must be.
func rule(f validator.FieldError) string {
	switch f.ActualTag() {
	case "required":
		return "is required"
	case "oneof":
		return fmt.Sprintf("%q is unknown; use %s", fmt.Sprint(f.Value()), event.OrList(strings.Fields(f.Param())))
	case "min":
		return "must be " + f.Param() + " or more"
	case "max":
		return "must be at most " + f.Param()
	case "maxbytes":
		return fmt.Sprintf("is %d bytes long; the limit is %s", len(fmt.Sprint(f.Value())), f.Param())
	case "hexadecimal":
		return "is not a version, which has hexadecimal digits"
	case "text":
		return "is not valid UTF-8, or contains a NUL character"
	}
	return "is not valid"
}

// Fill sets the fields of *params from values by their names and validates them. It supports texts,
// whole numbers, true and false, durations, times, pointers to these and to structs, lists of texts,
// whose names may repeat, and a range of time named since and until, which may be relative to now.
// Unknown names are ignored; an empty value counts as absent.
func Fill(params any, values url.Values, now time.Time) error {
	v, wrong := reflect.ValueOf(params).Elem(), map[string]string{}
	fillFields(v, values, "", wrong)
	if len(wrong) > 0 {
		return &Invalid{wrong}
	}
	if err := Check(params); err != nil {
		return err
	}
	since := v.FieldByName("Since")
	if !since.IsValid() {
		return nil
	}
	from, until, err := event.ParseRange(values.Get("since"), values.Get("until"), now)
	since.Set(reflect.ValueOf(from))
	v.FieldByName("Until").Set(reflect.ValueOf(until))
	return err
}

// fillFields sets fields whose names begin with a prefix, and tells of those that it cannot.
func fillFields(v reflect.Value, values url.Values, prefix string, wrong map[string]string) {
	for _, f := range Fields(v.Type()) {
		name, given := Name(f), values[Name(f)]
		switch {
		case isObjects(f.Type):
		case isNested(f.Type):
			inner, prefix := url.Values{}, name+"_"
			for full, texts := range values {
				if rest, ok := strings.CutPrefix(full, prefix); ok {
					inner[rest] = texts
				}
			}
			if known := reflect.New(f.Type.Elem()); len(inner) > 0 {
				fillFields(known.Elem(), inner, prefix, wrong)
				v.FieldByIndex(f.Index).Set(known)
			}
		case f.Type == textsType:
			v.FieldByIndex(f.Index).Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(given), func(text string) bool { return text == "" })))
		case len(given) > 1:
			wrong[prefix+name] = prefix + name + " is given more than once"
		case len(given) == 1 && given[0] != "":
			if message := fillValue(v.FieldByIndex(f.Index), given[0], f.Tag.Get("validate")); message != "" {
				wrong[prefix+name] = prefix + name + " " + message
			}
		}
	}
}

// isNested reports whether a field is an optional struct, whose fields a query or a form names with
// the field's own name before them: expected_status.
func isNested(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct && t.Elem() != timeType
}

// isObjects reports whether a field is a list of structs, which only JSON has.
func isObjects(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	textsType    = reflect.TypeFor[[]string]()
)

// Repeats reports whether a field may be given more than once.
func Repeats(f reflect.StructField) bool { return f.Type == textsType }

// fillValue sets one field from text; on failure it returns what the text must be.
func fillValue(v reflect.Value, text, rules string) string {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Type() == timeType && rules != "": // an end of the range, which Fill reads with the other one
		return against(text, rules)
	case v.Type() == timeType:
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return fmt.Sprintf("%q is not a time; write it like 2026-11-21T07:30:00Z", text)
		}
		v.Set(reflect.ValueOf(at))
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Sprintf("%q is not a duration; write it like 500ms or 2s", text)
		}
		v.SetInt(int64(d))
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Sprintf("must be a whole number, not %q", text)
		}
		v.SetInt(n)
		if rest, optional := strings.CutPrefix(rules, "omitempty,"); optional && n == 0 { // given, unlike a field that is left out
			return against(n, rest)
		}
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Sprintf("%q is unknown; use true or false", text)
		}
		v.SetBool(text == "true")
	default:
		v.SetString(text)
	}
	return ""
}

// against says what a value must be by the rules of a tag; nothing if it is.
func against(value any, rules string) string {
	if found, ok := errors.AsType[validator.ValidationErrors](checker.Var(value, rules)); ok {
		return rule(found[0])
	}
	return ""
}

// Required reports whether a request must have a field.
func Required(f reflect.StructField) bool {
	return strings.HasPrefix(f.Tag.Get("validate"), "required") || strings.HasPrefix(f.Tag.Get("api"), "required")
}

// Command is the command of an action that is asked for with a request: its reason, its phrase and
// what the caller saw, so far as the request has them.
func Command(asked any, by operator.Operator) operator.Command {
	v, o := reflect.Indirect(reflect.ValueOf(asked)), operator.Command{By: by}
	for name, field := range map[string]*string{"Reason": &o.Reason, "Confirm": &o.Confirm} {
		if f := v.FieldByName(name); f.IsValid() {
			*field = f.String()
		}
	}
	if f := v.FieldByName("Expected"); f.IsValid() {
		o.Expected, _ = f.Interface().(*operator.Expected)
	}
	return o
}

// Values is the query from which Fill makes params, without the fields that are not set.
func Values(params any) url.Values {
	v, all := reflect.ValueOf(params), url.Values{}
	for _, f := range Fields(v.Type()) {
		field, name := v.FieldByIndex(f.Index), Name(f)
		if field.IsZero() || isObjects(f.Type) || field.CanInt() && field.Int() < 0 {
			continue
		}
		switch value := reflect.Indirect(field).Interface().(type) {
		case []string:
			all[name] = value
		case time.Time:
			if all.Set(name, event.FormatSince(value)); name == "until" {
				all.Set(name, event.FormatUntil(value))
			}
		default:
			all.Set(name, fmt.Sprint(value))
		}
	}
	return all
}

// JSON decodes one JSON object with no unknown fields; it does not validate them.
func JSON(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return event.Invalid("", "there is data after the JSON object")
		}
		return event.CheckKeys(body, into)
	}
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed) && typed.Field == "":
		return event.Invalid("", "the body must be a JSON object, not a %s", typed.Value)
	case errors.As(err, &typed):
		return event.Invalid(typed.Field, "%s cannot be a %s", typed.Field, typed.Value)
	}
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		if field, err := strconv.Unquote(name); err == nil {
			return event.Invalid(field, "unknown field %s; allowed are %s", name, event.OrList(fieldNames(reflect.TypeOf(into))))
		}
	}
	return NotJSON(err)
}

// NotJSON says where a body is not valid JSON.
func NotJSON(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return event.Invalid("", "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return event.Invalid("", "the JSON ends too early")
	}
	return event.Invalid("", "not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// fieldNames lists the names of a request's fields.
func fieldNames(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var names []string
	for _, f := range Fields(t) {
		names = append(names, Name(f))
	}
	return names
}
