// Package templates holds the pages. Components take domain values and the time they are shown at;
// they do no I/O and do not use the store.
package templates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Page is the data that every page needs beside its own content.
type Page struct {
	Links    Links
	Key      string   `redact:"-"` // unique to this rendering, to distinguish forms
	Flags    []string `redact:"-"` // the flags with which a command uses this server's databases
	Origin   string   `redact:"-"` // scheme and host as the reader sees them, such as http://127.0.0.1:8080
	Title    string   `redact:"-"` // names the page's object by its identifiers
	Nav      string   `redact:"-"` // the current entry of the navigation
	Mode     outbox.Mode
	Around   outbox.Surroundings // to explain why campaigns do or do not progress
	Me       outbox.Identity     `redact:"-"` // the reader
	SignOut  URL                 `redact:"-"` // where the reader's session is ended; empty if it cannot be
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
	Loaded []outbox.ProjectionInfo `redact:"-"`
	// Judged is the cause that an action on the page would retry; nil if there is none, or several.
	Judged   *Judged
	Findings finding.List `redact:"-"` // what is wrong, of which the title shows kinds and numbers alone
	NoneDead bool         // no row was dead a moment ago
	Version  string
	Running  outbox.Running
	Now      time.Time
	AsOf     time.Time          // when the content was read; zero means Now
	Self     URL                // the URL that refreshes the live part; empty for a page that does not refresh
	Twin     URL                // the JSON equivalent; empty if there is none
	Flash    *outbox.AuditEntry // the action that led here, or nil
	After    outbox.Aftermath   // what became of it
}

// otherBuilt are those of the loaded projections, none meaning all, whose rows were not all built by the
// loaded version.
func (p Page) otherBuilt(projections ...string) (others []outbox.ProjectionInfo) {
	for _, one := range p.Loaded {
		if one.BuiltByOtherVersion && (len(projections) == 0 || slices.Contains(projections, one.Name)) {
			others = append(others, one)
		}
	}
	return others
}

// setting names a setting where the reader can change it: a flag, or a field of the program that
// outboxweb is embedded in.
func (p Page) setting(flag, field string) string {
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

func statusMeaning(s outbox.Status) string {
	switch s {
	case outbox.Pending:
		return "wait for their turn"
	case outbox.Processing:
		return "held by a worker now"
	case outbox.Failed:
		return "will be retried"
	default:
		return "need an operator"
	}
}

// num formats a number with thousands separators: 44,200.
func num(n int64) string { return outbox.Number(n) }

func rate(perSecond float64) string { return outbox.Rate(perSecond) }

func seconds(s float64) string { return outbox.Age(time.Duration(s * float64(time.Second))) }

func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// relative formats a time relative to now: "3 min ago", "in 4 s", "now".
func relative(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d <= -time.Second:
		return "in " + outbox.Age(-d)
	case d < time.Second:
		return "now"
	default:
		return outbox.Age(d) + " ago"
	}
}

// firstLine is an error's first line, for tables; at most 240 bytes.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if len(line) <= 240 {
		return line
	}
	return strings.ToValidUTF8(line[:240], "") + "…"
}

// prettyJSON indents the raw bytes: numbers keep every digit.
func prettyJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}

func emptyJSON(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s == "" || s == "{}" || s == "null"
}

// behindName is the label for unapplied events: in a diverged campaign the projections are not
// simply behind.
func behindName(c outbox.Campaign) string {
	if c.Diverged != "" {
		return "Waiting"
	}
	return "Behind"
}

// pct is how much of the journal is applied, 0 to 100.
func pct(c outbox.Campaign) string {
	if c.HighWaterSeq == 0 {
		return "100"
	}
	return strconv.FormatInt(min(100, max(0, c.AppliedSeq*100/c.HighWaterSeq)), 10)
}

func itoa[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// actionSentence describes an action from its audit record.
func actionSentence(a outbox.AuditEntry) string {
	subject := fmt.Sprintf("event %d of campaign %s", a.Seq, a.CampaignID)
	switch a.Action {
	case outbox.ActionRequeue:
		return "Requeued " + subject + ": pending again, with zero attempts, due now."
	case outbox.ActionRetry:
		return "Retried " + subject + ": due now."
	case outbox.ActionDeadLetter:
		return "Dead-lettered " + subject + ": not retried until it is requeued."
	case outbox.ActionRequeueMany:
		var d outbox.Requeued
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Requeued %s: %s, and %s behind them released.", count(d.Requeued, "dead row", "dead rows"),
				count(d.Heads, "head", "heads"), count(d.Released, "row", "rows"))
		}
		return "Requeued dead rows."
	case outbox.ActionSkip:
		return "Skipped " + subject + ": no projection will apply it, and the rows behind it continue."
	case outbox.ActionUnskip:
		return "Un-skipped " + subject + ": it will be applied like any other event."
	case outbox.ActionOperationStart, outbox.ActionOperationCancel, outbox.ActionOperationAcknowledge:
		return operationSentence(a)
	case outbox.ActionProjectionPause, outbox.ActionProjectionResume:
		return pauseSentence(a)
	case outbox.ActionRunStart, outbox.ActionRunCancel, outbox.ActionRunResume:
		return runActionSentence(a)
	case outbox.ActionRehearse:
		return rehearseSentence(a)
	case outbox.ActionPublisherPauseAll, outbox.ActionPublisherResumeAll:
		return publishersActionSentence(a)
	case outbox.ActionPublisherPause, outbox.ActionPublisherResume, outbox.ActionPublisherReset, outbox.ActionPublisherSeek, outbox.ActionPublisherSkip, outbox.ActionPublisherTest:
		return publisherActionSentence(a)
	case outbox.ActionRetryMany:
		var d outbox.Retried
		if json.Unmarshal(a.After, &d) == nil {
			return fmt.Sprintf("Retried %s: due now.", count(d.Retried, "failed row", "failed rows"))
		}
		return "Retried failed rows: due now."
	case outbox.ActionNoteErrors:
		return "Note saved."
	case outbox.ActionReveal:
		return "Revealed redacted values of " + subject + "."
	case outbox.ActionReplay, outbox.ActionRepairGaps:
		return repairSentence(a)
	case outbox.ActionAlertTest, outbox.ActionAlertMute, outbox.ActionAlertUnmute:
		return alertActionSentence(a)
	case outbox.ActionIntakeRetry, outbox.ActionIntakeDiscard, outbox.ActionIntakeHandOver:
		return intakeActionSentence(a)
	case outbox.ActionTokenCreate, outbox.ActionTokenRevoke:
		return tokenSentence(a)
	case outbox.ActionPause:
		return "Paused campaign " + a.CampaignID + "."
	case outbox.ActionResume:
		return "Resumed campaign " + a.CampaignID + "."
	case outbox.ActionJournalWentBack:
		var w outbox.WentBack
		if json.Unmarshal(a.After, &w) == nil {
			return w.Says()
		}
	}
	return "Done: " + string(a.Action) + "."
}

func repairSentence(a outbox.AuditEntry) string {
	what := "Repaired gaps"
	if a.Action == outbox.ActionReplay {
		what = "Replayed campaign " + a.CampaignID
	}
	var d outbox.Repaired
	if json.Unmarshal(a.After, &d) != nil {
		return what + "."
	}
	if d.Inserted == 0 && d.Removed == 0 {
		return what + ": nothing was missing."
	}
	return fmt.Sprintf("%s: %s enqueued, %s of applied events removed.", what,
		count(d.Inserted, "event", "events"), count(d.Removed, "row", "rows"))
}

// Problem is an error as a page shows it.
type Problem struct {
	Status         int
	Detail         string
	Fields         map[string]string // field → what is wrong with it
	RequestID      string            `redact:"-"`
	ProxyRequestID string            `redact:"-"` // the one that a trusted proxy gave the request, or empty
	Back           URL               // the page of the same object, or empty
	Whole          URL               // the page without the query that was refused, or empty
	Run            int64             // the blocking run, or 0
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

type namedText struct{ Name, Value string }

// envelopeText is a field of an event; Seq is the event of the same campaign that it refers to, or
// 0.
type envelopeText struct {
	Name, Value string
	Seq         int64
}

func envelopeTexts(d outbox.EventDetail) []envelopeText {
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
func documentsOf(d outbox.EventDetail) []Document {
	if hidesAll(d.Event) {
		return nil
	}
	var all []Document
	for _, part := range []outbox.Part{outbox.PartTags, outbox.PartMetadata} {
		if d.Sizes.Of(part) > InlineDocument || !emptyJSON(d.Event.Document(part)) {
			all = append(all, documentOf(d.Event, d.Sizes, part))
		}
	}
	return all
}

func count(n int64, one, many string) string { return outbox.Count(n, one, many) }

func sentence(s string) string { return outbox.Sentence(s) }
