package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-playground/validator/v10"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// checker validates the structs that requests are read into. Their json tags name the fields of
// queries, forms and bodies alike.
var checker = newChecker()

func newChecker() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			return embedded
		}
		return name
	})
	err := v.RegisterValidation("maxbytes", func(fl validator.FieldLevel) bool {
		limit, err := strconv.Atoi(fl.Param())
		return err == nil && len(fl.Field().String()) <= limit
	})
	for name, rules := range aliases {
		v.RegisterAlias(name, rules)
	}
	if err == nil {
		err = v.RegisterValidation("text", func(fl validator.FieldLevel) bool { return isText(fl.Field().String()) })
	}
	if err != nil { // only an empty name or a nil function is refused
		panic(err)
	}
	return v
}

// aliases are validation rules shared by several requests, by their name in field tags.
var aliases = map[string]string{
	"action": oneOf(outbox.AuditedActions()),
	"status": oneOf(outbox.Statuses), "state": oneOf(outbox.States), "span": oneOf(outbox.Spans), "range": oneOf(outbox.RangeNames), "role": oneOf(outbox.Roles),
	"runkind": oneOf(outbox.RunKinds), "startedkind": oneOf(outbox.ScopedRunKinds), "runstatus": oneOf(outbox.RunStatuses),
	"operationstatus": oneOf(outbox.OperationStatuses), "rowresult": oneOf(outbox.RowResults),

	"id":          atMost(outbox.MaxIDLength),
	"fingerprint": atMost(outbox.MaxFingerprint),
	"reason":      atMost(outbox.MaxReason),
	"phrase":      atMost(outbox.MaxPhrase),
	"note":        atMost(outbox.MaxNote),
	"pagesize":    upTo(outbox.MaxPage),
	"requeued":    upTo(outbox.MaxRequeue),
	"operated":    upTo(outbox.MaxOperation),
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

// isText reports whether every database can store and compare s.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// check validates a filled struct and words its errors.
func check(params any) error {
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
	return &invalidFields{fields: fields}
}

// rule says what a field must be.
func rule(f validator.FieldError) string {
	switch f.ActualTag() {
	case "required":
		return "is required"
	case "oneof":
		return fmt.Sprintf("%q is unknown; use %s", fmt.Sprint(f.Value()), outbox.OrList(strings.Fields(f.Param())))
	case "min":
		return "must be " + f.Param() + " or more"
	case "max":
		return "must be at most " + f.Param()
	case "maxbytes":
		return fmt.Sprintf("is %d bytes long; the limit is %s", len(fmt.Sprint(f.Value())), f.Param())
	case "text":
		return "is not valid UTF-8, or contains a NUL character"
	}
	return "is not valid"
}

// fill sets the fields of *params from values by their json names and validates them. It supports
// strings, whole numbers, durations, pointers to these, and lists of strings, whose names may
// repeat. Unknown names are ignored; an empty value counts as absent.
func fill(params any, values url.Values) error {
	wrong := map[string]string{}
	fillStruct(reflect.ValueOf(params).Elem(), values, wrong)
	if len(wrong) > 0 {
		return &invalidFields{fields: wrong}
	}
	return check(params)
}

func fillStruct(v reflect.Value, values url.Values, wrong map[string]string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			fillStruct(v.Field(i), values, wrong)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		given := values[name]
		switch {
		case field.Type == textsType:
			v.Field(i).Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(given), func(text string) bool { return text == "" })))
		case len(given) > 1:
			wrong[name] = name + " is given more than once"
		case len(given) == 1 && given[0] != "":
			if message := fillValue(v.Field(i), given[0]); message != "" {
				wrong[name] = name + " " + message
			}
		}
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textsType    = reflect.TypeFor[[]string]()
)

// fillValue sets one field from text; on failure it returns what the text must be.
func fillValue(v reflect.Value, text string) string {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
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
	default:
		v.SetString(text)
	}
	return ""
}

// decode decodes a JSON body into *params and validates it. An empty body leaves the zero value;
// unknown fields are refused by name.
func decode(r *http.Request, params any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return check(params)
	}
	if err := strictJSON(body, params); err != nil {
		return err
	}
	return check(params)
}

// readBody reads the body that jsonBody has limited.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, checkBody(body)
}

func checkBody(body []byte) error {
	if !utf8.Valid(body) {
		return outbox.Invalid("", "the body is not valid UTF-8")
	}
	return nil
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &outbox.Refusal{Err: outbox.ErrTooLarge, Detail: fmt.Sprintf("the body is larger than the limit of %d bytes", tooLarge.Limit)}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &outbox.Refusal{Err: errSlow, Detail: "the body took too long to arrive; nothing was changed"}
	}
	return outbox.Invalid("", "the body could not be read: it ended early or is malformed")
}

// strictJSON decodes one JSON object with no unknown fields.
func strictJSON(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return outbox.Invalid("", "there is data after the JSON object")
		}
		return outbox.CheckKeys(body, into)
	}
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed) && typed.Field == "":
		return outbox.Invalid("", "the body must be a JSON object, not a %s", typed.Value)
	case errors.As(err, &typed):
		return outbox.Invalid(typed.Field, "%s cannot be a %s", typed.Field, typed.Value)
	}
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		if field, err := strconv.Unquote(name); err == nil {
			return outbox.Invalid(field, "unknown field %s; allowed are %s", name, outbox.OrList(fieldNames(reflect.TypeOf(into))))
		}
	}
	return notJSON(err)
}

// notJSON says where a body is not valid JSON.
func notJSON(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return outbox.Invalid("", "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return outbox.Invalid("", "the JSON ends too early")
	}
	return outbox.Invalid("", "not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// fieldNames lists the json names of a struct's fields.
func fieldNames(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, fieldNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// param returns a path parameter unescaped. The router matches the escaped path, so it is always
// unescaped here, and only here.
func param(r *http.Request, name string) (string, error) {
	text, err := url.PathUnescape(chi.URLParam(r, name))
	if err != nil || !isText(text) {
		return "", outbox.Invalid(name, "%s in the URL is not valid UTF-8, or contains a NUL character", name)
	}
	return text, nil
}

// numberParam returns a path parameter that is a whole number from 1; says begins the sentence of
// the refusal.
func numberParam(r *http.Request, name, says string) (int64, error) {
	text, err := param(r, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, outbox.Invalid(name, "%s a whole number from 1, not %q", says, text)
	}
	return n, nil
}

func campaignParam(r *http.Request) (string, error) {
	id, err := param(r, "campaign")
	if err == nil && id == "" {
		return "", outbox.NotFound("there is no campaign without a name")
	}
	return id, err
}

// asked returns what a request is about, which its address names, and its query.
func asked[Q, K any](r *http.Request, about func(*http.Request) (K, error)) (on K, q Q, err error) {
	if on, err = about(r); err == nil {
		err = fill(&q, r.URL.Query())
	}
	return on, q, err
}

func seqParam(r *http.Request) (int64, error) { return numberParam(r, "seq", "seq must be") }

// rowParam returns rowParams as a key.
func rowParam(r *http.Request) (row outbox.RowKey, err error) {
	row.CampaignID, row.Seq, err = rowParams(r)
	return row, err
}

// rowParams returns the campaign and seq in an address.
func rowParams(r *http.Request) (string, int64, error) {
	campaign, err := campaignParam(r)
	if err != nil {
		return "", 0, err
	}
	seq, err := seqParam(r)
	return campaign, seq, err
}
