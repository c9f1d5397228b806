package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ParseEvent parses one event in append's format. Unknown fields, one that is given twice or in
// other letters, text that is not UTF-8 and anything after the object are errors that name the fault;
// Normalize then validates the values.
func ParseEvent(line []byte) (Event, error) {
	var e Event
	switch {
	case !utf8.Valid(line):
		return e, Invalid("", "the text is not valid UTF-8 (byte %d)", invalidByte(line))
	case !json.Valid(line):
		return e, explainEvent(line)
	}
	object := bytes.TrimLeft(line, " \t\r\n")
	if object[0] != '{' {
		return e, Invalid("", "an event is a JSON object, not a %s", kindOf(object))
	}
	into, given := reflect.ValueOf(&e).Elem(), map[string]bool{}
	return e, members(object, func(name string, value []byte) error {
		field, known := fieldsOf(into.Type())[name]
		switch {
		case !known:
			return Invalid(name, "unknown field %q; an event has campaign_id, event_type, payload and the other envelope fields", name)
		case given[name]:
			return givenTwice(name)
		}
		given[name] = true
		return decodeMember(name, value, into.FieldByIndex(field.Index).Addr().Interface())
	})
}

// decodeMember decodes the value of an event's field, of which it keeps nothing.
func decodeMember(name string, value []byte, into any) error {
	document, is := into.(*json.RawMessage)
	switch {
	case is:
		*document = bytes.Clone(value)
		return nil
	case string(value) == "null":
		return nil
	case hasHalfCharacter(value):
		return halfCharacter(name)
	}
	if at, is := into.(*time.Time); is {
		var known bool
		if *at, known = ParseTime(unquote(value)); !known {
			return Invalid(name, "a time must be RFC 3339, such as 2026-11-21T07:10:03.12Z")
		}
		return nil
	}
	if text, is := into.(*string); is && value[0] == '"' {
		*text = unquote(value)
		return nil
	}
	var typed *json.UnmarshalTypeError
	if err := json.Unmarshal(value, into); errors.As(err, &typed) {
		return Invalid(name, "%s cannot be a %s", name, typed.Value)
	} else if err != nil {
		return Invalid(name, "%s cannot be read: %v", name, err)
	}
	return nil
}

// explainEvent says why a text is not one JSON value.
func explainEvent(line []byte) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	var first json.RawMessage
	err := dec.Decode(&first)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return Invalid("", "there is data after the JSON object; write one event per line")
	case errors.As(err, &syntax):
		return Invalid("", "not JSON at byte %d: %s", syntax.Offset, strings.TrimPrefix(syntax.Error(), "json: "))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Invalid("", "the JSON ends too early")
	}
	return Invalid("", "not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// CheckKeys refuses a key that is given twice or in other letters than the field it was decoded into
// has, both of which encoding/json takes. The text must have been decoded into a value like that.
func CheckKeys(text []byte, like any) error {
	return checkKeys(bytes.TrimLeft(text, " \t\r\n"), reflect.TypeOf(like))
}

func checkKeys(value []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil
	case value[0] == '[' && t.Kind() == reflect.Slice:
		return members(value, func(_ string, item []byte) error { return checkKeys(item, t.Elem()) })
	case value[0] != '{' || t.Kind() != reflect.Struct && t.Kind() != reflect.Map:
		return nil
	}
	given := map[string]bool{}
	return members(value, func(name string, value []byte) error {
		field := reflect.StructField{}
		if t.Kind() == reflect.Map {
			field.Type = t.Elem()
		} else if field = fieldsOf(t)[name]; field.Type == nil {
			return Invalid(name, "unknown field %q; the names of fields are written in small letters", name)
		}
		if given[name] {
			return givenTwice(name)
		}
		given[name] = true
		return checkKeys(value, field.Type)
	})
}

func givenTwice(name string) error { return Invalid(name, "%s is given twice", name) }

var fieldsByType sync.Map // reflect.Type to map[string]reflect.StructField

func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if known, ok := fieldsByType.Load(t); ok {
		return known.(map[string]reflect.StructField)
	}
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}

// members calls each with the members of a valid JSON object, or the items of an array, which have no
// name. It ends at the first error.
func members(text []byte, each func(name string, value []byte) error) error {
	named := text[0] == '{'
	for at := skipBetween(text, 1); text[at] != '}' && text[at] != ']'; at = skipBetween(text, at) {
		name := ""
		if named {
			end := valueEnd(text, at)
			name = unquote(text[at:end])
			at = skipBetween(text, end)
		}
		end := valueEnd(text, at)
		if err := each(name, text[at:end]); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// skipBetween returns where the next name, value or end begins.
func skipBetween(text []byte, at int) int {
	for strings.IndexByte(" \t\r\n,:", text[at]) >= 0 {
		at++
	}
	return at
}

// valueEnd returns the end of the value that begins at a byte of valid JSON.
func valueEnd(text []byte, at int) int {
	for depth := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			for at++; text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // of a number or a word
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
	}
	return at
}

// unquote decodes a JSON string; empty for any other value.
func unquote(value []byte) (text string) {
	if value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	_ = json.Unmarshal(value, &text)
	return text
}

// kindOf names the kind of a JSON value that is no object.
func kindOf(value []byte) string {
	var typed *json.UnmarshalTypeError
	if errors.As(json.Unmarshal(value, &struct{}{}), &typed) {
		return typed.Value
	}
	return string(value)
}

func invalidByte(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i + 1
		}
		i += size
	}
	return 0
}
