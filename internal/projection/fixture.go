package projection

import (
	"context"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// FixtureForm is the form of fixtures, which their files name.
const FixtureForm = 1

// Fixture is a failing event with what it takes to see it fail elsewhere. It is a file of JSON.
type Fixture struct {
	Form        int              `json:"outboxweb_fixture"`
	Database    string           `json:"database" api:"enum=sqlite postgres"` // of the projections, in whose words the errors are
	LiveBefore  bool             `json:"live_before"`                         // the live projections have the events before it
	Expected    EventExplanation `json:"expected"`                            // which event fails, where and with what
	Notes       []string         `json:"notes"`                               // why it may not fail alike elsewhere, in sentences
	Hidden      int64            `json:"hidden_events"`                       // events with hidden values
	AuditOnly   map[string]bool  `json:"audit_only"`                          // the event types that no projection gets
	Projections []File           `json:"projections"`                         // in load order, without those that are written in Go
	Events      []event.Event    `json:"events"`                              // of the campaign, up to the failing one
}

// Hide notes that values are hidden in events.
func (f *Fixture) Hide() {
	for i := range f.Events {
		if len(f.Events[i].Redacted) > 0 {
			f.Hidden++
		}
	}
	if f.Hidden > 0 {
		f.Notes = append(f.Notes, "Values of "+event.Count(f.Hidden, "event", "events")+" are hidden in this file: with others the event may be applied, or fail differently.")
	}
}

// SharedNotes say that whether rows fit into a projection's tables depends on other campaigns, if it does.
func (p *Projection) SharedNotes() []string {
	if shared := p.Shared(); len(shared) > 0 {
		return []string{"Keys of " + strings.Join(shared, ", ") + " are shared by all campaigns, and rows of other campaigns are not in this file."}
	}
	return nil
}

// Dialect is the kind of database that the set is for: sqlite or postgres.
func (s *Set) Dialect() string { return s.dialect }

// OfTexts loads projections for SQLite from the texts of files, and checks them as Check does.
func OfTexts(ctx context.Context, texts []File) (*Set, error) {
	s := new(Set)
	for _, t := range texts {
		s.files = append(s.files, file{name: t.Name, content: t.Text})
	}
	return s.checked(ctx)
}

// Alike reports whether the event fails here as it is expected to: at the same statement with the same words. Where
// the words are those of another database, or values are hidden in them, it is for the same reason.
func (f *Fixture) Alike(s *Set, want ExplainedFailure, got string) bool {
	e := &f.Events[len(f.Events)-1]
	there, ok := readError(want.Error, e.EventType)
	here, also := readError(got, e.EventType)
	if !ok || !also || there.projection != here.projection || there.line != here.line {
		return false
	}
	line := func(cause string) string { cause, _, _ = strings.Cut(cause, "\n"); return cause } // the stack of a panic follows
	if f.Database == s.dialect && !strings.Contains(want.Error, event.Hidden) {
		return line(there.cause) == line(here.cause)
	}
	open := Hider{Event: func(e event.Event) event.Event { return e }, Name: func(string) bool { return false }}
	a, b := s.Explain(context.Background(), nil, e, want.Error, open), s.Explain(context.Background(), nil, e, got, open)
	if a.Constraint == nil || b.Constraint == nil {
		return a.Reason == b.Reason && (a.Reason != refused || there.cause == here.cause)
	}
	return a.Constraint.Kind == b.Constraint.Kind && a.Constraint.Table == b.Constraint.Table
}
