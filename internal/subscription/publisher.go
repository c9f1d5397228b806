package subscription

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// PublisherDefinition is a subscription as configured and as stored, without secrets.
type PublisherDefinition struct {
	operator.SubscriptionName
	Destination string // a URL without secrets
	Match       Match
	StartAtHead bool // a new subscription begins after the last event instead of at the first
	MaxErrors   int  // errors in a row after which the subscription is failed
	Settings    PublisherSettings
}

// PublisherSettings are the effective settings of a subscription: its own, its topic's, those for
// all publishers, or the defaults of the program.
type PublisherSettings struct {
	BatchSize          int     `json:"batch_size"` // events per delivery; 0 in a record of an older version, as are the others
	PollSeconds        float64 `json:"poll_interval_seconds"`
	IdleBackoff        bool    `json:"idle_backoff"`         // the waits between empty polls grow
	IdleAfter          int     `json:"idle_after"`           // after so many empty polls
	IdleFactor         float64 `json:"idle_factor"`          // by this factor
	IdleLongestSeconds float64 `json:"idle_longest_seconds"` // up to this
	TimeoutSeconds     float64 `json:"timeout_seconds"`
	RetryBaseSeconds   float64 `json:"retry_base_seconds"`
	RetryMaxSeconds    float64 `json:"retry_max_seconds"`
	MaxErrors          int     `json:"max_errors"`
	FailedRetrySeconds float64 `json:"failed_retry_seconds"`
}

// LongestPoll is the longest wait between two polls; 0 in a record of an older version.
func (s PublisherSettings) LongestPoll() time.Duration {
	seconds := s.PollSeconds
	if s.IdleBackoff {
		seconds = max(seconds, s.IdleLongestSeconds)
	}
	return time.Duration(seconds * float64(time.Second))
}

// String lists the settings for the command line.
func (s PublisherSettings) String() string {
	idle := "no idle back-off"
	if s.IdleBackoff {
		idle = fmt.Sprintf("idle back-off after %s by %g up to %gs", event.Count(int64(s.IdleAfter), "empty poll", "empty polls"), s.IdleFactor, s.IdleLongestSeconds)
	}
	return fmt.Sprintf("batch size %d, poll interval %gs, %s, timeout %gs, retry %gs to %gs, failed after %s, then retried every %gs", s.BatchSize, s.PollSeconds, idle, s.TimeoutSeconds,
		s.RetryBaseSeconds, s.RetryMaxSeconds, event.Count(int64(s.MaxErrors), "error", "errors"), s.FailedRetrySeconds)
}

// PublisherStatus is the state of a subscription.
type PublisherStatus string

// The statuses of a subscription. All of them keep its position.
const (
	PublisherActive PublisherStatus = "active"
	PublisherPaused PublisherStatus = "paused" // by an operator
	PublisherFailed PublisherStatus = "failed" // too many errors in a row; retried rarely, or not at all when stopped
)

// PublisherStatuses lists every status.
var PublisherStatuses = []PublisherStatus{PublisherActive, PublisherPaused, PublisherFailed}

// Publisher is a subscription and its progress.
type Publisher struct {
	operator.SubscriptionName
	Destination string          `json:"destination"` // from the configuration of its last holder; without secrets
	Match       Match           `json:"match"`
	Status      PublisherStatus `json:"status"`
	// Position is the last scanned position of the journal: every event of the topic up to here was
	// delivered, or skipped by an operator.
	Position          int64 `json:"position"`
	DeliveredPosition int64 `json:"delivered_position"` // of the last delivered event; 0 before the first
	Delivered         int64 `json:"delivered"`          // total deliveries, including repeats
	HeadPosition      int64 `json:"head_position"`      // the journal's last position

	LagEvents int64 `json:"lag_events"` // events of the topic after position
	// only part of the journal after position was counted: there are at least lag_events. With
	// lag_events 0 that part has no event of the topic, and the lag is unknown
	LagCapped  bool    `json:"lag_capped"`
	LagSeconds float64 `json:"lag_seconds"` // age of the first of them; 0 if there is none, or if the lag is unknown

	ErrorCount    int                        `json:"error_count"`            // in a row
	ErrorKind     operator.DeliveryErrorKind `json:"error_kind" api:"empty"` // cause of the last error; empty without one
	LastError     string                     `json:"last_error"`             // in full; kept after recovery, until resume or reset
	LastErrorAt   *time.Time                 `json:"last_error_at"`
	FailingSince  *time.Time                 `json:"failing_since"`  // when the errors in a row began, to the minute; nil without one, or if that is unknown
	ErrorPosition int64                      `json:"error_position"` // of the event that could not be delivered; 0 without one
	ErrorEvent    *event.EventRef            `json:"error_event"`    // the same event; nil without one
	RetryAt       *time.Time                 `json:"retry_at"`       // not retried before this; nil without an error
	TestTaken     *bool                      `json:"test_taken"`     // whether the last test event since these errors began was taken; null without one
	Stopped       bool                       `json:"stopped"`        // it has failed and is not retried automatically: the destination said it is gone

	// what the publisher itself last said to its holder; null when no process holds it, or the kind of
	// publisher says nothing
	Healthy       *bool  `json:"healthy"`
	HealthMessage string `json:"health_message"` // why it is not healthy; empty otherwise
	// when it said so: it is asked before the first delivery of a lease, when a delivery fails, and before
	// each one until deliveries succeed again
	HealthAt *time.Time `json:"health_at"`
	// since when a call of a Go function has not returned, long after its time limit; null without one.
	// No other call starts before it returns
	HangingSince *time.Time `json:"hanging_since"`

	LastPublishedAt *time.Time `json:"last_published_at"`
	EventsPerSecond float64    `json:"events_per_second"` // recent rate; 0 when idle
	// when its holder polls at the latest: an append wakes it, unless errors last; then it is the next
	// attempt. Null while it delivers, and when no process holds it
	NextPollAt  *time.Time              `json:"next_poll_at"`
	Paused      *campaign.Pause         `json:"paused"`
	Lease       *campaign.Lease         `json:"lease"` // nil when no process holds it; of one that was killed it stays until another takes over
	StateAsRead PublisherState          `json:"state"` // status refined: whether it makes progress
	WhyAsRead   string                  `json:"why"`   // why it does or does not, in a sentence
	Holder      *campaign.InstanceState `json:"-"`     // what is known of the process that has the lease; nil if nothing is

	Settings  PublisherSettings `json:"settings"` // effective ones, of the server that started last
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// LagUnknown reports whether the subscription's lag is unknown: see LagEvents.
func (p Publisher) LagUnknown() bool { return p.LagCapped && p.LagEvents == 0 }

// Lag describes the lag for people: "3 events, 12 s".
func (p Publisher) Lag() string {
	events := event.Count(p.LagEvents, "event", "events")
	switch {
	case p.LagUnknown():
		return "not known"
	case p.LagEvents == 0:
		return "none"
	case p.LagCapped:
		events = "at least " + events
	}
	return events + ", " + event.Age(time.Duration(p.LagSeconds*float64(time.Second)))
}

// NewFor is how long before the step of its first sample a subscription may have been created for
// its deliveries to be those of that step. Samples are taken each minute.
const NewFor = 2 * time.Minute

// PublishersChange is the result of an action on a publisher's name in all topics.
type PublishersChange struct {
	Publisher string                      `json:"publisher" redact:"-"`
	Changed   []operator.SubscriptionName `json:"changed"`
	Unchanged []operator.SubscriptionName `json:"unchanged"` // were so already
}

// TestDelivery is the result of sending a made-up event to a destination.
type TestDelivery struct {
	operator.SubscriptionName
	ID      string  `json:"id" redact:"-"` // of the sent event
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error"` // in full; empty when it was delivered
}

// Match selects events that satisfy all given conditions. The fields of the envelope (campaign_id,
// event_id, event_type, actor_type and so on) count as tags of their names if not empty; a tag of
// such a name is ignored.
type Match struct {
	RequiredTags []string          `json:"required_tags,omitempty"` // tags that must all be present
	AnyOfTags    []string          `json:"any_of_tags,omitempty"`   // tags of which one must be present
	ExactTags    map[string]string `json:"exact_tags,omitempty"`    // tags that must have these values
	EventTypes   []string          `json:"event_types,omitempty"`   // allowed types; * matches any run of characters
	Campaigns    []string          `json:"campaigns,omitempty"`     // allowed campaign ids
}

// Empty reports whether no condition is given.
func (m Match) Empty() bool {
	return len(m.RequiredTags)+len(m.AnyOfTags)+len(m.ExactTags)+len(m.EventTypes)+len(m.Campaigns) == 0
}

// All reports whether the match selects every event.
func (m Match) All() bool {
	return len(m.RequiredTags)+len(m.AnyOfTags)+len(m.ExactTags)+len(m.Campaigns) == 0 && slices.Contains(m.EventTypes, "*")
}

// Matches reports whether the match selects e.
func (m Match) Matches(e *event.Event) bool {
	if len(m.EventTypes) > 0 && !slices.ContainsFunc(m.EventTypes, func(p string) bool { return MatchWildcard(p, e.EventType) }) {
		return false
	}
	if len(m.Campaigns) > 0 && !slices.Contains(m.Campaigns, e.CampaignID) {
		return false
	}
	if len(m.RequiredTags)+len(m.AnyOfTags)+len(m.ExactTags) == 0 {
		return true
	}
	tags := event.TagReader{Event: e}
	for _, name := range m.RequiredTags {
		if _, ok := tags.Value(name); !ok {
			return false
		}
	}
	for name, want := range m.ExactTags {
		if value, ok := tags.Value(name); !ok || value != want {
			return false
		}
	}
	return len(m.AnyOfTags) == 0 || slices.ContainsFunc(m.AnyOfTags, func(name string) bool {
		_, ok := tags.Value(name)
		return ok
	})
}

// Words describes the match for people.
func (m Match) Words() string {
	var parts []string
	add := func(what string, items []string) {
		if len(items) > 0 {
			parts = append(parts, what+" "+strings.Join(items, ", "))
		}
	}
	add("event types", m.EventTypes)
	add("campaigns", m.Campaigns)
	add("all of the tags", m.RequiredTags)
	add("any of the tags", m.AnyOfTags)
	var exact []string
	for _, name := range slices.Sorted(maps.Keys(m.ExactTags)) {
		exact = append(exact, name+"="+m.ExactTags[name])
	}
	add("tags", exact)
	return strings.Join(parts, "; ")
}

// MatchWildcard reports whether text matches the pattern, in which * matches any run of characters,
// including an empty one.
func MatchWildcard(pattern, text string) bool {
	before, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, before)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// IdleBackoff is how the waits between polls grow while the polls find nothing. The zero value is
// DefaultIdleBackoff.
type IdleBackoff struct {
	Off     bool
	After   int           // empty polls before the waits grow
	Factor  float64       // by which each wait is longer than the one before
	Longest time.Duration // wait; a longer poll interval stays
}

// DefaultIdleBackoff is the back-off of publishers that configure none.
var DefaultIdleBackoff = IdleBackoff{After: 3, Factor: 2, Longest: time.Minute}

// PollPace counts empty polls in a row. The zero value has had none.
type PollPace struct{ empty int }

// Empty returns the wait after another empty poll.
func (p *PollPace) Empty(interval time.Duration, b IdleBackoff) time.Duration {
	if b == (IdleBackoff{}) {
		b = DefaultIdleBackoff
	}
	p.empty++
	if b.Off || p.empty <= b.After {
		return interval
	}
	longest := max(interval, b.Longest)
	wait := float64(interval) * math.Pow(b.Factor, float64(p.empty-b.After))
	return time.Duration(min(wait, float64(longest)))
}

// Reset restarts at the interval, after an event or a wake-up.
func (p *PollPace) Reset() { p.empty = 0 }
