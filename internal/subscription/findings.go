package subscription

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// PublisherFindings are the publishers that deliver nothing. One that failed goes on until it delivers again,
// or has nothing left to deliver: while it is retried, or after an operator cleared its errors, it has not
// recovered.
func PublisherFindings(list []Publisher, now time.Time, ends campaign.PauseEnds) (all finding.List) {
	list = slices.Clone(list)
	SortPublishers(list, now)
	for _, p := range list {
		f, errors, state := p.finding(), event.Count(int64(p.ErrorCount), "error", "errors"), p.State(now)
		f.Short, f.Items = "publisher "+string(state), []finding.Item{{Name: p.String(), Note: string(state), Page: f.Page}}
		switch {
		case state == PublisherIsFailed || state == PublisherIsStopped:
			f.Says = fmt.Sprintf("Publisher %s has %s after %s%s", p, state, errors, p.atFault())
		case state == PublisherIsPaused:
			f = campaign.Found(campaign.FindsNotDelivered, p.String(), p.LagEvents, "Publisher "+p.String()+" is paused"+ends.Publisher(p.String())+p.backlog())
			f.Page = campaign.PagePath(nil, "publishers", p.Topic, p.Publisher)
		case state == PublisherIsNotHeld && !delivered(p):
			f.Says, f.Level, f.Lingers, f.Does = fmt.Sprintf("Publisher %s has waiting events and no running server", p), finding.Warn, true, "Start a server that has it in its configuration."
		case p.ErrorCount > 0:
			f.Says, f.Level, f.Lingers = fmt.Sprintf("Publisher %s is retried, and has not recovered: %s in a row%s", p, errors, p.atFault()), finding.Warn, true
		case p.LastErrorAt == nil && !delivered(p):
			f.Says, f.Level, f.Lingers = fmt.Sprintf("Publisher %s has delivered nothing since it failed; an operator's action cleared its errors", p), finding.OK, true
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

// finding has the last error of a publisher, without a sentence.
func (p Publisher) finding() finding.Finding {
	f := campaign.Found(campaign.FindsPublisher, p.String(), int64(p.ErrorCount), "")
	f.Error, f.Page = p.LastError, campaign.PagePath(nil, "publishers", p.Topic, p.Publisher)
	if p.LastPublishedAt != nil {
		f.Worked = *p.LastPublishedAt
	}
	if f.Since = p.LastErrorAt; f.Since != nil && p.FailingSince != nil {
		f.Since = p.FailingSince
	}
	if f.Since != nil && f.Since.Before(f.Worked) { // by the clock of another holder
		f.Since = &f.Worked
	}
	switch p.ErrorKind {
	case operator.EventError:
		f.Does, f.Guide = "Have the receiver fixed for this event, or skip the event. A resume alone fails at the same event.", "operating#one-event-is-rejected"
	case operator.UnknownError:
		f.Does = "Send a test event to find out whether this event or its destination is at fault. Fix that, then resume the publisher."
	}
	return f
}

// atFault continues a sentence about a publisher's errors with the event that is to blame, or may be.
func (p Publisher) atFault() string {
	event := "the event at position " + strconv.FormatInt(p.ErrorPosition, 10)
	if e := p.ErrorEvent; e != nil {
		event = fmt.Sprintf("event %d of campaign %s", e.Seq, e.CampaignID)
	}
	switch {
	case p.ErrorKind == operator.EventError && p.ByFunction():
		return "; its function fails at " + event
	case p.ErrorKind == operator.EventError:
		return "; its destination rejects " + event
	case p.ErrorKind == operator.UnknownError:
		return "; " + event + " or its destination is at fault"
	}
	return ""
}
