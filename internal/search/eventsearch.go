package search

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// EventFilter selects events of the whole journal for a page. Zero fields select all.
type EventFilter struct {
	EventID    string `json:"event_id" validate:"id" column:"event_id" label:"Event id" hint:"exact id" placeholder:"ID" help:"Events with this event id."`
	CampaignID string `json:"campaign" validate:"id" column:"campaign_id" label:"Campaign" hint:"exact id" name:"campaign" placeholder:"C" help:"Events of this campaign."`
	EventType  string `json:"event_type" validate:"id" column:"event_type" label:"Event type" hint:"exact type" placeholder:"T" help:"Events of this type."`
	EntityType string `json:"entity_type" validate:"id" column:"entity_type" label:"Entity type" hint:"exact type" placeholder:"T" help:"Events of entities of this type."`
	EntityID   string `json:"entity_id" validate:"id" column:"entity_id" label:"Entity id" hint:"exact id" placeholder:"ID" help:"Events of the entity with this id."`
	ActorType  string `json:"actor_type" validate:"id" column:"actor_type" label:"Actor type" hint:"exact type" kong:"-"`
	ActorID    string `json:"actor_id" validate:"id" column:"actor_id" label:"Actor id" hint:"exact id" placeholder:"ID" help:"Events of the actor with this id."`
	RequestID  string `json:"request_id" validate:"id" column:"request_id" label:"Request id" hint:"exact id" placeholder:"ID" help:"Events of this request."`
	SessionID  string `json:"session_id" validate:"id" column:"session_id" label:"Session id" hint:"exact id" placeholder:"ID" help:"Events of this session."`
	Tag        string `json:"tag" validate:"text,maxbytes=500" label:"Tag" hint:"name=value" placeholder:"NAME=VALUE" help:"Events with this tag."` // name=value
	// TOPIC/PUBLISHER: events that it has delivered, or that an operator made it pass over
	Publisher string `json:"publisher" validate:"id" label:"Delivered by" hint:"topic/publisher" placeholder:"TOPIC/PUBLISHER" help:"Events that this publisher has delivered, or that an operator made it pass over."`
	// part of the payload, the metadata, the tags or an id; upper and lower case differ
	Q string `json:"q" validate:"id" label:"Text" hint:"part of payload, tags or an id; case matters" placeholder:"TEXT" help:"Events with this text in the payload, the metadata, the tags or an id; upper and lower case differ."`
	// events recorded at or after this: RFC 3339, a date (UTC), or relative: -2h, or 14:00, the last one that
	// is past
	Since time.Time `json:"since" validate:"text,maxbytes=100" label:"Since (UTC)" hint:"14:00, -2h or a date" kong:"-"`
	// events recorded before this: RFC 3339; relative, where 14:10 is the first one from since; or a
	// date (UTC), which is included
	Until time.Time `json:"until" validate:"text,maxbytes=100" label:"Until (UTC)" hint:"14:10 or a date" kong:"-"`
	// what since and until are compared with: when events were recorded, which the journal's order finds,
	// or when they occurred, which is looked for in the events one by one and may be long before
	Time string `json:"time" validate:"omitempty,oneof=recorded occurred" label:"Time searched" api:"default=recorded" enum:"recorded,occurred" default:"recorded" placeholder:"WHICH" help:"Compare --since and --until with when events were recorded, or occurred, which may be long before."`
	// also answer with the position for a conditional append; with the first page, and without q,
	// publisher, since and until
	Settled bool          `json:"settled" help:"Also print the position for a conditional append that depends on these events. Not with --q, --publisher, --since and --until; --limit must be enough for all of them."`
	Reverse bool          `json:"reverse" api:"default=false" kong:"-"` // reverse the order
	Cursor  string        `json:"cursor" validate:"cursor" kong:"-"`    // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int           `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
	Shown   EventRedactor `json:"-" validate:"-" kong:"-"` // nil shows events as they are stored
	Within  time.Duration `json:"-" validate:"-" kong:"-"` // how long a page may look; 0 means 0.4 seconds, and 0.1 with a publisher
	by      subscription.Publisher
}

// EventRedactor converts stored events to what readers are shown. Filters match that form only: a
// reader must not be able to guess a hidden value, whole or piece by piece. It is safe for
// concurrent use.
type EventRedactor interface {
	event.Wording
	JSON(stored json.RawMessage) (shown json.RawMessage, hidden []string)
	HidesPayloads() bool
}

// ClockTolerance is how far the clocks of appending processes may differ without an event being
// missed by a search in a range of time.
const ClockTolerance = 10 * time.Minute

// EventHit is an event that a search found, without its documents.
type EventHit struct {
	Position   int64  `json:"position"`
	CampaignID string `json:"campaign_id" redact:"-"`
	Seq        int64  `json:"seq"`
	EventStanding
	EventID       string          `json:"event_id"`
	EventType     string          `json:"event_type" redact:"-"`
	OccurredAt    time.Time       `json:"occurred_at"`
	RecordedAt    time.Time       `json:"recorded_at"`
	ActorType     string          `json:"actor_type"`
	ActorID       string          `json:"actor_id"`
	EntityType    string          `json:"entity_type"`
	EntityID      string          `json:"entity_id"`
	SessionID     string          `json:"session_id"`
	RequestID     string          `json:"request_id"`
	CorrelationID string          `json:"correlation_id"`
	CausationID   string          `json:"causation_id"`
	Tags          json.RawMessage `json:"tags" api:"object,nullable"` // nil where the server hides payloads (--hide-payloads)
	Excerpt       string          `json:"excerpt" redact:"-"`         // the beginning of the payload, or the part around the text that was searched for; redacted
}

// EventStanding is how far an event got.
type EventStanding struct {
	State string `json:"state" redact:"-" api:"enum=applied skipped waiting failed dead"`
	// Behind is the failed or dead event that a waiting one is behind; 0 if there is none.
	Behind int64 `json:"waits_behind"`
	// Held are the projections that lack an applied event; absent while the projections database
	// cannot be read.
	Held []campaign.Cursor `json:"held_projections,omitzero"`
}

// The states of an event. Those of a failed or dead one are the row's.
const (
	EventApplied = "applied"
	EventSkipped = "skipped"
	EventWaiting = "waiting"
)

// StandingOf returns how far the event of a campaign got whose row has a status; empty for no row.
func StandingOf(seq int64, row event.Status, skipped bool, c campaign.Campaign) EventStanding {
	switch {
	case row.Stuck():
		return EventStanding{State: string(row)}
	case skipped:
		return EventStanding{State: EventSkipped}
	case seq <= c.AppliedSeq:
		return EventStanding{State: EventApplied}
	case c.HeadStatus.Stuck() && c.HeadSeq < seq:
		return EventStanding{State: EventWaiting, Behind: c.HeadSeq}
	}
	return EventStanding{State: EventWaiting}
}

// AppliedInPart is the state, in words, of an applied event that some projections lack.
const AppliedInPart = "applied in part"

// StateText is the state in words.
func (s EventStanding) StateText() string {
	switch {
	case s.Behind > 0:
		return fmt.Sprintf("%s behind event %d", s.State, s.Behind)
	case len(s.Held) > 0:
		return AppliedInPart
	}
	return s.State
}

// EventsLooked says which part of the journal a page of a search covers.
type EventsLooked struct {
	Exact bool      `json:"exact"`                     // an index finds the events; otherwise all events are looked through, up to a limit for each page
	By    string    `json:"by"`                        // position, or seq when one campaign is searched
	First int64     `json:"first"`                     // where this page began to look
	Last  int64     `json:"last"`                      // where it ended
	Back  time.Time `json:"last_recorded_at,omitzero"` // the time of the last event looked at; absent when there was none
}

// FoundEvents is one page of a search of events.
type FoundEvents struct {
	event.Page[EventHit]
	Looked EventsLooked `json:"looked"`
	// with settled: all events that match up to here are on this page and those that follow it, and no
	// other one will appear; the after_position of a conditional append
	Position *int64 `json:"position"`
}

// CheckSettled refuses a search whose result says nothing about which events there are, where it is
// asked for the settled position.
func (f EventFilter) CheckSettled() error {
	switch {
	case !f.Settled:
		return nil
	case f.Cursor != "":
		return event.Invalid("settled", "the settled position comes with the first page only, and is the one for the pages after it too")
	case f.Q+f.Publisher != "" || f.Ranged():
		return event.Invalid("settled", "a search by text, time or publisher has no settled position, since no condition can ask for the same events")
	case f.Impossible():
		return event.Invalid("settled", "this server hides the value that is searched for, so finding nothing would prove nothing; append with after_position 0, or ask a server that shows it")
	}
	return nil
}

// TagParts are the name and value of the filter's tag.
func (f EventFilter) TagParts() (name, value string) {
	name, value, _ = strings.Cut(f.Tag, "=")
	return name, value
}

// Validate returns ErrInvalid for a filter that cannot match.
func (f EventFilter) Validate() error {
	if name, _, found := strings.Cut(f.Tag, "="); f.Tag != "" && (!found || name == "") {
		return event.Invalid("tag", "tag cannot be %q; write name=value", f.Tag)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return event.Invalid("since", "since must be before until")
	}
	return nil
}

// eventsBy selects events. What is looked for in documents is compared as it is shown, and times as the filter
// says.
var eventsBy = sqldb.FilterOf(map[string]sqldb.Condition[EventFilter, event.Event]{
	"publisher": {Match: func(f *EventFilter, e *event.Event) bool {
		return e.Position <= f.by.Position && f.by.Match.Matches(e)
	}},
	"tag":   {Match: func(f *EventFilter, e *event.Event) bool { return f.hasTag(e.Tags) }},
	"q":     {Match: (*EventFilter).finds},
	"since": {Match: func(f *EventFilter, e *event.Event) bool { return !f.timeOf(e).Before(f.Since) }},
	"until": {Match: func(f *EventFilter, e *event.Event) bool { return f.timeOf(e).Before(f.Until) }},
})

// Empty reports whether the filter selects all events.
func (f EventFilter) Empty() bool { return !eventsBy.Asks(f) }

// Occurred reports whether Since and Until select by when events occurred.
func (f EventFilter) Occurred() bool { return f.Time == "occurred" }

// Ranged reports whether the filter selects a range of time.
func (f EventFilter) Ranged() bool { return !f.Since.IsZero() || !f.Until.IsZero() }

// Tails reports whether the list is of the newest events, and an index finds them, so that it can be read again and
// again.
func (f EventFilter) Tails() bool {
	return f.Cursor == "" && !f.Reverse && f.Until.IsZero() && f.Q+f.ActorType+f.ActorID+f.SessionID == "" && !f.Occurred()
}

// NeedsDocuments reports whether the filter looks into documents.
func (f EventFilter) NeedsDocuments() bool { return f.Q != "" || f.Tag != "" }

// Impossible reports whether no event can match as it is shown: a value that is asked for would be
// hidden, or is in a document that is.
func (f EventFilter) Impossible() bool {
	if f.Shown == nil {
		return false
	}
	for _, value := range eventsBy.Args(f, "campaign", "event_type", "tag", "q") {
		if text, is := value.(string); is && f.Shown.Text(text) != text {
			return true
		}
	}
	if f.Tag == "" {
		return false
	}
	name, value := f.TagParts()
	alone, err := json.Marshal(map[string]string{name: value})
	return err != nil || !f.hasTag(alone)
}

// Match reports which events the filter selects, as readers are shown them, where those are known to match by
// some of its fields; nil if all. Without NeedsDocuments their documents need not be read.
func (f EventFilter) Match(selected ...string) func(event.Event) bool {
	if f.Impossible() {
		return func(event.Event) bool { return false }
	}
	return eventsBy.Match(f, selected...)
}

// timeOf is the time of e that Since and Until are about.
func (f *EventFilter) timeOf(e *event.Event) time.Time {
	if f.Occurred() {
		return e.OccurredAt
	}
	return e.RecordedAt
}

func (f EventFilter) text(stored string) string {
	if f.Shown == nil {
		return stored
	}
	return f.Shown.Text(stored)
}

// document is a document as readers are shown it; empty if it is hidden.
func (f EventFilter) document(stored json.RawMessage) json.RawMessage {
	if f.Shown == nil {
		return stored
	}
	if f.Shown.HidesPayloads() {
		return nil
	}
	shown, _ := f.Shown.JSON(stored)
	return shown
}

func (f EventFilter) hasTag(stored json.RawMessage) bool {
	name, value := f.TagParts()
	var tags map[string]string
	if err := json.Unmarshal(f.document(stored), &tags); err != nil {
		return false
	}
	given, found := tags[name]
	return found && given == value
}

// finds looks for Q in what is shown alone, so that neither the result nor the time it takes
// depends on what is hidden.
func (f *EventFilter) finds(e *event.Event) bool {
	for _, text := range e.Envelope() {
		shown := *text.Value
		if text.Name != "campaign_id" && text.Name != "event_type" {
			shown = f.text(shown)
		}
		if strings.Contains(shown, f.Q) {
			return true
		}
	}
	for _, stored := range []json.RawMessage{e.Payload, e.Metadata, e.Tags} {
		if strings.Contains(readable(f.document(stored)), f.Q) {
			return true
		}
	}
	return false
}

// readable is a document with its escaped characters written out, as far as it stays readable.
func readable(doc json.RawMessage) string {
	text := string(doc)
	if !strings.Contains(text, `\u`) && !strings.Contains(text, `\/`) {
		return text
	}
	var value any
	if err := json.Unmarshal(doc, &value); err != nil {
		return text
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return text
	}
	return text + "\n" + strings.TrimSuffix(b.String(), "\n")
}

// excerptBytes is how much of a payload a hit shows.
const excerptBytes = 120

// Hit is e as a search shows it: its ids as they are stored, which are hidden where they leave, and
// an excerpt of the payload as readers are shown it.
func (f EventFilter) Hit(e event.Event) EventHit {
	return EventHit{Position: e.Position, CampaignID: e.CampaignID, Seq: e.Seq, EventID: e.EventID, EventType: e.EventType,
		OccurredAt: e.OccurredAt, RecordedAt: e.RecordedAt, ActorType: e.ActorType, ActorID: e.ActorID, EntityType: e.EntityType, EntityID: e.EntityID,
		SessionID: e.SessionID, RequestID: e.RequestID, CorrelationID: e.CorrelationID, CausationID: e.CausationID, Tags: f.document(e.Tags),
		Excerpt: excerpt(string(f.document(e.Payload)), f.Q)}
}

// excerpt is the part of text around the first q, or its beginning.
func excerpt(text, q string) string {
	from := 0
	if at := strings.Index(text, q); q != "" && at > excerptBytes/3 {
		from = at - excerptBytes/3
	}
	to := min(len(text), from+excerptBytes)
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to--
	}
	part := text[from:to]
	if from > 0 {
		part = "…" + part
	}
	if to < len(text) {
		part += "…"
	}
	return part
}

// EventValues are values that occur in events, for filters to offer.
type EventValues struct {
	EventTypes  []string `redact:"-"` // at most 200
	EntityTypes []string // of the newest events, at most 200
}
