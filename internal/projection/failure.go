package projection

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// EventExplanation says why projections cannot apply an event.
type EventExplanation struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	Seq        int64  `json:"seq"`
	EventType  string `json:"event_type" redact:"-"`
	// Failures are the last failure of the event's row, and the open one of each quarantined
	// projection; empty when there is none.
	Failures []ExplainedFailure `json:"failures"`
}

// ExplainedFailure is one projection's failure at an event, explained by the loaded projections and
// the live rows. Values that look like secrets are hidden in it.
type ExplainedFailure struct {
	Projection string `json:"projection" redact:"-"` // empty if unknown
	Error      string `json:"error"`                 // as recorded
	Reason     string `json:"reason"`                // one sentence: what the database refused
	// Unexplained says why there is no statement; empty if there is one.
	Unexplained   string `json:"unexplained"`
	FailedVersion string `json:"failed_version"` // of the projection's definition; empty if unknown
	LoadedVersion string `json:"loaded_version"` // empty if it is not loaded
	// Statement is the one that failed, as the loaded file has it; nil without one.
	Statement *FailedStatement `json:"statement"`
	// Constraint is the one that refused the values; nil if it was none, or is unknown.
	Constraint *Constraint `json:"constraint"`
	// Existing is the live row that has the key already; nil if there is none, or it was not found.
	Existing *ExistingRow `json:"existing"`
}

// VersionChanged says that another version of the projection failed than the loaded one; empty if
// it did not, or is not known.
func (f ExplainedFailure) VersionChanged() string {
	if f.FailedVersion == "" || f.LoadedVersion == "" || f.FailedVersion == f.LoadedVersion {
		return ""
	}
	return "The loaded version differs from the one that failed (" + event.ShortHash(f.FailedVersion) + " → " + event.ShortHash(f.LoadedVersion) + "): the statement may have changed."
}

// FailedStatement is a statement of a projection's file with the values that the event binds.
type FailedStatement struct {
	File   string       `json:"file" redact:"-"` // without its directory
	Line   int          `json:"line"`            // its first one
	Lines  []SourceLine `json:"lines"`           // the statement and a few lines around it
	Values []BoundValue `json:"values"`          // in the order in which the statement names them
}

// SourceLine is a line of a projection's file.
type SourceLine struct {
	Number int    `json:"number"`
	Text   string `json:"text" redact:"-"` // of the operator's own file
	Failed bool   `json:"failed"`          // it belongs to the statement that failed
}

// BoundValue is a value that an event binds to a statement.
type BoundValue struct {
	Name    string          `json:"name" redact:"-"`    // as the file names it, such as :payload.user_id
	Value   json.RawMessage `json:"value"`              // any JSON value; hidden where the event's own is
	Columns []string        `json:"columns" redact:"-"` // which it is written to, or compared with
	// Computed are those of the columns that it is only an input of: what is written is not known.
	Computed []string `json:"computed" redact:"-"`
	Missing  bool     `json:"missing"` // required, and the event does not have it
	Refused  bool     `json:"refused"` // it is a value of the constraint's columns
}

// The kinds of constraints.
const (
	ConstraintUnique  = "unique"
	ConstraintNotNull = "not_null"
	ConstraintCheck   = "check"
	ConstraintForeign = "foreign_key"
)

// Constraint is a rule of a table.
type Constraint struct {
	Kind       string   `json:"kind" api:"enum=unique not_null check foreign_key"`
	Table      string   `json:"table" redact:"-"`
	Columns    []string `json:"columns" redact:"-"`    // empty if unknown
	Definition string   `json:"definition" redact:"-"` // as the database says it; empty if unknown
}

// ExistingRow is a live row of a projection.
type ExistingRow struct {
	Table  string  `json:"table" redact:"-"`
	Fields []Field `json:"fields"`
	More   int     `json:"more"` // columns that are left out
	// SetBy is the event that changed the row last, by a replay of the journal; 0 if that was not found
	// out.
	SetBy int64 `json:"set_by"`
}

// ComparedColumn is a column of a failed statement: what the event gives it, and what the row that
// has the key already holds.
type ComparedColumn struct {
	Name             string // a dash if it is not known
	Binding          string // empty if the event gives it nothing
	Value, Existing  json.RawMessage
	Refused, Missing bool
	Computed         bool // of a column of the constraint: Value is an input of what is written
	whole            bool // what is written is what the event binds
}

// Compared lists the columns of the failed statement, those that were refused first.
func (f ExplainedFailure) Compared() []ComparedColumn {
	var all []ComparedColumn
	same := f.VersionChanged() == "" // another version may have mended it
	for _, v := range f.Statement.Values {
		names := v.Columns
		if len(names) == 0 {
			names = []string{"–"}
		}
		for _, name := range names {
			all = append(all, ComparedColumn{Name: name, Binding: v.Name, Value: asTime(v.Name, v.Value), Missing: v.Missing, Computed: f.keyed(name) && slices.Contains(v.Computed, name), whole: !slices.Contains(v.Computed, name),
				Refused: same && (v.Missing || v.Refused && f.keyed(name))})
		}
	}
	if f.Existing != nil {
		for _, field := range f.Existing.Fields {
			i := slices.IndexFunc(all, func(c ComparedColumn) bool { return c.Name == field.Name })
			if i < 0 {
				i, all = len(all), append(all, ComparedColumn{Name: field.Name, Refused: same && f.keyed(field.Name)})
			}
			if all[i].Existing = field.Value; all[i].whole {
				all[i].Existing = asTime(all[i].Binding, field.Value)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ComparedColumn) int { return event.Truth(b.Refused) - event.Truth(a.Refused) })
	return all
}

// asTime is the value of a binding; a time instead of the microseconds since 1970 that files bind.
func asTime(binding string, value json.RawMessage) json.RawMessage {
	micros, err := strconv.ParseInt(string(value), 10, 64)
	if name := strings.TrimSuffix(binding, "!"); err != nil || name != ":occurred_at" && name != ":recorded_at" {
		return value
	}
	return json.RawMessage(strconv.Quote(timeText(time.UnixMicro(micros))))
}

// keyed reports whether a column belongs to the constraint that refused the values.
func (f ExplainedFailure) keyed(column string) bool {
	return f.Constraint != nil && slices.Contains(f.Constraint.Columns, column)
}

// Hider hides secrets where a value is taken apart, so that its fields' types do not tell what is in
// it.
type Hider struct {
	Event func(event.Event) event.Event // the event as readers may see it
	Name  func(string) bool             // reports whether the value of a name is hidden, whatever it is
}
