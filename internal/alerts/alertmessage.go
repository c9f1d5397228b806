package alerts

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
)

// AlertNote is the part of a message that a summary repeats.
type AlertNote struct {
	// ID is the same whenever the same message is sent.
	ID     string    `json:"id" redact:"-"`
	Kind   AlertKind `json:"kind" api:"enum=firing reminder resolved summary test"`
	Rule   string    `json:"rule" redact:"-"`  // empty in tests and summaries
	Cause  string    `json:"cause" redact:"-"` // the publisher, instance, source, projection or kind of run; empty where the rule has one subject only
	Urgent bool      `json:"urgent"`
	Title  string    `json:"title"`

	Since   *time.Time `json:"since"`    // when it began, as far as is known: at the latest when it was first found
	EndedAt *time.Time `json:"ended_at"` // nil unless it is over
	Count   int64      `json:"count"`
}

// AlertMessage is what a receiver is told.
type AlertMessage struct {
	AlertNote
	Before *int64 `json:"count_before"` // what the last message about it counted; nil in the first one
	Ended  *int64 `json:"count_ended"`  // what the rule found last, of one that is over; nil otherwise

	AlertError

	Owner      string      `json:"owner"` // who is on it, since when; empty if nobody is
	Todo       string      `json:"todo"`
	RunbookURL string      `json:"runbook_url"`             // empty without a public origin
	ConsoleURL string      `json:"console_url"`             // likewise
	Messages   []AlertNote `json:"messages" api:"nullable"` // of a summary; otherwise nil
}

// alertError is the maximum length of an error in a message, in bytes.
const alertError = 500

// Message is the message about the state after an evaluation of the facts. before is what the last message
// about it counted; nil in the first one. link returns the address of a page, empty if it is not known.
func (a Alert) Message(r AlertRule, f facts.Facts, kind AlertKind, before *int64, link func(page, anchor string) string) AlertMessage {
	c := a.Cause
	doc, heading, _ := strings.Cut(c.Runbook, "#")
	page, anchor, _ := strings.Cut(c.Page, "#")
	m := AlertMessage{AlertNote: AlertNote{Kind: kind, Rule: a.Rule, Cause: c.Key, Urgent: r.Urgent, Title: c.Sentence, Since: &a.Since, EndedAt: a.EndedAt, Count: c.Count}, Before: before,
		AlertError: c.AlertError, Owner: c.Owner, Todo: c.Todo, RunbookURL: link("docs/"+doc, heading), ConsoleURL: link(page, anchor)}
	switch {
	case kind == AlertResolved:
		m.Title = "Resolved after " + event.Took(a.EndedAt.Sub(a.Since)) + ": " + r.Calm(f, a)
		m.Count, _, _, _ = r.left(f, c.Key)
		m.Error, m.Owner, m.Todo, m.Ended = "", "", "", &c.Count
	case kind == AlertReminder:
		m.Title = "Still: " + c.Sentence
	}
	m.Error = event.Cut(strings.TrimSpace(m.Error), alertError)
	return m
}

// TestAlert is a message that says that it is a test.
func TestAlert(id, by string, link func(page, anchor string) string) AlertMessage {
	return AlertMessage{AlertNote: AlertNote{ID: id, Kind: AlertTest, Title: "Test message, sent by " + by}, Todo: "Nothing is wrong. Alerts are sent here.", ConsoleURL: link("alerts", "")}
}

// SumUp is one message for several, which are in order.
func SumUp(all []AlertDelivery, link func(page, anchor string) string) AlertMessage {
	m := AlertMessage{AlertNote: AlertNote{ID: all[0].Message.ID + "-" + all[len(all)-1].Message.ID, Kind: AlertSummary}, ConsoleURL: link("alerts", "")}
	over := int64(0)
	for _, d := range all {
		m.Messages = append(m.Messages, d.Message.AlertNote)
		if d.Message.Kind == AlertResolved {
			over++
		} else if d.Message.Urgent {
			m.Urgent = true
		}
	}
	m.Title = fmt.Sprintf("%s messages at once: %s open, %s resolved", event.Number(int64(len(all))), event.Number(int64(len(all))-over), event.Number(over))
	return m
}

// Lines is the message as text after its title.
func (m AlertMessage) Lines(now time.Time) []string {
	var lines []string
	add := func(label, text string) {
		if text != "" {
			lines = append(lines, label+text)
		}
	}
	for _, one := range m.Messages {
		add("- ", one.Title)
	}
	if m.Since != nil {
		since := m.Since.UTC().Format("2006-01-02 15:04 UTC")
		if m.EndedAt == nil {
			since += ", " + event.Age(now.Sub(*m.Since)) + " ago"
		}
		add("Since: ", since)
	}
	switch {
	case m.Before == nil:
	case m.Ended == nil && m.Count != *m.Before:
		add("Changed: ", fmt.Sprintf("%s now, %s in the last message", event.Number(m.Count), event.Number(*m.Before)))
	case m.Ended != nil && *m.Ended != *m.Before:
		add("Changed: ", fmt.Sprintf("%s before it was over, %s in the last message", event.Number(*m.Ended), event.Number(*m.Before)))
	}
	add("Build: ", m.Build)
	add("Projection: ", strings.TrimSpace(m.Projection+" "+event.ShortHash(m.ProjectionVersion)))
	add("", m.Owner)
	add("What to do: ", m.Todo)
	add("Runbook: ", m.RunbookURL)
	add("Console: ", m.ConsoleURL)
	return lines
}

// AlertRuleState is a rule with its causes.
type AlertRuleState struct {
	AlertRule
	OverSeconds float64    `json:"over_seconds"` // the age above which it fires, for oldest_row
	ForSeconds  float64    `json:"for_seconds"`  // how long it must hold
	Condition   string     `json:"condition"`    // the rule in words
	Alerts      []Alert    `json:"alerts"`       // the causes that it finds, or found lately
	MutedUntil  *time.Time `json:"muted_until"`  // nil if not muted
}

// Status is the most urgent status of the rule's causes.
func (r AlertRuleState) Status() AlertStatus {
	status := AlertOK
	for _, a := range r.Alerts {
		if a.Status == AlertFiring || a.Status == AlertPending && status == AlertOK {
			status = a.Status
		}
	}
	return status
}

// AlertReceiver is a receiver and how sending to it goes.
type AlertReceiver struct {
	Name        string     `json:"name" redact:"-"`
	Kind        string     `json:"kind" api:"enum=webhook slack ntfy email"`
	Destination string     `json:"destination"` // without secrets
	SentAt      *time.Time `json:"sent_at"`     // the last message that it took
	Failures    int64      `json:"failures"`    // in a row
	LastError   string     `json:"last_error"`
	ErrorAt     *time.Time `json:"error_at"`
	RetryAt     *time.Time `json:"retry_at"` // nil unless the last message failed
	Waiting     int64      `json:"waiting"`  // messages not sent yet
}

// AlertDelivery is a message to one receiver.
type AlertDelivery struct {
	Number    int64        `json:"number"`
	Receiver  string       `json:"receiver" redact:"-"`
	Message   AlertMessage `json:"message"`
	CreatedAt time.Time    `json:"created_at"`
	Status    string       `json:"status" api:"enum=waiting sent failed superseded"`
	SentAt    *time.Time   `json:"sent_at"`
	LastError string       `json:"last_error"`
}

// AlertsView is the state of alerts.
type AlertsView struct {
	Configured  bool             `json:"configured"`   // this process has alerts in its configuration
	EvaluatedAt *time.Time       `json:"evaluated_at"` // by any process; nil before the first time
	Evaluator   string           `json:"evaluator" redact:"-"`
	Linked      bool             `json:"linked"` // messages have links to the console
	Rules       []AlertRuleState `json:"rules"`
	Receivers   []AlertReceiver  `json:"receivers"`
	Mutes       []AlertMute      `json:"mutes"`
	Messages    []AlertDelivery  `json:"messages" api:"max=50"` // newest first
}

// AlertTestResult is the outcome of a test message.
type AlertTestResult struct {
	Receiver string  `json:"receiver" redact:"-"`
	OK       bool    `json:"ok"`
	Seconds  float64 `json:"seconds"`
	Error    string  `json:"error"`
}
