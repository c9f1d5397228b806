package campaigns

import (
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// fullTime is a time with its day, in UTC.
const fullTime = "2006-01-02 15:04:05"

// foundLook is how findings of a kind are shown.
type foundLook struct {
	heading string
	title   func(search.Finding) string // the words of a link to one; nil for its note
	to      func(ui.Links, search.Finding) ui.URL
}

var foundLooks = map[search.FindingKind]foundLook{
	search.FoundRange:     {"Events in this time", nil, foundEvents},
	search.FoundCampaign:  {"Campaigns", func(f search.Finding) string { return f.CampaignID }, func(l ui.Links, f search.Finding) ui.URL { return l.Campaign(f.CampaignID) }},
	search.FoundEvent:     {"Events", func(f search.Finding) string { return f.CampaignID + "/" + ui.Itoa(f.Seq) }, func(l ui.Links, f search.Finding) ui.URL { return l.Event(f.CampaignID, f.Seq) }},
	search.FoundRejection: {"Rejected rows", func(f search.Finding) string { return "rejected row " + ui.Itoa(f.ID) + " of source " + f.Name }, rejectionLink},
	search.FoundEntity:    {"Entities", nil, foundEvents},
	search.FoundRequest:   {"Requests", nil, foundEvents},
	search.FoundRun:       {"Runs", func(f search.Finding) string { return "run " + ui.Itoa(f.ID) }, func(l ui.Links, f search.Finding) ui.URL { return l.RunOf(f.ID) }},
	search.FoundOperation: {"Operations", func(f search.Finding) string { return "operation " + ui.Itoa(f.ID) }, func(l ui.Links, f search.Finding) ui.URL { return l.OperationOf(f.ID) }},
	search.FoundCause:     {"Causes of failures", func(f search.Finding) string { return f.Fingerprint }, func(l ui.Links, f search.Finding) ui.URL { return l.FailureGroup(f.Fingerprint) }},
	search.FoundPublisher: {"Publishers", foundName, func(l ui.Links, f search.Finding) ui.URL {
		topic, name, _ := strings.Cut(f.Name, "/")
		return l.Publisher(operator.SubscriptionName{Topic: topic, Publisher: name})
	}},
	search.FoundSource:     {"Sources", foundName, func(l ui.Links, f search.Finding) ui.URL { return l.SourceOf(f.Name) }},
	search.FoundActor:      {"What was done", foundName, foundPage},
	search.FoundText:       {"Events with this text", foundName, foundEvents},
	search.FoundAction:     {"Actions", foundName, foundPage},
	search.FoundProjection: {"Projections", func(f search.Finding) string { return f.Name }, func(l ui.Links, f search.Finding) ui.URL { return l.Projection(f.Name) }},
}

func foundName(f search.Finding) string { return f.Name }

func foundPage(l ui.Links, f search.Finding) ui.URL { return l.Below(f.Page) }

func foundEvents(l ui.Links, f search.Finding) ui.URL { return l.SearchEvents(f.Events) }

func rejectionLink(l ui.Links, f search.Finding) ui.URL {
	return l.Source(f.Name, "", 0) + "#rejection-" + ui.URL(ui.Itoa(f.ID))
}

// FindingURL is what a search has found.
func FindingURL(l ui.Links, f search.Finding) ui.URL { return foundLooks[f.Kind].to(l, f) }

// FindingTitle is the words of a link to a finding.
func FindingTitle(f search.Finding) string {
	if title := foundLooks[f.Kind].title; title != nil {
		return title(f)
	}
	return f.Note
}

// findingNote is what is said beside the link.
func findingNote(f search.Finding) string {
	switch f.Kind {
	case search.FoundRange:
		return strings.ToLower(timeSearched(f.Events)) + " " + searchedRange(f.Events)
	case search.FoundEntity, search.FoundRequest:
		return ""
	}
	return f.Note
}

func findingsOf(all []search.Finding, kind search.FindingKind) []search.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f search.Finding) bool { return f.Kind != kind })
}

// suggested bounds the options of the search box.
const suggested = 8

func eventsForm(p ui.Page, v EventsView) ui.FilterForm {
	return ui.FilterForm{Filter: v.Filter, To: p.Links.SearchEvents(search.EventFilter{}), Name: "Events", Does: "Search", Clear: !v.Filter.Empty(),
		First:  []string{"q", "event_type", "entity_type", "entity_id", "time", "since", "until", "campaign", "event_id", "tag"},
		Always: 7,
		Offers: map[string][]string{"event_type": v.Offered.Values.EventTypes, "entity_type": v.Offered.Values.EntityTypes}}
}

// timeSearched begins the sentence about the range of time of a search.
func timeSearched(f search.EventFilter) string {
	if f.Occurred() {
		return "Occurred"
	}
	return "Recorded"
}

// apart reports whether an event occurred at another time than it was recorded at.
func apart(e *search.EventHit) bool { return e.RecordedAt.Sub(e.OccurredAt).Abs() >= time.Minute }

// byOccurrence is the filter with its range of time compared with when events occurred, from the first page.
func byOccurrence(f search.EventFilter) search.EventFilter {
	f.Time, f.Cursor = "occurred", ""
	return f
}

// searchedRange says the range of time of a filter: "2026-11-22 14:00:00 to 14:10:00 UTC".
func searchedRange(f search.EventFilter) string {
	const full, clock = fullTime, "15:04:05"
	since, until := f.Since.UTC(), f.Until.UTC()
	switch {
	case !f.Ranged():
		return ""
	case f.Until.IsZero():
		return "since " + since.Format(full) + " UTC"
	case f.Since.IsZero():
		return "until " + until.Format(full) + " UTC"
	case since.Format("2006-01-02") == until.Format("2006-01-02"):
		return since.Format(full) + " to " + until.Format(clock) + " UTC"
	}
	return since.Format(full) + " to " + until.Format(full) + " UTC"
}

// looked says how far a page of a search looked: "Looked through events 9,812,400–9,612,400, back to
// 2026-11-22 14:02:00 UTC".
func looked(v EventsView) string {
	l := v.Page.Looked
	if l.First == 0 || l.First == l.Last && len(v.Page.Items) == 0 && v.Page.NextCursor == nil && l.Back.IsZero() {
		return ""
	}
	text := "Looked through events " + ui.Num(l.First) + "–" + ui.Num(l.Last)
	if l.By == "seq" {
		text += " of campaign " + v.Filter.CampaignID
	}
	switch {
	case l.Exact && v.Page.NextCursor == nil && len(v.Page.Items) == 0:
		text = "Searched events " + ui.Num(l.First) + "–" + ui.Num(l.Last) + " with an index"
	case l.Exact && v.Page.NextCursor == nil:
		text = "Found by an index in events " + ui.Num(l.First) + "–" + ui.Num(l.Last)
	}
	if !l.Back.IsZero() {
		text += map[bool]string{false: ", back to ", true: ", up to "}[v.Filter.Reverse] + l.Back.UTC().Format(fullTime) + " UTC"
	}
	if v.Filter.Ranged() && !v.Filter.Occurred() && !l.Exact {
		text += "; events recorded up to " + event.Age(search.ClockTolerance) + " outside the range are compared too, since clocks may differ"
	}
	return text + "."
}

// eventsPager is the navigation of a search of events.
func eventsPager(p ui.Page, v EventsView) ui.PagerView {
	v.Filter.Settled = false
	view := ui.PagerOf(v.Page.Page, &v.Filter.Cursor, func() ui.URL { return p.Links.SearchEvents(v.Filter) })
	view.Note = "" // looked says it
	if len(v.Page.Items) == 0 {
		view.Shown = ""
	}
	return view
}

// settledLink asks for the settled position of a search that a condition can repeat; empty for others.
func settledLink(p ui.Page, f search.EventFilter) ui.URL {
	if f.Settled = true; f.EventType+f.Tag == "" || f.CheckSettled() != nil {
		return ""
	}
	return p.Links.SearchEvents(f)
}

// entityFilter selects the events of the same entity.
func entityFilter(e *search.EventHit) search.EventFilter {
	return search.EventFilter{EntityType: e.EntityType, EntityID: e.EntityID}
}
