// Package system holds the pages of the system: instances, alerts, audit log, tokens, documents and refusals.
package system

import (
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// words is the glossary of the pages.
var words = []ui.NamedText{
	{Name: "journal", Value: "the append-only table of events; the source of truth"},
	{Name: "campaign", Value: "the ordering scope; its events are numbered 1, 2, 3, … (seq)"},
	{Name: "row", Value: "an event not yet applied to the projections"},
	{Name: "head", Value: "a campaign's row with the lowest seq; only the head may be applied"},
	{Name: "pending", Value: "waits for its turn"},
	{Name: "processing", Value: "leased by a worker, being applied"},
	{Name: "failed", Value: "will be retried"},
	{Name: "dead", Value: "failed permanently; needs an operator"},
	{Name: "blocked", Value: "a campaign whose head is dead; the rows behind it wait"},
	{Name: "watermark", Value: "the highest seq up to which every event of a campaign is applied"},
	{Name: "gap", Value: "events above the watermark that have no row"},
	{Name: "lag", Value: "events, or time, between the journal and the projections"},
	{Name: "requeue", Value: "dead becomes pending, attempts 0, due now"},
	{Name: "replay", Value: "enqueues every unapplied event of a campaign again"},
	{Name: "lease, epoch", Value: "the exclusive right to apply a campaign until a deadline; the epoch is its fencing token"},
}

func sortedFields(fields map[string]string) []ui.NamedText {
	var out []ui.NamedText
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, ui.NamedText{Name: name, Value: fields[name]})
	}
	return out
}

// perOne is the mean time of n things from their total.
func perOne(seconds float64, n int64) string {
	if n == 0 {
		return "0 ms"
	}
	return strconv.FormatFloat(seconds*1000/float64(n), 'f', 2, 64) + " ms"
}

func share(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	return strconv.FormatInt(part*100/whole, 10) + "%"
}

func lastMigration(d database.DatabaseInfo) (version int64) {
	for _, m := range d.Migrations {
		if m.AppliedAt != nil {
			version = max(version, m.Version)
		}
	}
	return version
}

// byGiver splits settings into those set explicitly and defaults.
func byGiver(all []database.Setting) (given, standard []database.Setting) {
	for _, x := range all {
		if x.Given {
			given = append(given, x)
		} else {
			standard = append(standard, x)
		}
	}
	return given, standard
}

// Problem is an error as a page shows it.
type Problem struct {
	Status         int
	Detail         string
	Fields         map[string]string // field → what is wrong with it
	RequestID      string            `redact:"-"`
	ProxyRequestID string            `redact:"-"` // the one that a trusted proxy gave the request, or empty
	Back           ui.URL            // the page of the same object, or empty
	Whole          ui.URL            // the page without the query that was refused, or empty
	Run            int64             // the blocking run, or 0
	Source         string            // the source with what is in the way, or empty
	Typed          map[string]string `redact:"-"` // the reader's input, by field
}

// titles are HTTP's status texts in an operator's words.
var titles = map[int]string{
	http.StatusUnauthorized:          "Sign-in required",
	http.StatusForbidden:             "Not allowed",
	http.StatusNotFound:              "Not found",
	http.StatusConflict:              "This has changed",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusUnprocessableEntity:   "Check your input",
	http.StatusInternalServerError:   "Something went wrong",
	http.StatusServiceUnavailable:    "Not available right now",
	http.StatusInsufficientStorage:   "Disk full",
	http.StatusGatewayTimeout:        "Not yet",
}

func (p Problem) title() string {
	if title, ok := titles[p.Status]; ok {
		return title
	}
	return http.StatusText(p.Status)
}
