package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits on an event, in bytes.
const (
	MaxIDLength       = 200       // campaign_id, event_id, event_type and the other short envelope fields
	DefaultMaxPayload = 256 << 10 // payload, metadata and tags, each
)

// Event is one fact of the journal, and the JSON of appends and API answers. Appending one requires
// only campaign_id, event_type and payload; seq, if given, is checked but not assigned.
type Event struct {
	CampaignID    string    `json:"campaign_id" redact:"-"`
	Seq           int64     `json:"seq"`
	Position      int64     `json:"position"`
	EventID       string    `json:"event_id"`
	EventType     string    `json:"event_type" redact:"-"`
	OccurredAt    time.Time `json:"occurred_at"`
	RecordedAt    time.Time `json:"recorded_at"`
	ActorType     string    `json:"actor_type"`
	ActorID       string    `json:"actor_id"`
	EntityType    string    `json:"entity_type"`
	EntityID      string    `json:"entity_id"`
	SessionID     string    `json:"session_id"`
	RequestID     string    `json:"request_id"`
	CorrelationID string    `json:"correlation_id"`
	CausationID   string    `json:"causation_id"`
	// a JSON object, name to string. Values that look like secrets are "[redacted]" in answers of
	// the API, and nil is all of it where the server hides payloads (--hide-payloads)
	Tags json.RawMessage `json:"tags" api:"object,nullable"`
	// a JSON object. Values that look like secrets are "[redacted]" in answers
	// of the API, and nil is all of it where the server hides payloads
	// (--hide-payloads)
	Metadata json.RawMessage `json:"metadata" api:"object,nullable"`
	// a JSON object. Values that look like secrets are "[redacted]" in answers
	// of the API, and nil is all of it where the server hides payloads
	// (--hide-payloads)
	Payload   json.RawMessage `json:"payload" api:"object,nullable"`
	EventHash string          `json:"event_hash" redact:"-"` // of the stored content, including what is hidden here
	ChainHash string          `json:"chain_hash" redact:"-"`

	// the active skip of the event, which is not hashed; absent without one. An event with a skip
	// is never applied
	Skipped *Skip `json:"skipped,omitempty"`

	// the content does not match event_hash: the journal was changed. Absent if it matches, in
	// lists, and where a document is longer than 64 KiB, since it is not checked there
	Altered bool `json:"altered,omitzero"`

	// paths of hidden values, such as payload.password, or payload for all of it; empty if nothing
	// is hidden. Append refuses an event that has any. If nothing was checked it is nil and not
	// part of the JSON
	Redacted []string `json:"redacted,omitzero" api:"required"`
}

// EnvelopeText is a text of an event's envelope, by its JSON name.
type EnvelopeText struct {
	Name  string
	Value *string
}

// Envelope returns the texts of the event's envelope, in hashing order.
func (e *Event) Envelope() [11]EnvelopeText {
	return [...]EnvelopeText{
		{"campaign_id", &e.CampaignID}, {"event_id", &e.EventID}, {"event_type", &e.EventType},
		{"actor_type", &e.ActorType}, {"actor_id", &e.ActorID}, {"entity_type", &e.EntityType}, {"entity_id", &e.EntityID},
		{"session_id", &e.SessionID}, {"request_id", &e.RequestID}, {"correlation_id", &e.CorrelationID}, {"causation_id", &e.CausationID},
	}
}

// EnvelopeNames returns the names of the envelope's texts, in hashing order: the fields of the JSON
// and the columns of events and of a source's table.
func EnvelopeNames() (names []string) {
	for _, text := range new(Event).Envelope() {
		names = append(names, text.Name)
	}
	return names
}

// Intent says what an event type is for.
type Intent string

// The intents an event type may be registered with. An unregistered type has IntentProjection.
const (
	IntentProjection Intent = "projection" // applied to the projections
	IntentAuditOnly  Intent = "audit_only" // journalled only; the watermark advances over it, projections never see it
)

var emptyObject = json.RawMessage("{}")

// Normalize validates an event to append and converts it to the stored form: compact JSON,
// microsecond UTC times, empty objects for absent ones. maxPayload is in bytes and applies to
// payload, metadata and tags each. Errors are *Refusal with ErrInvalid or ErrTooLarge, and name the
// field.
func (e *Event) Normalize(maxPayload int) error {
	for _, f := range e.Envelope() {
		if err := checkText(f.Name, *f.Value); err != nil {
			return err
		}
	}
	if e.CampaignID == "" {
		return Invalid("campaign_id", "campaign_id is required")
	}
	if e.CampaignID == "." || e.CampaignID == ".." {
		return Invalid("campaign_id", "campaign_id must not be %q, which cannot be used in a URL", e.CampaignID)
	}
	if e.EventType == "" {
		return Invalid("event_type", "event_type is required")
	}
	if strings.ContainsAny(e.EventType, " *") {
		return Invalid("event_type", "event_type must not contain spaces or *")
	}
	if e.Seq < 0 {
		return Invalid("seq", "seq must be 1 or more; leave it out to have it assigned")
	}
	if len(e.Payload) == 0 {
		return Invalid("payload", "payload is required; use {} for an empty one")
	}
	if err := e.normalizeDocuments(maxPayload); err != nil {
		return err
	}
	if len(e.Redacted) > 0 {
		return Invalid("redacted", "this event contains redacted values (%s); append the original", strings.Join(e.Redacted, ", "))
	}
	e.Skipped, e.Altered, e.Redacted = nil, false, nil // writers cannot set these
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	return CheckYear(e.OccurredAt)
}

// CheckYear validates the time at which an event occurred: JSON has four digits for a year.
func CheckYear(occurred time.Time) error {
	if y := occurred.UTC().Year(); y < 1 || y > 9999 {
		return Invalid("occurred_at", "occurred_at must be between the years 1 and 9999, in UTC")
	}
	return nil
}

// NormalizeRow is Normalize for a row of a source: it must have an event_id, and may name the seq that
// its campaign is at, which is nil otherwise.
func (e *Event) NormalizeRow(expected *int64, maxPayload int) error {
	switch {
	case e.EventID == "":
		return Invalid("event_id", "event_id is required")
	case expected == nil:
	case *expected < 0 || *expected == math.MaxInt64:
		return Invalid("expected_seq", "expected_seq must be a whole number from 0, not %d", *expected)
	default:
		e.Seq = *expected + 1
	}
	return e.Normalize(maxPayload)
}

func (e *Event) normalizeDocuments(maxPayload int) error {
	for _, f := range []struct {
		name  string
		value *json.RawMessage
	}{{"payload", &e.Payload}, {"metadata", &e.Metadata}, {"tags", &e.Tags}} {
		compact, err := compactObject(f.name, *f.value, maxPayload)
		if err != nil {
			return err
		}
		*f.value = compact
	}
	if len(e.Tags) <= len("{}") {
		return nil
	}
	var tags map[string]string
	if err := json.Unmarshal(e.Tags, &tags); err != nil {
		return Invalid("tags", "tags must map names to strings")
	}
	return nil
}

func compactObject(name string, raw json.RawMessage, limit int) (json.RawMessage, error) {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	if len(trimmed) == 0 || (name != "payload" && string(trimmed) == "null") {
		return emptyObject, nil
	}
	if trimmed[0] != '{' {
		return nil, Invalid(name, "%s must be a JSON object", name)
	}
	if len(raw) > limit {
		return nil, &Refusal{Err: ErrTooLarge, Field: name,
			Detail: fmt.Sprintf("%s is %d bytes; the limit is %d", name, len(raw), limit)}
	}
	if !utf8.Valid(raw) {
		return nil, Invalid(name, "%s is not valid UTF-8", name)
	}
	if hasEscapedNUL(raw) {
		return nil, Invalid(name, "%s contains a NUL character (\\u0000), which databases cannot store in text", name)
	}
	var out bytes.Buffer
	out.Grow(len(raw))
	if err := json.Compact(&out, raw); err != nil {
		return nil, Invalid(name, "%s is not JSON: %v", name, err)
	}
	if hasHalfCharacter(out.Bytes()) {
		return nil, halfCharacter(name)
	}
	if out.Len() == len(raw) {
		return raw, nil // it is already compact
	}
	return out.Bytes(), nil
}

// ContentHash returns the SHA-256, in hex, of the writer's content: every field but seq, position,
// recorded_at and the hashes. Two events with the same hash are the same fact. The event must be
// normalized.
func (e *Event) ContentHash() string {
	var buf [1024]byte // large enough for most events, which then need no allocation
	b := buf[:0]
	for _, f := range e.Envelope() {
		b = binary.AppendUvarint(b, uint64(len(*f.Value)))
		b = append(b, *f.Value...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(e.OccurredAt.UnixMicro()))
	for _, raw := range [...]json.RawMessage{e.Tags, e.Metadata, e.Payload} {
		b = binary.AppendUvarint(b, uint64(len(raw)))
		b = append(b, raw...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// NextChainHash links an event into its campaign's chain: it returns the SHA-256, in hex, of the
// previous event's chain hash (empty before seq 1), the seq and the content hash.
func NextChainHash(previous string, seq int64, eventHash string) string {
	var buf [160]byte
	b := append(buf[:0], previous...)
	b = append(b, ':')
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, ':')
	b = append(b, eventHash...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// DifferingFields names the fields of the writer's content in which two normalized events differ,
// ignoring the order of JSON keys and comparing numbers as written. There are none if the events are
// the same fact.
func DifferingFields(a, b Event) (names []string) {
	others := b.Envelope()
	for i, f := range a.Envelope() {
		if *f.Value != *others[i].Value {
			names = append(names, f.Name)
		}
	}
	if !a.OccurredAt.Equal(b.OccurredAt) {
		names = append(names, "occurred_at")
	}
	for _, f := range []struct {
		name string
		a, b json.RawMessage
	}{{"payload", a.Payload, b.Payload}, {"metadata", a.Metadata, b.Metadata}, {"tags", a.Tags, b.Tags}} {
		if !bytes.Equal(f.a, f.b) && !bytes.Equal(sortKeys(f.a), sortKeys(f.b)) {
			names = append(names, f.name)
		}
	}
	return names
}

func sortKeys(raw json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return raw
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return sorted
}

// CutOff is the prefix of the error of an event that exceeded its deadline.
const CutOff = "the event took longer than "

// NotCalled begins the error of an event whose projection's function was not called.
const NotCalled = "not called: "

// Inspect verifies that consecutive events of a campaign are those that were appended: contents
// against their hashes, and each hash chained to the one before. It returns how many are sound, and
// why the next one is not. The content of a skipped event is not checked.
func Inspect(events []Event) (sound int, reason string) {
	for i := range events {
		e := &events[i]
		if e.Skipped == nil && e.ContentHash() != e.EventHash {
			return i, fmt.Sprintf("event %d has changed since it was appended: its content no longer matches its hash", e.Seq)
		}
		if i > 0 && e.Seq == events[i-1].Seq+1 {
			if why := e.WhyUnchained(events[i-1].ChainHash); why != "" {
				return i, why
			}
		}
	}
	return len(events), ""
}

// WhyUnchained says why the event does not continue its campaign's chain, whose last hash is
// before; empty if it does.
func (e *Event) WhyUnchained(before string) string {
	if NextChainHash(before, e.Seq, e.EventHash) == e.ChainHash {
		return ""
	}
	return fmt.Sprintf("event %d does not continue the chain of hashes of its campaign", e.Seq)
}

// EventRef identifies an event of the journal.
type EventRef struct {
	Position   int64  `json:"position"`
	CampaignID string `json:"campaign_id" redact:"-"`
	Seq        int64  `json:"seq"`
	EventType  string `json:"event_type" redact:"-"`
}

// Ref returns the event's identification.
func (e *Event) Ref() EventRef {
	return EventRef{Position: e.Position, CampaignID: e.CampaignID, Seq: e.Seq, EventType: e.EventType}
}
