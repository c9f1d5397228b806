package ui

import (
	"encoding/json"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// publisherActionSentence describes an action on a publisher from its audit record.
func publisherActionSentence(a operator.AuditEntry) string {
	var name operator.SubscriptionName
	var came struct {
		Seek *operator.Seek  `json:"seek"`
		Skip *event.EventRef `json:"skip"`
		subscription.TestDelivery
	}
	_ = json.Unmarshal(a.Before, &name) // missing fields stay empty
	_ = json.Unmarshal(a.After, &came)
	publisher := "publisher " + name.String()
	switch {
	case a.Action == operator.ActionPublisherPause:
		return "Paused " + publisher + "."
	case a.Action == operator.ActionPublisherResume:
		return "Resumed " + publisher + " and cleared its errors."
	case a.Action == operator.ActionPublisherReset:
		return "Reset " + publisher + ": errors cleared."
	case a.Action == operator.ActionPublisherSeek && came.Seek != nil:
		return fmt.Sprintf("Moved publisher %s from position %d to %d: %s.", name, came.Seek.From, came.Seek.To, seekWords(*came.Seek))
	case a.Action == operator.ActionPublisherSkip && came.Skip != nil:
		return fmt.Sprintf("Publisher %s skipped event %d (%s) of campaign %s.", name, came.Skip.Seq, came.Skip.EventType, came.Skip.CampaignID)
	case a.Action == operator.ActionPublisherTest && came.OK:
		return "Sent a test event to " + publisher + ": delivered in " + tookText(came.Seconds) + "."
	case a.Action == operator.ActionPublisherTest:
		return "Sent a test event to " + publisher + ": " + Visible(FirstLine(came.Error))
	}
	return "Changed " + publisher + "."
}

// publishersActionSentence describes an action on a publisher's name from its audit record.
func publishersActionSentence(a operator.AuditEntry) string {
	var came subscription.PublishersChange
	_ = json.Unmarshal(a.Before, &came) // missing fields stay empty
	_ = json.Unmarshal(a.After, &came)
	did := "Paused"
	if a.Action == operator.ActionPublisherResumeAll {
		did = "Resumed"
	}
	return fmt.Sprintf("%s publisher %s in %s.", did, came.Publisher, Count(int64(len(came.Changed)), "topic", "topics"))
}

// seekWords describes the effect of a seek on events.
func seekWords(s operator.Seek) string {
	n, what := s.Repeats, "repeated"
	if s.To > s.From {
		n, what = s.Skips, "skipped"
	}
	if n == 0 && !s.Capped {
		return "no event " + what
	}
	words := Count(n, "event", "events") + " " + what
	if s.Capped {
		words = "at least " + words
	}
	return words
}

// tookText formats a duration in seconds: "12 ms", "1.3 s".
func tookText(s float64) string {
	switch {
	case s < 0.001:
		return "under 1 ms"
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	default:
		return fmt.Sprintf("%.1f s", s)
	}
}
