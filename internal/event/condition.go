package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// AppendCondition makes an append conditional on the absence of events: it is refused if an event
// after a position matches any of the items. The check and the append are atomic.
type AppendCondition struct {
	// the position from GET /journal, read before the events that the append was decided by; 0 or
	// absent checks the whole journal, and a position beyond its end is refused
	AfterPosition int64           `json:"after_position" api:"min=0"`
	Items         []ConditionItem `json:"items" api:"required,min=1,max=MaxConditionItems"` // at least one, at most MaxConditionItems
}

// Limits on a condition.
const (
	MaxConditionItems = 100
	MaxConditionTypes = 100 // per item
	MaxConditionTags  = 50  // per item
)

// ConditionItem selects events that conflict with an append: those of any of the types that have
// all of the tags. One of the two may be omitted. Fields of the envelope count as tags of their
// names.
type ConditionItem struct {
	EventTypes []string          `json:"event_types,omitempty" api:"max=MaxConditionTypes"` // exact names: * is not a wildcard
	Tags       map[string]string `json:"tags,omitempty" api:"max=MaxConditionTags"`         // the fields of the envelope, such as campaign_id, count as tags of their names
}

// ParseCondition parses a condition from JSON and validates it. Errors are *Refusal with ErrInvalid
// whose Field begins with condition.
func ParseCondition(text []byte) (c AppendCondition, err error) {
	if !utf8.Valid(text) { // decoding would substitute the replacement character
		return c, Invalid("condition", "the condition is not valid UTF-8 (byte %d)", invalidByte(text))
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, explainCondition(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return c, Invalid("condition", "there is data after the condition")
	}
	if err := CheckKeys(text, c); err != nil {
		return c, Invalid("condition", "the condition cannot be read: %v", err)
	}
	if hasHalfCharacter(text) {
		return c, Invalid("condition", "the condition contains half a surrogate pair (a \\ud800 to \\udfff without its other half), which no event can have")
	}
	return c, c.Validate()
}

func explainCondition(err error) error {
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed) && typed.Field != "":
		return Invalid("condition."+typed.Field, "%s of the condition cannot be a %s", typed.Field, typed.Value)
	case errors.As(err, &typed):
		return Invalid("condition", "a condition is a JSON object, not a %s", typed.Value)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if name, found := strings.CutPrefix(text, "unknown field "); found {
		return Invalid("condition", "unknown field %s in the condition; it has after_position and items, and an item has event_types and tags", name)
	}
	return Invalid("condition", `the condition is not JSON: %s; it looks like {"after_position": 700, "items": [{"event_types": ["seat.taken"], "tags": {"seat": "7"}}]}`, text)
}

// Validate validates a condition. Errors are *Refusal with ErrInvalid whose Field begins with
// condition.
func (c *AppendCondition) Validate() error {
	switch {
	case c.AfterPosition < 0:
		return Invalid("condition.after_position", "after_position must be 0 or more: the last position read before deciding to append")
	case len(c.Items) == 0:
		return Invalid("condition.items", "a condition needs at least one item; omit the condition to append unconditionally")
	case len(c.Items) > MaxConditionItems:
		return Invalid("condition.items", "a condition has at most %d items, and this one has %d", MaxConditionItems, len(c.Items))
	}
	for i := range c.Items {
		if err := c.Items[i].validate(fmt.Sprintf("condition.items[%d]", i), fmt.Sprintf("item %d of the condition", i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (i *ConditionItem) validate(field, name string) error {
	switch {
	case len(i.EventTypes)+len(i.Tags) == 0:
		return Invalid(field, "%s matches nothing: give it event_types, tags or both", name)
	case len(i.EventTypes) > MaxConditionTypes:
		return Invalid(field+".event_types", "%s has %d event types; the limit is %d", name, len(i.EventTypes), MaxConditionTypes)
	case len(i.Tags) > MaxConditionTags:
		return Invalid(field+".tags", "%s has %d tags; the limit is %d", name, len(i.Tags), MaxConditionTags)
	}
	for _, eventType := range i.EventTypes {
		if eventType == "" || strings.ContainsAny(eventType, " *") {
			return Invalid(field+".event_types", "%s has the event type %q; a condition takes exact event types, without spaces or *", name, eventType)
		}
		if CheckStored("event_type", eventType) != nil {
			return Invalid(field+".event_types", "%s has the event type %q, which no event can have", name, eventType)
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(i.Tags)) {
		value := i.Tags[tag]
		if EnvelopeTag(tag) && (value == "" || CheckStored(tag, value) != nil) {
			return Invalid(field+".tags", "%s requires the tag %s to be %q, which that field can never be", name, tag, value)
		}
		if text := tag + value; !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return Invalid(field+".tags", "%s has a tag %q with characters that no tag can have", name, tag)
		}
	}
	return nil
}

// Types returns the event types of which a selected event must have one; none means any.
func (i *ConditionItem) Types() []string {
	if one, given := i.Tags["event_type"]; given {
		return []string{one}
	}
	return i.EventTypes
}

// Matches reports whether the item selects e.
func (i *ConditionItem) Matches(e *Event) bool {
	if len(i.EventTypes) > 0 && !slices.Contains(i.EventTypes, e.EventType) {
		return false
	}
	tags := TagReader{Event: e}
	for name, want := range i.Tags {
		if value, ok := tags.Value(name); !ok || value != want {
			return false
		}
	}
	return true
}

// EnvelopeTag reports whether a tag name denotes a field of the envelope.
func EnvelopeTag(name string) bool {
	_, is := (&Event{}).envelopeText(name)
	return is
}

// envelopeText returns the text of the envelope that a name denotes.
func (e *Event) envelopeText(name string) (value string, is bool) {
	for _, f := range e.Envelope() {
		if f.Name == name {
			return *f.Value, true
		}
	}
	return "", false
}

// TagReader reads tags of one event, decoding them at most once.
type TagReader struct {
	Event   *Event
	decoded map[string]string
}

func (r *TagReader) Value(name string) (string, bool) {
	if value, is := r.Event.envelopeText(name); is {
		return value, value != ""
	}
	if len(r.Event.Tags) <= len("{}") {
		return "", false
	}
	if r.decoded == nil {
		if json.Unmarshal(r.Event.Tags, &r.decoded) != nil {
			r.decoded = map[string]string{}
		}
	}
	value, ok := r.decoded[name]
	return value, ok
}
