package projection

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"outboxweb/internal/outbox"
)

// source is where a binding's value comes from.
type source uint8

const (
	fromCampaignID source = iota
	fromSeq
	fromPosition
	fromEventID
	fromEventType
	fromOccurredAt
	fromOccurredAtText
	fromRecordedAt
	fromRecordedAtText
	fromActorType
	fromActorID
	fromEntityType
	fromEntityID
	fromSessionID
	fromRequestID
	fromCorrelationID
	fromCausationID
	fromEventHash
	fromPayload
	fromMetadata
	fromTags
)

// bindingNames lists every binding in the order the error for an unknown one
// names them.
var bindingNames = []string{
	fromCampaignID: "campaign_id", fromSeq: "seq", fromPosition: "position",
	fromEventID: "event_id", fromEventType: "event_type",
	fromOccurredAt: "occurred_at", fromOccurredAtText: "occurred_at_text",
	fromRecordedAt: "recorded_at", fromRecordedAtText: "recorded_at_text",
	fromActorType: "actor_type", fromActorID: "actor_id",
	fromEntityType: "entity_type", fromEntityID: "entity_id",
	fromSessionID: "session_id", fromRequestID: "request_id",
	fromCorrelationID: "correlation_id", fromCausationID: "causation_id",
	fromEventHash: "event_hash",
	fromPayload:   "payload", fromMetadata: "metadata", fromTags: "tags",
}

// value is one argument of a statement: which part of an event it binds.
type value struct {
	name     string // as written, without : and !
	from     source
	path     string // within the JSON, in gjson's syntax; empty for the whole
	required bool
}

// parseBinding reads the text of a binding token.
func parseBinding(written string) (value, error) {
	name, required := strings.CutSuffix(written[1:], "!")
	head, rest, nested := strings.Cut(name, ".")
	v := value{name: name, required: required}
	known := false
	for i, n := range bindingNames {
		if n == head {
			v.from, known = source(i), true
		}
	}
	if !known {
		return v, fmt.Errorf("unknown binding :%s; an event offers :%s", head, strings.Join(bindingNames, ", :"))
	}
	if nested && v.from < fromPayload {
		return v, fmt.Errorf(":%s has no parts, so :%s does not exist; paths go into :payload, :metadata and :tags", head, name)
	}
	v.path = gjsonPath(rest)
	return v, nil
}

// gjsonPath turns a.b."c d" into gjson's path, in which everything but names
// is escaped, so that no part is taken for a query or modifier.
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

// of is the value the event has for it, as a database argument: nil, string,
// int64 or float64.
func (v *value) of(e *outbox.Event) (any, error) {
	switch v.from {
	case fromPayload:
		return v.inside(e.Payload)
	case fromMetadata:
		return v.inside(e.Metadata)
	case fromTags:
		return v.inside(e.Tags)
	case fromSeq:
		return e.Seq, nil
	case fromPosition:
		return e.Position, nil
	case fromOccurredAt:
		return e.OccurredAt.UnixMicro(), nil
	case fromRecordedAt:
		return e.RecordedAt.UnixMicro(), nil
	}
	s := v.envelopeText(e)
	if s == "" && v.required {
		return nil, v.missing("the event has none")
	}
	return s, nil
}

func (v *value) envelopeText(e *outbox.Event) string {
	switch v.from {
	case fromCampaignID:
		return e.CampaignID
	case fromEventID:
		return e.EventID
	case fromEventType:
		return e.EventType
	case fromOccurredAtText:
		return e.OccurredAt.UTC().Format(time.RFC3339Nano)
	case fromRecordedAtText:
		return e.RecordedAt.UTC().Format(time.RFC3339Nano)
	case fromActorType:
		return e.ActorType
	case fromActorID:
		return e.ActorID
	case fromEntityType:
		return e.EntityType
	case fromEntityID:
		return e.EntityID
	case fromSessionID:
		return e.SessionID
	case fromRequestID:
		return e.RequestID
	case fromCorrelationID:
		return e.CorrelationID
	case fromCausationID:
		return e.CausationID
	case fromEventHash:
		return e.EventHash
	}
	return ""
}

// inside picks the value out of raw without decoding the rest of it.
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
		return boundNumber(r.Raw), nil
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

// missing refuses an event without a value that the statement requires.
func (v *value) missing(how string) error {
	return &outbox.Refusal{Err: outbox.ErrMissingValue, Field: v.name, Detail: v.name + " is required, and " + how}
}

// boundNumber is numberArg in which a whole number is an integer however it is
// written, such as 1e3 or 2.0, so that it reads the same in a column of text on
// every database.
func boundNumber(raw string) any {
	n := numberArg(raw)
	if f, ok := n.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return int64(f)
	}
	return n
}

// numberArg keeps a JSON number exact where the database can: integers that
// fit are int64, larger ones their own text, everything else is a float64.
func numberArg(raw string) any {
	if strings.IndexFunc(raw, func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) < 0 {
		if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
			return n
		}
		return raw
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return raw
	}
	return f
}
