package search

import (
	"cmp"
	"slices"
)

// FindingKind is what a search has found.
type FindingKind string

// The kinds of findings, in the order in which they are shown.
const (
	FoundRange      FindingKind = "range" // the events of an entity, or with a text, in a range of time
	FoundCampaign   FindingKind = "campaign"
	FoundEvent      FindingKind = "event"
	FoundRejection  FindingKind = "rejection" // a rejected row of a source
	FoundEntity     FindingKind = "entity"
	FoundRequest    FindingKind = "request"
	FoundRun        FindingKind = "run"
	FoundOperation  FindingKind = "operation"
	FoundCause      FindingKind = "cause"
	FoundProjection FindingKind = "projection"
	FoundPublisher  FindingKind = "publisher"
	FoundSource     FindingKind = "source"
	FoundActor      FindingKind = "actor"  // of actions, or the request that asked for them
	FoundText       FindingKind = "text"   // in the latest events, if nothing is named so
	FoundAction     FindingKind = "action" // that the text asks for, on what it names
)

// FindingKinds lists every kind in the order of pages.
var FindingKinds = []FindingKind{FoundRange, FoundCampaign, FoundEvent, FoundRejection, FoundEntity, FoundRequest, FoundRun, FoundOperation, FoundCause, FoundProjection, FoundPublisher, FoundSource, FoundActor, FoundText, FoundAction}

// Finding is one thing that a search has found.
type Finding struct {
	Kind FindingKind
	// Certain: the text names this and nothing else of its kind.
	Certain bool

	CampaignID  string      `redact:"-"` // of a campaign, an event or a rejected row
	Seq         int64       // of an event
	ID          int64       // of a run, an operation or a rejected row
	Fingerprint string      `redact:"-"` // of a cause
	Name        string      `redact:"-"` // of a projection, publisher, source or actor, or of the source of a rejected row
	Page        string      `redact:"-"` // of an action or an actor, below the base path
	Events      EventFilter `redact:"-"` // of a range, an entity, a request or a text
	Note        string      // what it is, in a few words
}

// Findings is the answer to a search.
type Findings struct {
	Text  string `redact:"-"` // as it was typed
	Asked Asked  `redact:"-"`
	Found []Finding
}

// Miss is a value that an empty search named, and that nothing in the journal has.
type Miss struct {
	Field string `redact:"-"` // the parameter of the filter, such as event_type
	Value string `redact:"-"` // as it was typed
}

// missed say which value does not exist.
var missed = map[string]string{"event_type": "no event has the type", "campaign": "there is no campaign", "event_id": "no event has the id",
	"entity_id": "no event has the entity id", "request_id": "no event has the request id"}

// Sentence says what does not exist.
func (m Miss) Sentence() string { return missed[m.Field] + " " + m.Value }

// Only returns the finding that the search is about: the campaign that the text certainly names, or else what it
// does, if that is one thing only; none if it names a time or an action.
func (f Findings) Only() (Finding, bool) {
	var only Finding
	n := 0
	for _, one := range f.Found {
		if one.Kind == FoundAction {
			return only, false
		}
		if one.Certain && (n == 0 || only.Kind != FoundCampaign) {
			only = one
			n++
		}
	}
	return only, (n == 1 || only.Kind == FoundCampaign) && f.Asked.Since.IsZero()
}

// SortFindings returns findings in the order of pages: a range of time first, then what is certain,
// then by kind.
func SortFindings(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(slices.Index(FindingKinds, a.Kind), slices.Index(FindingKinds, b.Kind)))
	})
	return all
}

func (f Finding) place() int {
	switch {
	case f.Kind == FoundRange || f.Kind == FoundAction:
		return 0
	case f.Certain:
		return 1
	default:
		return 2
	}
}
