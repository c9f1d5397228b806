// Package finding has the form of what is wrong now. Each feature says what it finds wrong with its own
// state; pages, commands, answers and alerts print the list, and decide nothing of their own.
package finding

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Level is the severity of a state: it decides the colour and icon on pages.
type Level string

// The levels, best first.
const (
	OK   Level = "ok"
	Busy Level = "busy" // it will recover without action
	Warn Level = "warn"
	Bad  Level = "bad" // action is needed
)

var levels = []Level{OK, Busy, Warn, Bad}

// Kind is what is wrong, whatever the subject.
type Kind string

// Finding is something that is wrong now with one subject.
type Finding struct {
	Kind    Kind   `json:"kind"`
	Level   Level  `json:"level"`              // ok: it only waits to be read
	Subject string `json:"subject" redact:"-"` // the publisher, instance, source, projection, run or operation; empty where the kind has one subject only
	Count   int64  `json:"count"`              // rows, campaigns, events or errors
	Says    string `json:"says"`               // what is wrong, without a final period
	Does    string `json:"does"`               // what to do about it, in whole sentences; empty if nothing
	Error   string `json:"error"`              // the last one behind it; empty if unknown
	Owner   *Owner `json:"owner"`              // who is on it; nil if nobody is
	// since when, as far as is known
	Since *time.Time `json:"since"`
	Guide string     `json:"guide"` // the document and heading that explain it, such as "operating#lag-rises"
	Page  string     `json:"page"`  // the page that shows it, below the base path
	Link  string     `json:"-"`     // the words of a link to that page
	Runs  bool       `json:"-"`     // the page prepares a run, for readers who may start one
	Items []Item     `json:"-"`     // some of what it is about
	Short string     `json:"-"`     // two words for the title of a page
	// which alert it is, of all of its rule; empty for the one of its subject
	Key  string `json:"-"`
	Many string `json:"-"` // says it of several subjects, after their number
	// what the rules of alerts watch that it is a cause of
	Alerts []string `json:"-"`
	Build  string   `json:"-"` // of the program that had the error; empty if unknown
	// in which the error happened, and its version; empty if unknown
	Projection, Version string `json:"-"`
	// Worked is when the subject last worked; zero if that is unknown or never was. What began before is over.
	Worked time.Time `json:"-"`
	// Lingers means that it is no news: an alert about it stays, and none begins.
	Lingers bool `json:"-"`
}

// Item is one object of a finding.
type Item struct {
	Name, Note string
	Page       string    // below the base path
	At         time.Time // follows the note; zero for none
}

// Begins returns when it began; the zero time if that is unknown.
func (f Finding) Begins() time.Time {
	if f.Since == nil {
		return time.Time{}
	}
	return *f.Since
}

// List is what is wrong now, the worst first.
type List []Finding

// Sort puts the worst first, and keeps the order within a level.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b Finding) int {
		return cmp.Compare(slices.Index(levels, b.Level), slices.Index(levels, a.Level))
	})
}

// Worst is the level of the worst finding; OK without one.
func (l List) Worst() Level {
	worst := OK
	for _, f := range l {
		worst = Worse(worst, f.Level)
	}
	return worst
}

// Worse is the worse of two levels.
func Worse(a, b Level) Level { return levels[max(slices.Index(levels, a), slices.Index(levels, b))] }

// At counts the findings of a level.
func (l List) At(level Level) int64 {
	return int64(len(l.where(func(f Finding) bool { return f.Level == level })))
}

// Of are the findings of these kinds.
func (l List) Of(kinds ...Kind) List {
	return l.where(func(f Finding) bool { return slices.Contains(kinds, f.Kind) })
}

// Causing are the findings that are causes of a rule of alerts, by what the rule watches.
func (l List) Causing(what string) List {
	return l.where(func(f Finding) bool { return slices.Contains(f.Alerts, what) })
}

func (l List) where(wanted func(Finding) bool) (of List) {
	for _, f := range l {
		if wanted(f) {
			of = append(of, f)
		}
	}
	return of
}

// Short is the worst in a few words, for the title of a page; empty unless someone should look.
func (l List) Short() string {
	if w := l.Worst(); w != Bad && w != Warn {
		return ""
	}
	var n int64
	for _, f := range l.Of(l[0].Kind) {
		n += f.Count
	}
	return strings.Replace(l[0].Short, "%d", strconv.FormatInt(n, 10), 1)
}

// Grouped has one finding for all subjects of a kind, which are its items, in the order of the worst of them.
func (l List) Grouped() (groups List) {
	for _, f := range l {
		of := l.Of(f.Kind)
		switch first := !slices.ContainsFunc(groups, func(g Finding) bool { return g.Kind == f.Kind }); {
		case first && len(of) > 1:
			groups = append(groups, of.together())
		case first:
			groups = append(groups, f)
		}
	}
	return groups
}

// together is one finding for several of a kind.
func (l List) together() Finding {
	g := l[0]
	g.Subject, g.Count, g.Error, g.Says, g.Items = "", 0, "", strconv.Itoa(len(l))+" "+g.Many, nil
	for _, f := range l {
		g.Count += f.Count
		if f.Owner.Says() != g.Owner.Says() {
			g.Owner = nil
		}
		if len(f.Items) == 0 {
			f.Items = []Item{{Name: f.Subject, Note: f.Error, Page: f.Page}}
		}
		g.Items = append(g.Items, f.Items...)
		if f.Does != g.Does {
			g.Does = ""
		}
	}
	if path, _, nested := strings.Cut(strings.TrimPrefix(g.Page, "/"), "/"); nested && !g.Runs {
		g.Page, g.Link = "/"+path, "Show "+path
	}
	return g
}
