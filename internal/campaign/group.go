package campaign

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// ErrorGroup is the failed and dead rows whose last errors have the same fingerprint, and the events that would
// fail with it.
type ErrorGroup struct {
	Fingerprint string `json:"fingerprint" redact:"-"`
	Example     string `json:"example"` // the error of one row
	Dead        int64  `json:"dead"`
	Failed      int64  `json:"failed"`
	Retrying    int64  `json:"retrying"`  // rows that failed with it and are being retried right now
	Rehearsed   int64  `json:"rehearsed"` // events that would fail with it, as a worker in shadow_only mode found
	Capped      bool   `json:"capped"`    // not all of these rows were examined, so that the counts are lower bounds
	Heads       int64  `json:"heads"`     // dead rows that are heads of their campaign: the campaigns that this error blocks
	Released    int64  `json:"released"`  // rows waiting behind those heads

	Campaigns     int64           `json:"campaigns"`          // campaigns whose head is one of these rows
	EventsWaiting int64           `json:"events_waiting"`     // unapplied events of those campaigns
	Score         int64           `json:"score"`              // sum of the campaigns' scores
	NextAttemptAt *time.Time      `json:"next_attempt_at"`    // when the first of the failed heads is retried; nil if none is
	Worst         []CauseCampaign `json:"worst" api:"max=20"` // the worst of those campaigns, at most 20

	EventTypes []Tally    `json:"event_types"` // of the rows, most frequent first
	Builds     []Tally    `json:"builds"`      // of the examined attempts, most frequent first
	Attempts   int64      `json:"attempts"`    // failed attempts of these rows, in the projection that this error is of, that were examined
	Alike      int64      `json:"alike"`       // of those attempts, the ones that ended in this error
	Permanent  int64      `json:"permanent"`   // of those attempts, the ones that can never succeed with the version of the projection that they failed in
	FirstAt    *time.Time `json:"first_at"`    // the first of these attempts; nil if none was examined
	EarlierAt  *time.Time `json:"earlier_at"`  // the first of the 500 failed attempts before first_at that ended in this error; nil if none did
	LastAt     *time.Time `json:"last_at"`
	Tried      []Tried    `json:"tried"` // the builds and versions of these attempts, latest first
	Note       *GroupNote `json:"note"`  // nil without a note
}

// Tried is a build of the program and a version of the failing projection that were used together.
// Projection and version are empty if unknown.
type Tried struct {
	Build             string    `json:"build"`                 // the version of the program
	Projection        string    `json:"projection" redact:"-"` // the projection that failed; empty if unknown
	ProjectionVersion string    `json:"projection_version"`    // the hash of its definition
	Attempts          int64     `json:"attempts"`
	Permanent         int64     `json:"permanent"` // of those attempts, the ones that can never succeed with that version
	Rows              int64     `json:"rows"`      // rows of which the last attempt was one of them
	LastAt            time.Time `json:"last_at"`
}

// Running is the build and versions that a retry would use.
type Running struct {
	Build    string
	Versions map[string]string `redact:"-"` // of the loaded projections, by name
	InGo     map[string]bool   `redact:"-"` // those of them that a host service has in Go
}

// RunningOf is what a build of the program with these projections would use.
func RunningOf(build string, loaded []ProjectionInfo) Running {
	now := Running{Build: build, Versions: map[string]string{}, InGo: map[string]bool{}}
	for _, p := range loaded {
		now.Versions[p.Name] = p.Version
		if p.Source == SourceGo {
			now.InGo[p.Name] = true
		}
	}
	return now
}

// InFile reports whether the rows with an error's fingerprint failed in a projection that is loaded
// from a file, so that a changed file can fix them. An error that names no projection, and an empty
// fingerprint, may be of any that is.
func (now Running) InFile(fingerprint string) bool {
	files := 0
	for name := range now.Versions {
		if now.InGo[name] {
			continue
		}
		if FailedIn(fingerprint, name) {
			return true
		}
		files++
	}
	return files > 0 && !namesProjection.MatchString(fingerprint)
}

// FailedIn reports whether the rows with an error's fingerprint failed in the projection.
func FailedIn(fingerprint, projection string) bool {
	return strings.Contains(fingerprint, event.Fingerprint("projection "+projection+" ("))
}

// namesProjection finds the place of a failure in a fingerprint.
var namesProjection = regexp.MustCompile(`projection \S+ \(`)

// Tally counts something by its name.
type Tally struct {
	Name  string `json:"name" redact:"-"`
	Count int64  `json:"count"`
}

// GroupNote is an operator's note on an error that many rows share.
type GroupNote struct {
	Note string    `json:"note"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
}

// ErrorGroups holds all groups, worst first.
type ErrorGroups struct {
	Groups    []ErrorGroup
	More      bool // there are more errors than these
	Rehearsed RehearsedEvents
}

// MoreCauses says that there are more errors than are told apart.
const MoreCauses = "There are more different errors than are told apart; these are some of them."

// RehearsedEvents counts the waiting events that a worker in shadow mode has rehearsed. The events behind
// one that would fail are not among them.
type RehearsedEvents struct {
	Events  int64 `json:"events"`
	Failing int64 `json:"failing"` // would fail
}

// Text says how many would fail, in a sentence; empty if none was rehearsed.
func (r RehearsedEvents) Text() string {
	switch rehearsed := "Shadow mode has rehearsed " + event.Count(r.Events, "event", "events"); {
	case r.Events == 0:
		return ""
	case r.Failing == 0:
		return rehearsed + ": none would fail."
	default:
		return rehearsed + ": " + event.Number(r.Failing) + " would fail, and the events behind those were not tried."
	}
}

// Capped reports whether not all failed or dead rows were examined, so that counts are lower bounds.
func (all ErrorGroups) Capped() bool {
	return all.More || slices.ContainsFunc(all.Groups, func(g ErrorGroup) bool { return g.Capped })
}

// AssessedGroup is an error group with an assessment, as the API and the commands show it.
type AssessedGroup struct {
	ErrorGroup
	Outlook  RetryOutlook `json:"retry_outlook"` // whether retrying can help
	Verdict  string       `json:"verdict"`       // the same in a sentence
	FailsNow bool         `json:"fails_now"`     // it failed with the build that runs and the version of the projection that is loaded
	// Operation is the running operation that requeues rows of this error, the latest if there are
	// several; nil if there is none.
	Operation *GroupOperation `json:"operation"`
	// Rehearsal is the run of a rehearsal that tried, with what is loaded now, campaigns which this
	// error blocks; 0 if there is none.
	Rehearsal int64 `json:"rehearsal"`
	// RehearsedHeads is how many of Heads passed that rehearsal and were not retried since.
	RehearsedHeads int64 `json:"rehearsed_heads"`
	// RehearsedFailing is how many of Heads failed in that rehearsal and were not retried since.
	RehearsedFailing int64 `json:"rehearsed_failing"`
	// RehearsedLater is how many of Heads would be applied, as that rehearsal showed, while an event
	// behind them would fail, and were not retried since.
	RehearsedLater int64 `json:"rehearsed_later"`
	partly         bool  // only some of its rows were tried with what runs and is loaded now
	torn           bool  // likewise, and a rehearsal of a file can tell of the others
}

// HeadsTried counts the dead heads that a rehearsal tried and that were not retried since, by what
// became of them.
type HeadsTried struct {
	Passed, Failed int64
	Later          int64 // an event behind the head failed
}

// All is how many were tried.
func (n HeadsTried) All() int64 { return n.Passed + n.Failed + n.Later }

// Untried reports whether build or projection changed since the last failure of some rows, so that a
// rehearsal of the loaded files tells what a retry would do.
func (g AssessedGroup) Untried() bool {
	return g.Dead > 0 && g.Operation == nil && g.Outlook == OutlookSome && (!g.FailsNow || g.partly)
}

// RestOn says what a rehearsal of the loaded files showed of the dead heads.
func (g *AssessedGroup) RestOn(rehearsal int64, tried HeadsTried) {
	g.Rehearsal, g.RehearsedHeads, g.RehearsedFailing, g.RehearsedLater = rehearsal, tried.Passed, tried.Failed, tried.Later
	if tried.Failed >= g.Heads && !g.Capped {
		g.Outlook = OutlookNone
	}
	for _, advice := range []string{g.toSee(), rehearseToSee} {
		g.Verdict = strings.TrimSuffix(g.Verdict, advice)
	}
	g.Verdict += ", and with the loaded files " + g.rehearsedText()
}

// rehearsedText says how many of the blocked campaigns passed the rehearsal, and what to do then.
func (g AssessedGroup) rehearsedText() string {
	if g.Capped { // Heads is not all
		return fmt.Sprintf("%s passed rehearsal %d, which did not try all: rehearse again", event.Count(g.RehearsedHeads, "campaign", "campaigns"), g.Rehearsal)
	}
	switch g.Heads {
	case g.RehearsedHeads:
		return fmt.Sprintf("every blocked campaign passed rehearsal %d: requeue with a canary", g.Rehearsal)
	case g.RehearsedFailing:
		return fmt.Sprintf("every blocked campaign failed in rehearsal %d: requeuing will fail again until the cause is fixed", g.Rehearsal)
	case g.RehearsedLater:
		return fmt.Sprintf("every blocked campaign passed this event in rehearsal %d, and failed at a later one: requeue with a canary to get there, or fix that first", g.Rehearsal)
	}
	text := fmt.Sprintf("%s of these %s passed rehearsal %d", event.Number(g.RehearsedHeads), event.Count(g.Heads, "campaign", "campaigns"), g.Rehearsal)
	if n := g.RehearsedFailing; n > 0 {
		text += fmt.Sprintf(", %s failed in it", event.Number(n))
	}
	if n := g.RehearsedLater; n > 0 {
		text += fmt.Sprintf(", %s passed this event in it and failed at a later one", event.Number(n))
	}
	if n := g.unrehearsed(); n > 0 {
		return text + fmt.Sprintf("; the other %s not tried in it, or retried since: rehearse again", event.Count(n, "was", "were"))
	}
	return text + ": requeue those that passed with a canary, and fix the cause for the others"
}

// unrehearsed is how many of the blocked campaigns the rehearsal does not tell of.
func (g AssessedGroup) unrehearsed() int64 {
	return g.Heads - g.RehearsedHeads - g.RehearsedFailing - g.RehearsedLater
}

// PartlyRehearsed reports whether the rehearsal left out campaigns that this error blocks.
func (g AssessedGroup) PartlyRehearsed() bool {
	return g.Rehearsal > 0 && (g.Capped || g.unrehearsed() > 0)
}

// toSee ends the verdict of rows that were not retried with what runs and is loaded now: dead rows are
// requeued, and workers retry failed ones.
func (g ErrorGroup) toSee() string {
	if g.Dead > 0 {
		return ": requeue to see whether that fixes it"
	}
	return ": retry to see whether that fixes it"
}

const rehearseToSee = ": rehearse the loaded file to see which of those would pass"

// toSeeWhich ends the verdict of rows of which only some were retried with what is loaded now. Of Go code
// there is no rehearsal.
func (now Running) toSeeWhich(projection string) string {
	if now.InGo[projection] {
		return ": requeue those with a canary to see which pass"
	}
	return rehearseToSee
}

// Assessed adds the verdicts to all groups, and the operations that requeue them, of which the
// first of each error counts.
func (all ErrorGroups) Assessed(now Running, running []GroupOperation) []AssessedGroup {
	judged := make([]AssessedGroup, len(all.Groups))
	of := make(map[string]*GroupOperation, len(running))
	for i := len(running) - 1; i >= 0; i-- {
		of[running[i].Fingerprint] = &running[i]
	}
	for i, g := range all.Groups {
		outlook, verdict := g.Verdict(now)
		judged[i] = AssessedGroup{ErrorGroup: g, Outlook: outlook, Verdict: verdict, FailsNow: g.FailsNow(now), Operation: of[g.Fingerprint]}
		_, _, judged[i].partly = g.triedNow(now)
		judged[i].torn = judged[i].partly && !now.InGo[g.Tried[0].Projection]
	}
	return judged
}

// RetryOutlook says whether retrying can help.
type RetryOutlook string

// The chances of a retry.
const (
	OutlookNone    RetryOutlook = "none"    // it failed alike each time, also with the current versions, or in their rehearsal; or it can never succeed with them; or its projection is not loaded
	OutlookSome    RetryOutlook = "some"    // it failed in several ways, or never with the current versions
	OutlookUnknown RetryOutlook = "unknown" // too few attempts to tell
)

// Verdict says in a sentence, without a final period, whether retrying the rows of the group can
// help.
func (g ErrorGroup) Verdict(now Running) (RetryOutlook, string) {
	tried := false
	with, examined, partly := g.triedNow(now)
	for _, t := range g.Tried {
		if t.Permanent > 0 && now.projects(t) && !partly {
			return OutlookNone, g.never(now, t)
		}
		tried = tried || now.Is(t)
	}
	switch {
	case g.OnlyRehearsed():
		return OutlookNone, "Rehearsed in shadow_only mode, nothing was applied: it would fail until the cause is fixed"
	case partly:
		return OutlookSome, fmt.Sprintf("%s of %s failed with the loaded version of projection %s, and the others with an earlier one alone%s", event.Number(with), event.Count(examined, "row", "rows"), g.Tried[0].Projection, now.toSeeWhich(g.Tried[0].Projection))
	case strings.Contains(g.Example, ": "+event.NotCalled):
		return OutlookNone, "Nothing was tried, since earlier calls of the projection's functions have not returned: it is tried once the process is restarted"
	case g.Attempts == 0:
		return OutlookUnknown, "No attempts recorded for these rows"
	case now.lacks(g.Tried[0].Projection):
		return OutlookNone, fmt.Sprintf("Projection %s is not loaded any more: a retry passes without it, and its rows lack the event; load it again first, unless it was removed for good", g.Tried[0].Projection)
	case !tried:
		return OutlookSome, "Since the last failure " + now.changed(g.Tried[0]) + g.toSee()
	case g.Alike < g.Attempts:
		return OutlookSome, fmt.Sprintf("%d of %d attempts failed with this error and the others with another: it may be transient, a retry can help", g.Alike, g.Attempts)
	case g.Attempts < 2:
		return OutlookUnknown, "Only one attempt so far"
	case g.Attempts == examined:
		return OutlookUnknown, fmt.Sprintf("%d of %d attempts failed with the same error on %s, one attempt each", g.Alike, g.Attempts, g.distinctTries())
	default:
		return OutlookNone, fmt.Sprintf("%d of %d attempts failed with the same error on %s: retrying will fail again until the cause is fixed", g.Alike, g.Attempts, g.distinctTries())
	}
}

// triedNow counts the rows that were last tried with the loaded version of their projection among those
// of which the attempts were examined, and reports whether they are some of them and not all.
func (g ErrorGroup) triedNow(now Running) (with, examined int64, partly bool) {
	for _, t := range g.Tried {
		examined += t.Rows
		if t.Projection != "" && now.projects(t) {
			with += t.Rows
		}
	}
	return with, examined, with > 0 && with < examined
}

// never is the sentence about attempts that can never succeed with a version of a projection that
// is still loaded.
func (g ErrorGroup) never(now Running, t Tried) string {
	says := fmt.Sprintf("It can never succeed with this version of the projection (%s %s)", t.Projection, event.ShortHash(t.ProjectionVersion))
	if last := g.Tried[0]; last.Build != now.Build {
		says += "; since the last failure " + now.changed(last)
	}
	return says + ": retrying will fail again until the projection is fixed"
}

// projects reports whether the failing version of the projection is the loaded one; true if the
// version is unknown.
func (now Running) projects(t Tried) bool {
	return t.Projection == "" || now.Versions[t.Projection] == t.ProjectionVersion
}

// lacks reports whether a projection that failed is not loaded any more.
func (now Running) lacks(projection string) bool {
	return projection != "" && now.Versions[projection] == ""
}

// changed says whether build or projection changed since t.
func (now Running) changed(t Tried) string {
	builds := fmt.Sprintf("(%s, now %s)", cmp.Or(t.Build, "unknown"), now.Build)
	versions := fmt.Sprintf("(%s, now %s)", event.ShortHash(t.ProjectionVersion), event.ShortHash(now.Versions[t.Projection]))
	switch {
	case t.Projection == "":
		return "the build changed " + builds
	case now.projects(t):
		return "the build changed " + builds + " and projection " + t.Projection + " did not"
	case t.Build == now.Build:
		return "projection " + t.Projection + " changed " + versions + " and the build did not"
	default:
		return "the build " + builds + " and projection " + t.Projection + " " + versions + " changed"
	}
}

// distinctTries states how many builds and versions of projections were tried.
func (g ErrorGroup) distinctTries() string {
	versions := map[[2]string]bool{}
	for _, t := range g.Tried {
		if t.Projection != "" {
			versions[[2]string{t.Projection, t.ProjectionVersion}] = true
		}
	}
	ways := "one build"
	if len(g.Builds) != 1 {
		ways = fmt.Sprintf("%d builds", len(g.Builds))
	}
	if len(versions) > 1 {
		ways += fmt.Sprintf(" and %d versions of the projection", len(versions))
	}
	return ways
}
