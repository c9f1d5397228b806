// Package delivery holds the pages of publishers, to whom events go, and of sources, which they come from.
package delivery

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// PublisherView is the view of a subscription's page.
type PublisherView struct {
	subscription.Publisher
	Range   samples.Range
	History publishing.PublisherHistory
	Acts    []operator.AuditEntry // on the subscription, newest first
	Tests   bool                  // whether this server can send a test event
	// SameName is the publishers of its name in all topics, itself included.
	SameName []subscription.Publisher
}

// inTopics returns those of the same name that fit, if the name serves several topics.
func (v PublisherView) inTopics(fits func(subscription.Publisher) bool) (topics []string) {
	if len(v.SameName) < 2 {
		return nil
	}
	for _, one := range v.SameName {
		if fits(one) {
			topics = append(topics, one.Topic)
		}
	}
	return topics
}

// settingsLines are the effective settings of a publisher in words.
func settingsLines(s subscription.PublisherSettings) []ui.NamedText {
	idle := "off"
	if s.IdleBackoff {
		idle = fmt.Sprintf("after %s, ×%g up to %s", ui.Count(int64(s.IdleAfter), "empty poll", "empty polls"), s.IdleFactor, exactly(s.IdleLongestSeconds))
	}
	return []ui.NamedText{
		{Name: "Batch", Value: "up to " + ui.Count(int64(s.BatchSize), "event", "events")},
		{Name: "Poll interval", Value: exactly(s.PollSeconds)},
		{Name: "Idle back-off", Value: idle},
		{Name: "Timeout", Value: exactly(s.TimeoutSeconds)},
		{Name: "After an error", Value: fmt.Sprintf("retry in %s, doubled up to %s", exactly(s.RetryBaseSeconds), exactly(s.RetryMaxSeconds))},
		{Name: "Failed", Value: fmt.Sprintf("after %s in a row, then retried every %s", ui.Count(int64(s.MaxErrors), "error", "errors"), exactly(s.FailedRetrySeconds))},
	}
}

// exactly writes a setting in seconds, unlike seconds, which writes a time that was measured.
func exactly(s float64) string {
	d := time.Duration(math.Round(s*1000)) * time.Millisecond
	if d%time.Second != 0 {
		return ui.Num(d.Milliseconds()) + " ms"
	}
	return event.Limit(d)
}

// SeekView is the view of the page that moves a subscription's position.
type SeekView struct {
	subscription.Publisher
	To       string                   `redact:"-"` // head, beginning, position or time; empty before a choice
	Position string                   `redact:"-"` // as it was typed
	Time     string                   `redact:"-"` // as it was typed
	Reason   string                   `redact:"-"` // as it was typed
	Preview  *operator.Seek           // nil before a choice
	Asked    subscription.SeekRequest `redact:"-"`
	Key      string                   `redact:"-"` // the idempotency key of the action
}

// Links of publishers.

// publisherAnchor is the id of a subscription's row in lists.
func publisherAnchor(n operator.SubscriptionName) string { return "publisher-" + n.String() }

// lagText is the known lag in events of a topic.
func lagText(p subscription.Publisher) string {
	switch {
	case p.LagUnknown():
		return "not known"
	case p.LagCapped:
		return "at least " + ui.Num(p.LagEvents)
	default:
		return ui.Num(p.LagEvents)
	}
}

// lagNote says what lagText leaves open; empty if nothing.
func lagNote(p *subscription.Publisher) string {
	switch {
	case p.LagUnknown():
		return "scanning; no event of the topic found so far"
	case p.LagEvents > 0:
		return "the first waiting for " + ui.Seconds(p.LagSeconds)
	}
	return ""
}

// nextPollName names what a publisher does next.
func nextPollName(p subscription.Publisher) string {
	if p.RetryAt != nil {
		return "Next attempt"
	}
	return "Next poll"
}

// matchCondition is one condition of a match, in words.
type matchCondition struct {
	name  string
	items []string
}

func conditions(m subscription.Match) []matchCondition {
	var exact []string
	for _, name := range slices.Sorted(maps.Keys(m.ExactTags)) {
		exact = append(exact, name+" = "+m.ExactTags[name])
	}
	all := []matchCondition{
		{"Event type is one of", m.EventTypes},
		{"Campaign is one of", m.Campaigns},
		{"Has all of the tags", m.RequiredTags},
		{"Has any of the tags", m.AnyOfTags},
		{"Has these tags with these values", exact},
	}
	return slices.DeleteFunc(all, func(c matchCondition) bool { return len(c.items) == 0 })
}

// selects describes what a topic selects, in a sentence.
func selects(m subscription.Match) string {
	if m.All() {
		return "Every event of the journal."
	}
	if len(conditions(m)) > 1 {
		return "Events that match all of:"
	}
	return "Events that match:"
}

// retries reports whether resuming the publisher retries what failed, rather than ending a pause.
func retries(p subscription.Publisher) bool {
	return p.Resumable() && p.Status != subscription.PublisherPaused
}

// resumeWord is the button that lets a publisher continue.
func resumeWord(p subscription.Publisher) string {
	if retries(p) && !p.Stopped { // of one that is stopped, its state says to resume it
		return "Retry now"
	}
	return "Resume"
}

func resumeMeaning(p subscription.Publisher) string {
	if p.Status == subscription.PublisherPaused && p.ErrorCount == 0 {
		return "continues from its position."
	}
	return "clears its errors and retries at once, from the same event."
}

// resetMeaning says what resetting a subscription does where retrying is not offered.
func resetMeaning(p subscription.Publisher) string {
	if p.Status == subscription.PublisherPaused {
		return "clears its errors; the publisher stays paused."
	}
	return "clears the last error; deliveries succeed again."
}

// publisherForms are the forms of a subscription's page.
var publisherForms = []string{"pause-form", "resume-form", "pause-all-form", "resume-all-form", "reset-form", "skip-form", "test-form"}

// seekSentence describes the new position of a seek.
func seekSentence(s operator.Seek) string {
	from, to := ui.Num(s.From), ui.Num(s.To)
	switch {
	case s.To < s.From:
		return fmt.Sprintf("The position moves back from %s to %s.", from, to)
	case s.To > s.From:
		return fmt.Sprintf("The position moves forward from %s to %s.", from, to)
	default:
		return fmt.Sprintf("The publisher is already at position %s: nothing to do.", to)
	}
}

// seekNotes describe the events that a seek repeats and skips.
func seekNotes(s operator.Seek) []string {
	n, done, then := s.Skips, " skipped", " and never delivered here"
	if s.To < s.From {
		n, done, then = s.Repeats, " delivered again", "; receivers recognise repeats by the id"
	}
	text := ui.Count(n, "event of its topic is", "events of its topic are") + done + then
	switch {
	case s.To == s.From:
		return nil
	case s.Capped:
		text = "at least " + text
	case n == 0:
		text = "no event of its topic is" + done
	}
	return []string{ui.Sentence(text)}
}

// expected is the previewed seek.
func (v SeekView) expected() *subscription.ExpectedSeek {
	return &subscription.ExpectedSeek{Repeats: v.Preview.Repeats, Skips: v.Preview.Skips, Capped: v.Preview.Capped}
}

// seekFields are the hidden fields with the target and the preview.
func seekFields(v SeekView) []ui.NamedText {
	seen := v.expected()
	fields := []ui.NamedText{{Name: "to", Value: v.To}, {Name: "expected_repeats", Value: ui.Itoa(seen.Repeats)}, {Name: "expected_skips", Value: ui.Itoa(seen.Skips)}, {Name: "expected_capped", Value: strconv.FormatBool(seen.Capped)}}
	if text := map[string]string{"position": v.Position, "time": v.Time}[v.To]; text != "" {
		fields = slices.Insert(fields, 1, ui.NamedText{Name: v.To, Value: text})
	}
	return fields
}

// publisherTwins are the shell equivalents of the actions on a subscription.
func publisherTwins(p ui.Page, v subscription.Publisher) ui.Twins {
	return p.AsksOn(v.PauseOrResume(), nil, v.Topic, v.SubscriptionName.Publisher)
}

// seekTwins are the shell equivalents of the previewed seek.
func seekTwins(p ui.Page, v SeekView) ui.Twins {
	asked := v.Asked
	asked.Reason, asked.Expected, asked.Confirm = ui.AnyReason.Reason, v.expected(), operator.ActionPublisherSeek.Phrase(operator.Reach{Seek: *v.Preview})
	if v.To == "position" {
		asked.Position = &v.Preview.To
	}
	return p.Asks(operator.ActionPublisherSeek, asked, v.SubscriptionName.Topic, v.SubscriptionName.Publisher)
}

// exampleTopics is a minimal configuration of a publisher.
const exampleTopics = `topics:
  everything:
    match:
      event_types: ["*"]
    publishers:
      archive:
        url: file:///var/lib/outboxweb/events.ndjson
      partner:
        url: https://partner.example/events
        secret: ${PARTNER_SECRET}
`

func seekButton(s operator.Seek) string {
	switch {
	case s.Skips > 0 && s.Capped:
		return "Seek and skip over " + ui.Num(s.Skips) + " events"
	case s.Skips > 0:
		return "Seek and skip " + ui.Count(s.Skips, "event", "events")
	case s.To < s.From:
		return "Seek back"
	}
	return "Seek forward"
}
