// Package ui holds the frame of the pages and the parts that they share: addresses, lists, forms,
// texts, and what an action did. Components take domain values and the time they are shown at; they
// do no I/O and do not use the store.
package ui

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/static"
)

// Page is the data that every page needs beside its own content.
type Page struct {
	Links    Links
	Key      string   `redact:"-"` // unique to this rendering, to distinguish forms
	Flags    []string `redact:"-"` // the flags with which a command uses this server's databases
	Origin   string   `redact:"-"` // scheme and host as the reader sees them, such as http://127.0.0.1:8080
	Title    string   `redact:"-"` // names the page's object by its identifiers
	Nav      string   `redact:"-"` // the current entry of the navigation
	Mode     campaign.Mode
	Around   campaign.Surroundings // to explain why campaigns do or do not progress
	Me       operator.Identity     `redact:"-"` // the reader
	SignOut  URL                   `redact:"-"` // where the reader's session is ended; empty if it cannot be
	ReadOnly bool
	Embedded bool // settings are fields of the program that serves the page, not flags
	DryRun   bool // dry runs are offered
	Travel   bool // read models as of an event are offered
	Rehearse bool // rehearsals are offered
	// ReasonFrom is the number of released rows from which an action requires a reason; 0 means
	// never.
	ReasonFrom int64
	// Failing has the projections whose loaded version fails now, or has quarantined them, each with the
	// fingerprint of its worst error. It is set where a run can be started.
	Failing map[string]string `redact:"-"`
	// Loaded are the loaded projections with the versions that built their rows.
	Loaded []campaign.ProjectionInfo `redact:"-"`
	// Judged is the cause that an action on the page would retry; nil if there is none, or several.
	Judged   *Judged
	Findings finding.List `redact:"-"` // what is wrong, of which the title shows kinds and numbers alone
	NoneDead bool         // no row was dead a moment ago
	Version  string
	Running  campaign.Running
	Now      time.Time
	AsOf     time.Time            // when the content was read; zero means Now
	Self     URL                  // the URL that refreshes the live part; empty for a page that does not refresh
	Twin     URL                  // the JSON equivalent; empty if there is none
	Flash    *operator.AuditEntry // the action that led here, or nil
	After    campaign.Aftermath   // what became of it
}

// Setting names a setting where the reader can change it: a flag, or a field of the program that
// outboxweb is embedded in.
func (p Page) Setting(flag, field string) string {
	if p.Embedded {
		return "Config." + field
	}
	return flag
}

func (p Page) asOf() time.Time {
	if p.AsOf.IsZero() {
		return p.Now
	}
	return p.AsOf
}

// LiveTarget is the id of the element that refreshes itself; htmx sends it in the header HX-Target
// when it requests only the fragment.
const LiveTarget = "live"

// htmxConfig keeps htmx within the content security policy: it evaluates nothing, adds no style,
// and shows error pages of forms where they belong.
const htmxConfig = `{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"historyCacheSize":0,` +
	`"selfRequestsOnly":true,"refreshOnHistoryMiss":true,"responseHandling":[{"code":"[23]0[0-3]","swap":true},` +
	`{"code":"304","swap":false},{"code":"[45]..","swap":true,"error":true}]}`

// Num formats a number with thousands separators: 44,200.
func Num(n int64) string { return event.Number(n) }

// Some is a number; nothing for zero.
func Some(n int64) string {
	if n == 0 {
		return ""
	}
	return Num(n)
}

func Rate(perSecond float64) string { return campaign.Rate(perSecond) }
func Seconds(s float64) string      { return event.Age(time.Duration(s * float64(time.Second))) }
func ISOTime(t time.Time) string    { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Relative formats a time relative to now: "3 min ago", "in 4 s", "now".
func Relative(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d <= -time.Second:
		return "in " + event.Age(-d)
	case d < time.Second:
		return "now"
	default:
		return event.Age(d) + " ago"
	}
}

// FirstLine is an error's first line, for tables; at most 240 bytes.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if len(line) <= 240 {
		return line
	}
	return strings.ToValidUTF8(line[:240], "") + "…"
}

// PrettyJSON indents the raw bytes: numbers keep every digit.
func PrettyJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}

func EmptyJSON(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s == "" || s == "{}" || s == "null"
}

func Itoa[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

type NamedText struct{ Name, Value string }

func Count(n int64, one, many string) string { return event.Count(n, one, many) }
func Sentence(s string) string               { return event.Sentence(s) }

// ModeName is a mode in words; its setting is in titles and on the page of the system.
func ModeName(m campaign.Mode) string {
	switch m {
	case campaign.ModeInline:
		return "applied on append"
	case campaign.ModeShadow:
		return "shadow: nothing is applied"
	default:
		return "applied by workers"
	}
}

func ModeMeaning(m campaign.Mode) string {
	switch m {
	case campaign.ModeInline:
		return "appends apply events on the request path; the worker retries those that failed"
	case campaign.ModeShadow:
		return "appends enqueue events; the worker rehearses applying them and changes nothing"
	default:
		return "appends enqueue events; the worker applies them"
	}
}

// alarmTitle starts the title of every page while something is wrong, such as "✕ 40 blocked · ".
func alarmTitle(l finding.List) string {
	if l.Short() == "" {
		return ""
	}
	return LevelGlyph(l.Worst()) + " " + l.Short() + " · "
}

// alarmIcon is the icon of the browser's tab.
func alarmIcon(level finding.Level) string {
	switch level {
	case finding.Bad:
		return static.IconBad
	case finding.Warn:
		return static.IconWarn
	}
	return static.Icon
}

// Verb returns the form of the verb for n things.
func Verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
