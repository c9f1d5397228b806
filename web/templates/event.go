package templates

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// EventTab is a part of an event's page.
type EventTab string

// The tabs of an event's page. TabHappened is the default.
const (
	TabHappened   EventTab = ""
	TabPayload    EventTab = "payload"
	TabNeighbours EventTab = "neighbours"
	TabRows       EventTab = "rows"
	TabDetails    EventTab = "details"
)

// eventTabs are the tabs in the order in which pages show them.
var eventTabs = []struct {
	tab  EventTab
	name string
}{{TabHappened, "What happened"}, {TabPayload, "Payload"}, {TabRows, "Rows changed"}, {TabNeighbours, "Neighbours"}, {TabDetails, "Details"}}

// EventView is one event, its row and the progress of its campaign.
type EventView struct {
	outbox.EventDetail
	Tab      EventTab
	Campaign outbox.Campaign
	Held     []outbox.Cursor   // of projections that are not live in the campaign; nil if they cannot be read
	Row      *outbox.RowDetail // nil without a row
	History  outbox.EventHistory
	Remade   bool                // a run replaced rows of a projection in the campaign at some time
	Acts     []outbox.AuditEntry // the latest on it, refused ones too
	// Explained says why projections fail at it; Unexplained that this cannot be found out at the
	// moment.
	Explained   []outbox.ExplainedFailure
	Unexplained bool
	Near        []outbox.EventLine // some events before and behind it, and itself
	Alike       Alike
	Changed     ReadModelView // the rows that it changed
}

// Alike are the events of the same entity next to an event; 0 where none is near.
type Alike struct {
	Before, Behind int64
	Within         int64 // how many events to each side were looked through
}

// AlikeOf finds the nearest events of the same entity among the lines around an event.
func AlikeOf(e outbox.Event, lines []outbox.EventLine, within int64) Alike {
	a := Alike{Within: within}
	if e.EntityID == "" {
		return a
	}
	for _, l := range lines {
		switch {
		case l.EntityType != e.EntityType || l.EntityID != e.EntityID || l.Seq == e.Seq:
		case l.Seq < e.Seq:
			a.Before = l.Seq
		case a.Behind == 0:
			a.Behind = l.Seq
		}
	}
	return a
}

// EventTab is a tab of an event's page.
func (l Links) EventTab(id string, seq int64, tab EventTab) URL {
	var query url.Values
	if tab != TabHappened {
		query = url.Values{"tab": {string(tab)}}
	}
	return l.at(query, "campaigns", id, "events", strconv.FormatInt(seq, 10))
}

// Explanation is the API's explanation of an event's failures.
func (l Links) Explanation(id string, seq int64) URL {
	return l.at(nil, "campaigns", id, "events", strconv.FormatInt(seq, 10), "explanation")
}

// tabURL is a tab's link, which shows the tab itself.
func tabURL(p Page, v EventView, tab EventTab) URL {
	return p.Links.EventTab(v.Event.CampaignID, v.Event.Seq, tab) + "#about"
}

// error is the last error of the event's row; empty without one.
func (v EventView) error() string { return orZero(v.Row).Row.LastError }

// stands says in a sentence where the event is and why.
func (v EventView) stands(p Page) string {
	if v.Row == nil || !v.Row.Row.IsHead {
		return eventStands(v)
	}
	return v.Campaign.Why(p.Now, p.Around) + "."
}

// forward names the way forward that the page offers; empty if there is none. On a narrow screen its
// form is far below the reasons.
func (v EventView) forward(p Page) string {
	switch {
	case v.Row == nil:
	case v.Row.Row.Status == outbox.Dead && p.Offers(outbox.ActionRequeue):
		return "Requeue"
	case v.Row.Row.Status == outbox.Failed && v.Row.Row.IsHead && p.Offers(outbox.ActionRetry):
		return "Retry"
	}
	return ""
}

// previewLines is how many lines of the payload are shown beside what happened.
const previewLines = 14

// preview is the first lines of an event's payload, and how many more there are.
func preview(e outbox.Event) (string, int) {
	lines := strings.Split(prettyJSON(e.Payload), "\n")
	shown := lines[:min(len(lines), previewLines)]
	for i, l := range shown {
		if len(l) > treeKey {
			shown[i] = strings.ToValidUTF8(l[:treeKey], "") + "…"
		}
	}
	return strings.Join(shown, "\n"), len(lines) - len(shown)
}
