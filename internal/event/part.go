package event

import "encoding/json"

// Hidden replaces values that are not shown.
const Hidden = "[redacted]"

// HiddenJSON is Hidden as a JSON value; callers must not change it.
var HiddenJSON = json.RawMessage(`"` + Hidden + `"`)

// Part names one of the three JSON documents that an event carries.
type Part string

// The parts.
const (
	PartPayload  Part = "payload"
	PartTags     Part = "tags"
	PartMetadata Part = "metadata"
)

// Document returns one of the event's JSON documents.
func (e Event) Document(p Part) json.RawMessage {
	switch p {
	case PartTags:
		return e.Tags
	case PartMetadata:
		return e.Metadata
	default:
		return e.Payload
	}
}

// Sizes are the lengths of an event's documents, in bytes.
type Sizes struct{ Payload, Tags, Metadata int64 }

// Of returns the length of one document, in bytes.
func (s Sizes) Of(p Part) int64 {
	switch p {
	case PartTags:
		return s.Tags
	case PartMetadata:
		return s.Metadata
	default:
		return s.Payload
	}
}
