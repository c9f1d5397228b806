// Package appendbody parses the body of an append: one event or a batch, in memory for the valid events
// alone.
package appendbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/internal/store"
)

// DefaultMaxEvents is the maximum number of events in one append unless Config sets another.
const DefaultMaxEvents = 10_000

// TagsPerEvent bounds the tags of an append: in all, this many times its maximum number of events.
// Each tag is an index row and costs about as much as an event.
const TagsPerEvent = 2

// maxCondition is how long a condition may be at least, in bytes.
const maxCondition = 4 << 20

// The bodies that Parse reads, as described to clients.

// NewEvent is an event to append. Its ids, types and other texts outside of payload, metadata
// and tags have at most 200 bytes each, without characters that cannot be seen: controls, formats,
// private use, and the separators of lines and paragraphs (Unicode's Cc, Cf, Co, Zl and Zp). The
// joiners U+200C and U+200D may stand between characters beyond ASCII. The names of fields are
// written as here, each at most once.
type NewEvent struct {
	CampaignID    string          `json:"campaign_id"` // optional; must be the campaign of the address
	EventType     string          `json:"event_type" validate:"required"`
	Payload       json.RawMessage `json:"payload" validate:"required" api:"object"`
	Seq           int64           `json:"seq"`      // checked but not assigned
	Position      int64           `json:"position"` // ignored
	EventID       string          `json:"event_id"` // the writer's idempotency key, unique in the campaign
	OccurredAt    time.Time       `json:"occurred_at"`
	RecordedAt    time.Time       `json:"recorded_at"` // ignored
	ActorType     string          `json:"actor_type"`
	ActorID       string          `json:"actor_id"`
	EntityType    string          `json:"entity_type"`
	EntityID      string          `json:"entity_id"`
	SessionID     string          `json:"session_id"`
	RequestID     string          `json:"request_id"`
	CorrelationID string          `json:"correlation_id"`
	CausationID   string          `json:"causation_id"`
	Tags          json.RawMessage `json:"tags" api:"object"`
	Metadata      json.RawMessage `json:"metadata" api:"object"`
	EventHash     string          `json:"event_hash"` // ignored
	ChainHash     string          `json:"chain_hash"` // ignored
}

// Batch is several events to append, all or nothing.
type Batch struct {
	Events      []NewEvent             `json:"events" validate:"required"` // at most 10,000, or the value of --max-events-per-append
	ExpectedSeq *int64                 `json:"expected_seq"`               // the campaign's last seq before the append; any other is answered with 409
	Condition   *event.AppendCondition `json:"condition"`
}

// Parse parses an append's body: one event, or a batch if it has a field "events". Each event is
// parsed like a line of the append command, belongs to the campaign of the address, and is validated
// before the next one is read; its payload has at most maxPayload bytes. The events do not reference
// body.
func Parse(campaign string, body []byte, maxPayload, maxEvents int) (request store.Append, batch bool, err error) {
	p := &bodyParser{campaign: campaign, maxPayload: maxPayload, maxEvents: maxEvents, body: bytes.Trim(body, jsonSpace)}
	p.restart()
	if p.seekEvents() {
		p.restart()
		err = p.batch()
		return p.request, true, err
	}
	if size := len(p.body); size > p.maxEvent() {
		return request, false, p.longEvent(fmt.Sprintf("%d bytes long", size))
	}
	err = p.event(p.body)
	return p.request, false, err
}

const jsonSpace = " \t\r\n"

// bodyParser parses the body of an append step by step, so that it holds no more than the events
// found valid so far.
type bodyParser struct {
	campaign   string
	maxPayload int
	maxEvents  int

	body  []byte
	read  int // bytes the decoder has read
	until int // bytes it may read
	dec   *json.Decoder
	raw   json.RawMessage // the last decoded value
	given map[string]bool // fields seen in the batch
	tags  int

	request store.Append
}

var errLongValue = errors.New("the value does not end within its limit")

func (p *bodyParser) restart() {
	p.read, p.dec = 0, json.NewDecoder(p)
	p.allow(p.maxBeside())
}

// allow lets the decoder read up to so many bytes beyond those consumed: a longer value is
// errLongValue and is not held in memory.
func (p *bodyParser) allow(bytes int) { p.until = min(int(p.dec.InputOffset())+bytes, len(p.body)) }

// Read implements io.Reader for the decoder.
func (p *bodyParser) Read(into []byte) (int, error) {
	switch {
	case p.read == len(p.body):
		return 0, io.EOF
	case p.read >= p.until:
		return 0, errLongValue
	}
	n := copy(into, p.body[p.read:p.until])
	p.read += n
	return n, nil
}

// maxEvent is the maximum length of an event, in bytes of JSON: its three documents and an
// envelope.
func (p *bodyParser) maxEvent() int { return 3*p.maxPayload + 64<<10 }

// maxBeside is the maximum length of a batch's fields beside its events, in bytes.
func (p *bodyParser) maxBeside() int { return max(p.maxEvent(), maxCondition) }

// seekEvents reports whether the body is an object with a field "events" within its first maxBeside
// bytes.
func (p *bodyParser) seekEvents() bool {
	if start, err := p.dec.Token(); err != nil || start != json.Delim('{') {
		return false
	}
	for p.dec.More() {
		key, err := p.dec.Token()
		if err != nil || key == "events" {
			return err == nil
		}
		if err := p.dec.Decode(&p.raw); err != nil {
			return false
		}
	}
	return false
}

func (p *bodyParser) batch() error {
	p.given = map[string]bool{}
	if _, err := p.dec.Token(); err != nil {
		return p.explain(err)
	}
	for p.more(p.maxBeside()) {
		key, err := p.dec.Token()
		if err != nil {
			return p.explain(err)
		}
		if err := p.field(key.(string)); err != nil {
			return err
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return p.explain(err)
	}
	if rest := p.body[p.dec.InputOffset():]; len(rest) > 0 {
		return event.Invalid("", "there is data after the JSON object")
	}
	return nil
}

// more reports whether a value follows before the object or array ends, and allows the decoder up
// to limit bytes for it.
func (p *bodyParser) more(limit int) bool {
	p.allow(limit)
	return p.dec.More()
}

func (p *bodyParser) field(name string) error {
	if p.given[name] {
		return event.Invalid(name, "%s is given twice", name)
	}
	p.given[name] = true
	p.allow(p.maxBeside())
	switch name {
	case "events":
		return p.events()
	case "expected_seq":
		return p.expectedSeq()
	case "condition":
		return p.condition()
	}
	return event.Invalid(name, "unknown field %q; allowed are events, expected_seq and condition", name)
}

func (p *bodyParser) expectedSeq() error {
	var seq *int64
	if err := p.dec.Decode(&seq); err != nil {
		if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return event.Invalid("expected_seq", "expected_seq cannot be a %s", typed.Value)
		}
		return p.explain(err)
	}
	if seq != nil && *seq < 0 {
		return event.Invalid("expected_seq", "expected_seq must be 0 or more: the campaign's last seq before the append")
	}
	p.request.ExpectedSeq = seq
	return nil
}

func (p *bodyParser) condition() error {
	if err := p.dec.Decode(&p.raw); err != nil {
		return p.explain(err)
	}
	if string(p.raw) == "null" {
		return nil
	}
	condition, err := event.ParseCondition(p.raw)
	p.request.Condition = &condition
	return err
}

// events parses the events of a batch, up to the first that is refused.
func (p *bodyParser) events() error {
	start, err := p.dec.Token()
	switch {
	case err != nil:
		return p.explain(err)
	case start == nil:
		return nil // null counts as absent
	case start != json.Delim('['):
		return event.Invalid("events", "events must be a JSON array")
	}
	for p.more(p.maxEvent()) {
		if len(p.request.Events) == p.maxEvents {
			return tooMany("events", p.maxEvents)
		}
		err := p.dec.Decode(&p.raw)
		switch {
		case errors.Is(err, errLongValue):
			err = p.longEvent("longer")
		case err != nil:
			return p.explain(err)
		default:
			err = p.event(p.raw)
		}
		if err != nil {
			return InBatch(event.AtIndex(err, len(p.request.Events)))
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return p.explain(err)
	}
	return nil
}

func (p *bodyParser) event(raw []byte) error {
	event, err := parseEvent(p.campaign, raw)
	if err != nil {
		return err
	}
	if err := event.Normalize(p.maxPayload); err != nil {
		return err
	}
	if p.tags += bytes.Count(event.Tags, []byte(`":"`)); p.tags > TagsPerEvent*p.maxEvents {
		return tooMany("tags", TagsPerEvent*p.maxEvents)
	}
	p.request.Events = append(p.request.Events, event)
	return nil
}

func tooMany(what string, most int) error {
	return &event.Refusal{Err: event.ErrTooLarge, Field: "events",
		Detail: fmt.Sprintf("an append has at most %s %s; nothing was appended: send the events in several appends", event.Number(int64(most)), what)}
}

// longEvent refuses an event because of its length.
func (p *bodyParser) longEvent(is string) error {
	return &event.Refusal{Err: event.ErrTooLarge,
		Detail: fmt.Sprintf("the event is %s; the limit is %d bytes, and %d for its payload", is, p.maxEvent(), p.maxPayload)}
}

// explain returns the refusal of a body that could not be parsed further.
func (p *bodyParser) explain(err error) error {
	if errors.Is(err, errLongValue) {
		return &event.Refusal{Err: event.ErrTooLarge, Detail: fmt.Sprintf("the body has more than %d bytes beside its events", p.maxBeside())}
	}
	return request.NotJSON(err)
}

func parseEvent(campaign string, raw []byte) (event.Event, error) {
	e, err := event.ParseEvent(raw)
	if err != nil {
		return e, err
	}
	if e.CampaignID == "" {
		e.CampaignID = campaign
	}
	if e.CampaignID != campaign {
		return e, event.Invalid("campaign_id", "campaign_id is %q, but the URL says %q; omit it, or make them agree", e.CampaignID, campaign)
	}
	return e, nil
}

// InBatch adds to a refusal which event of the batch it is about.
func InBatch(err error) error {
	var refusal *event.Refusal
	if !errors.As(err, &refusal) || refusal.Field == "events" || refusal.Field == "expected_seq" || refusal.Field == "Idempotency-Key" || aboutCondition(refusal) {
		return err
	}
	named := *refusal
	named.Detail = fmt.Sprintf("event %d of the batch: %s", refusal.Index+1, refusal.Detail)
	named.Field = fmt.Sprintf("events[%d]", refusal.Index)
	if refusal.Field != "" {
		named.Field += "." + refusal.Field
	}
	return &named
}

// aboutCondition reports whether a refusal concerns the whole append: its condition does not hold,
// or cannot be evaluated.
func aboutCondition(r *event.Refusal) bool {
	return r.BlockingEvent != nil || strings.HasPrefix(r.Field, "condition")
}
