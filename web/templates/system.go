package templates

import (
	"maps"
	"slices"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func (l Links) Metrics() URL { return l.at(nil, "metrics") }
func (l Links) Ready() URL   { return l.at(nil, "readyz") }

// modeName is a mode in words; its setting is in titles and on the page of the system.
func modeName(m outbox.Mode) string {
	switch m {
	case outbox.ModeInline:
		return "applied on append"
	case outbox.ModeShadow:
		return "shadow: nothing is applied"
	default:
		return "applied by workers"
	}
}

func modeMeaning(m outbox.Mode) string {
	switch m {
	case outbox.ModeInline:
		return "appends apply events on the request path; the worker retries those that failed"
	case outbox.ModeShadow:
		return "appends enqueue events; the worker rehearses applying them and changes nothing"
	default:
		return "appends enqueue events; the worker applies them"
	}
}

// words is the glossary of the pages.
var words = []namedText{
	{"journal", "the append-only table of events; the source of truth"},
	{"campaign", "the ordering scope; its events are numbered 1, 2, 3, … (seq)"},
	{"row", "an event not yet applied to the projections"},
	{"head", "a campaign's row with the lowest seq; only the head may be applied"},
	{"pending", "waits for its turn"},
	{"processing", "leased by a worker, being applied"},
	{"failed", "will be retried"},
	{"dead", "failed permanently; needs an operator"},
	{"blocked", "a campaign whose head is dead; the rows behind it wait"},
	{"watermark", "the highest seq up to which every event of a campaign is applied"},
	{"gap", "events above the watermark that have no row"},
	{"lag", "events, or time, between the journal and the projections"},
	{"requeue", "dead becomes pending, attempts 0, due now"},
	{"replay", "enqueues every unapplied event of a campaign again"},
	{"lease, epoch", "the exclusive right to apply a campaign until a deadline; the epoch is its fencing token"},
}

func sortedFields(fields map[string]string) []namedText {
	var out []namedText
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, namedText{name, fields[name]})
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

func lastMigration(d outbox.DatabaseInfo) (version int64) {
	for _, m := range d.Migrations {
		if m.AppliedAt != nil {
			version = max(version, m.Version)
		}
	}
	return version
}

// byGiver splits settings into those set explicitly and defaults.
func byGiver(all []outbox.Setting) (given, standard []outbox.Setting) {
	for _, x := range all {
		if x.Given {
			given = append(given, x)
		} else {
			standard = append(standard, x)
		}
	}
	return given, standard
}
