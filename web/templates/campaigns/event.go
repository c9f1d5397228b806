package campaigns

import (
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// eventTabs are the tabs in the order in which pages show them.
var eventTabs = []struct {
	tab  ui.EventTab
	name string
}{{ui.TabHappened, "What happened"}, {ui.TabPayload, "Payload"}, {ui.TabRows, "Rows changed"}, {ui.TabNeighbours, "Neighbours"}, {ui.TabDetails, "Details"}}

// EventView is one event, its row and the progress of its campaign.
type EventView struct {
	campaign.EventDetail
	Tab      ui.EventTab
	Campaign campaign.Campaign
	Held     []campaign.Cursor   // of projections that are not live in the campaign; nil if they cannot be read
	Row      *campaign.RowDetail // nil without a row
	History  campaign.EventHistory
	Remade   bool                  // a run replaced rows of a projection in the campaign at some time
	Acts     []operator.AuditEntry // the latest on it, refused ones too
	// Explained says why projections fail at it; Unexplained that this cannot be found out at the
	// moment.
	Explained   []projection.ExplainedFailure
	Unexplained bool
	Near        []campaign.EventLine // some events before and behind it, and itself
	Alike       Alike
	Changed     ReadModelView // the rows that it changed
}

// Alike are the events of the same entity next to an event; 0 where none is near.
type Alike struct {
	Before, Behind int64
	Within         int64 // how many events to each side were looked through
}

// AlikeOf finds the nearest events of the same entity among the lines around an event.
func AlikeOf(e event.Event, lines []campaign.EventLine, within int64) Alike {
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

// tabURL is a tab's link, which shows the tab itself.
func tabURL(p ui.Page, v EventView, tab ui.EventTab) ui.URL {
	return p.Links.EventTab(v.Event.CampaignID, v.Event.Seq, tab) + "#about"
}

// error is the last error of the event's row; empty without one.
func (v EventView) error() string { return ui.OrZero(v.Row).Row.LastError }

// stands says in a sentence where the event is and why.
func (v EventView) stands(p ui.Page) string {
	if v.Row == nil || !v.Row.Row.IsHead {
		return eventStands(v)
	}
	return v.Campaign.Why(p.Now, p.Around) + "."
}

// forward names the way forward that the page offers; empty if there is none. On a narrow screen its
// form is far below the reasons.
func (v EventView) forward(p ui.Page) string {
	switch {
	case v.Row == nil:
	case v.Row.Row.Status == event.Dead && p.Offers(operator.ActionRequeue):
		return "Requeue"
	case v.Row.Row.Status == event.Failed && v.Row.Row.IsHead && p.Offers(operator.ActionRetry):
		return "Retry"
	}
	return ""
}

// previewLines is how many lines of the payload are shown beside what happened.
const previewLines = 14

// preview is the first lines of an event's payload, and how many more there are.
func preview(e event.Event) (string, int) {
	lines := strings.Split(ui.PrettyJSON(e.Payload), "\n")
	shown := lines[:min(len(lines), previewLines)]
	for i, l := range shown {
		if len(l) > treeKey {
			shown[i] = strings.ToValidUTF8(l[:treeKey], "") + "…"
		}
	}
	return strings.Join(shown, "\n"), len(lines) - len(shown)
}

// envelopeText is a field of an event; Seq is the event of the same campaign that it refers to, or
// 0.
type envelopeText struct {
	Name, Value string
	Seq         int64
}

func envelopeTexts(d campaign.EventDetail) []envelopeText {
	e := d.Event
	all := []envelopeText{
		{"Event id", e.EventID, 0}, {"Actor", strings.TrimSpace(e.ActorType + " " + e.ActorID), 0},
		{"Entity", strings.TrimSpace(e.EntityType + " " + e.EntityID), 0}, {"Session", e.SessionID, 0},
		{"Request", e.RequestID, 0}, {"Correlation", e.CorrelationID, d.CorrelationSeq}, {"Causation", e.CausationID, d.CausationSeq},
		{"Event hash", e.EventHash, 0}, {"Chain hash", e.ChainHash, 0},
	}
	return slices.DeleteFunc(all, func(t envelopeText) bool { return t.Value == "" })
}

// documentsOf returns the tags and metadata, if there are any.
func documentsOf(d campaign.EventDetail) []Document {
	if hidesAll(d.Event) {
		return nil
	}
	var all []Document
	for _, part := range []event.Part{event.PartTags, event.PartMetadata} {
		if d.Sizes.Of(part) > InlineDocument || !ui.EmptyJSON(d.Event.Document(part)) {
			all = append(all, documentOf(d.Event, d.Sizes, part))
		}
	}
	return all
}
