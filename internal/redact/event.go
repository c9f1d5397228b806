package redact

import (
	"encoding/json"
	"reflect"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// ruleOf returns the hider of a type with a rule of its own, nil for other types: events, which
// list what is hidden in them, columns, which have a name, and
// fixtures.
func ruleOf(t reflect.Type) hider {
	switch t {
	case reflect.TypeFor[event.Event]():
		return rule(hideInEvent)
	case reflect.TypeFor[projection.Field]():
		return rule(func(r *Redactor, f *projection.Field) { f.Value = hideColumn(r, f.Name, f.Value) })
	case reflect.TypeFor[projection.FieldChange]():
		return rule(func(r *Redactor, f *projection.FieldChange) {
			f.Live, f.Expected = hideColumn(r, f.Name, f.Live), hideColumn(r, f.Name, f.Expected)
		})
	case reflect.TypeFor[projection.Fixture]():
		return rule(hideInFixture)
	case reflect.TypeFor[timetravel.ModelCell]():
		return rule(hideInCell)
	}
	return nil
}

func rule[T any](hide func(*Redactor, *T)) hider {
	return func(r *Redactor, value reflect.Value) { hide(r, value.Addr().Interface().(*T)) }
}

// hideInFixture hides secrets in a fixture, which says so.
func hideInFixture(r *Redactor, f *projection.Fixture) {
	f.Expected, f.Events = Shown(r, f.Expected), Shown(r, f.Events)
	f.Hide()
}

// hideInCell hides the values of a cell. Of a hidden one even its length is not told.
func hideInCell(r *Redactor, c *timetravel.ModelCell) {
	if !r.HidesPayloads() && !r.HidesName(c.Name) {
		c.Value, c.Before = hideColumn(r, c.Name, c.Value), hideColumn(r, c.Name, c.Before)
		return
	}
	c.Value, c.Long = event.HiddenJSON, false
	if c.Changed {
		c.Before = event.HiddenJSON
	}
}

// hideColumn hides the value of a row's column by its name. A missing value stays missing.
func hideColumn(r *Redactor, name string, value json.RawMessage) json.RawMessage {
	if value == nil {
		return nil
	}
	if r.HidesPayloads() || r.HidesName(name) {
		return event.HiddenJSON
	}
	hidden, _ := r.JSON(value)
	return hidden
}

// hideInEvent hides secrets in an event's documents and in the texts of its envelope, and lists
// the places in Redacted. With payloads hidden altogether, the documents are nil. Call it once
// per event: a second call would not find the hidden places for Redacted.
func hideInEvent(r *Redactor, e *event.Event) {
	e.Redacted = []string{}
	for _, text := range e.Envelope() {
		if text.Name == "campaign_id" || text.Name == "event_type" {
			continue // needed unredacted in links and filters
		}
		if hidden := r.Text(*text.Value); hidden != *text.Value {
			*text.Value = hidden
			e.Redacted = append(e.Redacted, text.Name)
		}
	}
	for _, d := range []struct {
		part  event.Part
		value *json.RawMessage
	}{{event.PartPayload, &e.Payload}, {event.PartMetadata, &e.Metadata}, {event.PartTags, &e.Tags}} {
		if r.HidesPayloads() {
			*d.value = nil
			e.Redacted = append(e.Redacted, string(d.part))
			continue
		}
		hidden, paths := r.JSON(*d.value)
		*d.value = hidden
		for _, path := range paths {
			e.Redacted = append(e.Redacted, string(d.part)+"."+path)
		}
	}
	e.Skipped = Shown(r, e.Skipped)
}
