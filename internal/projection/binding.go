package projection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/outboxweb/outboxweb/internal/event"
)

// source is a part of an event that a binding names: a document, which has parts of its own, or a
// database argument.
type source struct {
	name     string
	argument func(*event.Event) any
	document func(*event.Event) json.RawMessage
}

// sources lists all sources in the order used by the error for an unknown one.
var sources = append(envelope(), []source{
	{name: "seq", argument: func(e *event.Event) any { return e.Seq }},
	{name: "position", argument: func(e *event.Event) any { return e.Position }},
	{name: "occurred_at", argument: func(e *event.Event) any { return e.OccurredAt.UnixMicro() }},
	{name: "occurred_at_text", argument: func(e *event.Event) any { return timeText(e.OccurredAt) }},
	{name: "recorded_at", argument: func(e *event.Event) any { return e.RecordedAt.UnixMicro() }},
	{name: "recorded_at_text", argument: func(e *event.Event) any { return timeText(e.RecordedAt) }},
	{name: "event_hash", argument: func(e *event.Event) any { return e.EventHash }},
	{name: "payload", document: func(e *event.Event) json.RawMessage { return e.Payload }},
	{name: "metadata", document: func(e *event.Event) json.RawMessage { return e.Metadata }},
	{name: "tags", document: func(e *event.Event) json.RawMessage { return e.Tags }},
}...)

func envelope() (sources []source) {
	for i, name := range event.EnvelopeNames() {
		sources = append(sources, source{name: name, argument: func(e *event.Event) any { return *e.Envelope()[i].Value }})
	}
	return sources
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// value is one argument of a statement: the part of an event that it binds.
type value struct {
	name     string // as written, without : and !
	from     *source
	path     string // within the JSON, in gjson's syntax; empty for the whole document
	required bool
	digits   bool // its place keeps the digits of a number that no float64 has
}

func parseBinding(written string) (value, error) {
	name, required := strings.CutSuffix(written[1:], "!")
	head, rest, nested := strings.Cut(name, ".")
	i := slices.IndexFunc(sources, func(s source) bool { return s.name == head })
	if i < 0 {
		var names []string
		for _, s := range sources {
			names = append(names, s.name)
		}
		return value{}, fmt.Errorf("unknown binding :%s; an event offers :%s", head, strings.Join(names, ", :"))
	}
	v := value{name: name, from: &sources[i], required: required}
	if nested && v.from.document == nil {
		return v, fmt.Errorf(":%s has no parts, so :%s does not exist; paths go into :payload, :metadata and :tags", head, name)
	}
	v.path = gjsonPath(rest)
	return v, nil
}

// gjsonPath turns a.b."c d" into gjson's path, with everything but names escaped, so that no part
// is interpreted as a query or modifier.
func gjsonPath(written string) string {
	var parts []string
	for written != "" {
		var part string
		if strings.HasPrefix(written, `"`) {
			part, written, _ = strings.Cut(written[1:], `"`)
			written = strings.TrimPrefix(written, ".")
		} else {
			part, written, _ = strings.Cut(written, ".")
		}
		parts = append(parts, gjson.Escape(part))
	}
	return strings.Join(parts, ".")
}

// of returns the event's value as a database argument: nil, string, int64 or float64. A value that
// cannot be one is returned as the event has it, with an error.
func (v *value) of(e *event.Event) (any, error) {
	if v.from.document != nil {
		return v.inside(v.from.document(e))
	}
	argument := v.from.argument(e)
	if argument == "" && v.required {
		return nil, v.missing("the event has none")
	}
	return argument, nil
}

// inside extracts the value from raw without decoding the rest.
func (v *value) inside(raw json.RawMessage) (any, error) {
	if v.path == "" {
		if len(raw) == 0 {
			return "{}", nil
		}
		return string(raw), nil
	}
	r := gjson.GetBytes(raw, v.path)
	switch r.Type {
	case gjson.String:
		return r.Str, nil
	case gjson.Number:
		n, known := boundNumber(r.Raw, v.digits)
		if !known {
			return r.Raw, &event.Refusal{Err: event.ErrUnboundValue, Field: v.name,
				Detail: v.name + " is a number outside of what a 64-bit float can be: it is beyond 1.8e308, or nearer to 0 than 5e-324"}
		}
		return n, nil
	case gjson.True:
		return int64(1), nil
	case gjson.False:
		return int64(0), nil
	case gjson.JSON:
		return r.Raw, nil
	}
	if v.required && !r.Exists() {
		return nil, v.missing("the event does not have it")
	}
	if v.required {
		return nil, v.missing("the event says null")
	}
	return nil, nil
}

// missing returns the refusal of an event that lacks a required value.
func (v *value) missing(how string) error {
	return &event.Refusal{Err: event.ErrUnboundValue, Field: v.name, Detail: v.name + " is required, and " + how}
}
