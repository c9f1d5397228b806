package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Limits of a rehearsal.
const (
	MaxRehearsed         = 500     // blocked campaigns
	RehearsalSample      = 20      // healthy campaigns
	RehearsalBehind      = 100     // events behind the blocking one, unless the request says otherwise
	MaxRehearsalBehind   = 1000    // the most that a request may say
	MaxRehearsalReplay   = 20_000  // events of one campaign that are replayed from its start
	MaxRehearsalEvents   = 500_000 // events of all campaigns
	MaxRehearsalFiles    = 1 << 20 // bytes of all changed files
	MaxRehearsalFileList = 50      // changed files
)

// RehearsalRequest asks whether changed projection files would fix blocked campaigns, and what they change in
// healthy ones. Without a fingerprint, campaigns and all of them it takes every blocked campaign and a sample
// of healthy ones.
type RehearsalRequest struct {
	Files       []campaign.RehearsalFile `json:"files" validate:"dive" api:"required,max=MaxRehearsalFileList" kong:"-"`                                                                                                                             // the changed projection files; the others are those that are loaded
	Fingerprint string                   `json:"fingerprint,omitempty" validate:"fingerprint" placeholder:"FINGERPRINT" help:"Only campaigns blocked by the error with this fingerprint."`                                                           // of the error that blocks the campaigns
	Campaigns   []string                 `json:"campaign_ids,omitempty" validate:"dive,required,id" api:"max=MaxRehearsed" name:"campaign" sep:"none" placeholder:"C" help:"Only this campaign: tried if it is blocked, else compared. Repeatable."` // tried if they are blocked, else compared
	All         bool                     `json:"all_campaigns,omitempty" api:"default=false" name:"all" help:"Compare the live rows of all campaigns with what the changed files make, as a verify does, and try no blocked event."`                 // compare the live rows of all campaigns, as a verify does, and try no blocked event
	Behind      int64                    `json:"behind,omitempty" validate:"min=0" api:"default=100" placeholder:"N" help:"How many events to try behind each blocking one: 100 by default, at most 1000."`                                          // events to try behind each blocking one, at most 1,000
}

// RehearsalStartRequest asks for the start of a rehearsal.
type RehearsalStartRequest struct {
	RehearsalRequest
	operator.ReasonRequest
}

// Check refuses a request that is invalid by itself, and sets the default of Behind.
func (o *RehearsalRequest) Check() error {
	if o.Behind == 0 {
		o.Behind = RehearsalBehind
	}
	size := 0
	for _, f := range o.Files {
		size += len(f.Text)
	}
	switch {
	case len(o.Files) == 0:
		return event.Invalid("files", "give the changed projection files")
	case len(o.Files) > MaxRehearsalFileList:
		return event.Invalid("files", "%d files are given; the limit is %d", len(o.Files), MaxRehearsalFileList)
	case size > MaxRehearsalFiles:
		return event.Invalid("files", "the files have %s; the limit is %s", event.Bytes(int64(size)), event.Bytes(MaxRehearsalFiles))
	case o.Behind < 0 || o.Behind > MaxRehearsalBehind:
		return event.Invalid("behind", "behind must be from 1 to %d", MaxRehearsalBehind)
	case o.All && (o.Fingerprint != "" || len(o.Campaigns) > 0):
		return event.Invalid("all_campaigns", "name all campaigns, or some of them, not both")
	case len(o.Campaigns) > MaxRehearsed:
		return event.Invalid("campaign_ids", "%d campaigns are named; the limit is %d", len(o.Campaigns), MaxRehearsed)
	}
	return nil
}

// Rehearsed is how far events of a campaign were tried, by a rehearsal or a dry run.
type Rehearsed struct {
	Head    int64 `json:"head"`    // the event that blocks the campaign, or at which a projection is quarantined; 0 for a healthy one. Of a dry run the first event tried
	Applied int64 `json:"applied"` // events that would be applied, from that one on
	Left    int64 `json:"left"`    // events behind them that were not tried; 0 if all were
	// FailedSeq is the event that would fail; 0 if none.
	FailedSeq  int64  `json:"failed_seq"`
	EventType  string `json:"event_type" redact:"-"` // of that event
	Projection string `json:"projection" redact:"-"` // that would refuse it; empty if none does
	SameError  bool   `json:"same_error"`            // it is the head, and would fail with the error that it has now
	// Quarantined is the projection that is quarantined at Head; empty if Head blocks the campaign.
	Quarantined string `json:"quarantined" redact:"-"`
	// Also are other quarantines of the campaign that would pass; nil if there are none.
	Also []TriedQuarantine `json:"also,omitempty"`
	// Drifted are the projections of a healthy campaign whose live rows are not those that the loaded
	// files make; nil if none is known.
	Drifted []string `json:"drifted,omitempty" redact:"-"`
	// OtherTables are tables that have another form in the database than in the projections' files: what
	// succeeds in a dry run may fail there.
	OtherTables []string `json:"other_tables,omitempty"`
}

// TriedQuarantine is a quarantine that a rehearsal tried beside what it says first of a campaign.
type TriedQuarantine struct {
	Projection string `json:"projection" redact:"-"`
	Head       int64  `json:"head"` // the event at which it is quarantined
}

// RehearsedText describes the result of a campaign of a rehearsal; empty for other runs. The error is
// shown beside it.
func (r RunResult) RehearsedText() string {
	if r.Rehearsed == nil {
		return ""
	}
	at := r.Rehearsed
	switch {
	case r.Outcome == OutcomeReplayed:
		text := fmt.Sprintf("Event %d would be applied, with %s behind it.", at.Head, event.Count(at.Applied-1, "event", "events"))
		if at.Quarantined != "" {
			text = fmt.Sprintf("Projection %s, which is quarantined at event %d, would apply it, with %s behind it.", at.Quarantined, at.Head, event.Count(at.Applied-1, "event", "events"))
		}
		if at.Left > 0 {
			text += fmt.Sprintf(" %s not tried.", event.Count(at.Left, "event behind those was", "events behind those were"))
		}
		for _, also := range at.Also {
			text += fmt.Sprintf(" Projection %s would apply event %d, at which it is quarantined.", also.Projection, also.Head)
		}
		return text
	case at.SameError:
		return fmt.Sprintf("Event %d would fail with the same error.", at.FailedSeq)
	case r.Outcome == OutcomeFailed && at.Head > 0:
		return fmt.Sprintf("Event %d would fail, with another error than now.", at.FailedSeq)
	case r.Outcome == OutcomeMatch && slices.ContainsFunc(r.Projections, func(p ProjectionResult) bool { return p.Verdict == campaign.VerdictDrift }):
		return "The changed files make the same rows of its journal as the loaded ones." + at.driftText()
	case r.Outcome == OutcomeMatch:
		return "The changed files make the rows that it has now." + at.driftText()
	case r.Outcome == OutcomeDrift:
		return "The changed files make other rows of its journal than it has now." + at.driftText()
	case r.Outcome == OutcomeFailed:
		return fmt.Sprintf("Event %d, which is applied, fails with the changed files.", at.FailedSeq)
	case len(r.Projections) > 0 && r.Error == "":
		return "The changed files make the same rows, as far as they were compared."
	case at.Head == 0:
		return "Not compared."
	}
	return "Not rehearsed."
}

// driftText says that live rows are others than those compared; empty if none is known.
func (at Rehearsed) driftText() string {
	if len(at.Drifted) == 0 {
		return ""
	}
	return " Its live rows in " + event.Joined(at.Drifted, " and ") + " are not those that the loaded files make: verify it."
}

// Trial asks what applying the next events of a campaign would do, up to one of them and some after it.
type Trial struct {
	CampaignID string `redact:"-"`
	Seq, Next  int64
	Without    bool // as if the event at Seq were skipped
}

// TriedText says which events a dry run would apply.
func (r RunResult) TriedText() string {
	switch r.Rehearsed.Applied {
	case 0:
		return "No event would be applied."
	case 1:
		return fmt.Sprintf("Event %d would be applied.", r.Seq)
	}
	return fmt.Sprintf("Events %d to %d would be applied.", r.Rehearsed.Head, r.Seq)
}

// TablesText describes the problem with OtherTables; empty if there are none.
func (at Rehearsed) TablesText() string {
	if len(at.OtherTables) == 0 {
		return ""
	}
	them := "that table"
	if len(at.OtherTables) > 1 {
		them = "these tables"
	}
	return fmt.Sprintf("The database has %s in a different form from the projection's file, so events may fail there that were applied here. Drop %s, restart and rebuild",
		strings.Join(at.OtherTables, ", "), them)
}

// OutcomeCount counts the campaigns of a run with an outcome.
type OutcomeCount struct {
	Outcome, Name string // as stored, and in words
	Campaigns     int64
}

// Outcomes counts the campaigns of the run by outcome: those that need attention first.
func (r Run) Outcomes() (all []OutcomeCount) {
	add := func(outcome string, n int64) {
		all = append(all, OutcomeCount{outcome, r.Kind.OutcomeName(outcome), n})
	}
	add(OutcomeFailed, r.Counts.Failed)
	if r.Kind != RunReplay {
		add(OutcomeDrift, r.Counts.Drifted)
	}
	if n := r.Counts.NotCompared; n > 0 {
		add(OutcomeNotCompared, n)
	}
	if r.Kind == RunReplay || r.Kind == RunRehearse {
		add(OutcomeReplayed, r.Counts.Replayed)
	}
	add(OutcomeMatch, r.Counts.Matched)
	return all
}

// RehearsalGroup is the campaigns of a rehearsal with the same outcome and a like error.
type RehearsalGroup struct {
	Outcome   string   `json:"outcome" api:"enum=match drift replayed failed not_compared"`
	Blocked   bool     `json:"blocked"`    // campaigns that are blocked, or in which a changed projection is quarantined; not healthy ones
	SameError bool     `json:"same_error"` // they would fail with the error that they have now
	Error     string   `json:"error"`      // of the first campaign; empty without one
	Seq       int64    `json:"seq"`        // the event that fails in that campaign; 0 if none does
	Count     int64    `json:"count"`
	Campaigns []string `json:"campaigns" redact:"-" api:"max=5"` // the first ones
}

// How says how the campaigns fail; empty if they do not.
func (g RehearsalGroup) How() string {
	switch {
	case g.Outcome != OutcomeFailed:
		return ""
	case g.SameError:
		return "with the same error"
	case g.Blocked:
		return "with another error"
	}
	return "at an applied event"
}

// RehearsalVersion is a changed projection: the loaded version of its file and the rehearsed one.
type RehearsalVersion struct {
	Projection string `json:"projection" redact:"-"`
	Before     string `json:"before" redact:"-"`    // loaded when the rehearsal was started; empty if it was not
	Loaded     string `json:"loaded" redact:"-"`    // as of now; empty if it is not loaded
	Rehearsed  string `json:"rehearsed" redact:"-"` // that it ran with
	// when the rehearsed version was loaded last; null if it never was
	RehearsedLoadedAt *time.Time `json:"rehearsed_loaded_at" api:"nullable"`
	OtherSchema       bool       `json:"other_schema"` // the changed file gives its tables another form
}

// Differs reports whether the loaded version is not the rehearsed one.
func (v RehearsalVersion) Differs() bool { return v.Loaded != v.Rehearsed }

// Ran says how the rehearsal ran with a projection that differs, and what to do: "ran with another
// version of projection stats; rehearse again".
func (v RehearsalVersion) Ran() string {
	switch {
	case v.Rehearsed == "":
		return fmt.Sprintf("ran without projection %s, which is loaded; rehearse again with it: on the server's page, or with its file in the command's --projections", v.Projection)
	case v.Loaded == "":
		return fmt.Sprintf("ran with projection %s, which is not loaded any more; rehearse again without it", v.Projection)
	}
	return fmt.Sprintf("ran with another version of projection %s; rehearse again", v.Projection)
}

// FixRehearsal is a run of kind rehearse and its answer.
type FixRehearsal struct {
	Run         Run                `json:"run"`
	Fingerprint string             `json:"fingerprint" redact:"-"` // empty for all causes
	Behind      int64              `json:"behind"`                 // events tried behind each blocking one
	Blocked     int64              `json:"blocked"`                // blocked campaigns that it takes, and those in which a changed projection is quarantined
	Quarantined int64              `json:"quarantined"`            // of these, the campaigns that are not blocked
	More        bool               `json:"more"`                   // there were more than it takes
	Versions    []RehearsalVersion `json:"versions"`
	Others      []RehearsalVersion `json:"others"`     // the other projections that are not loaded as it ran with them: in another version, or only then or now
	Tried       RunCounts          `json:"tried"`      // the outcomes of blocked campaigns: replayed ones would pass
	SameError   int64              `json:"same_error"` // of those that would fail, how many with the error that they have now
	Healthy     RunCounts          `json:"healthy"`    // the outcomes of healthy campaigns: what the files would change
	Groups      []RehearsalGroup   `json:"groups"`
	// Drifted counts the healthy campaigns whose live rows are not those that the loaded files make.
	Drifted int64  `json:"drifted"`
	Answer  string `json:"answer"`  // "38 of 40 campaigns would pass. …"
	Effects string `json:"effects"` // what loading would change for healthy campaigns
	Loaded  bool   `json:"loaded"`  // all projections are loaded in the versions that it ran with
	// Replayable are the changed projections that are quarantined still, by its cause; a requeue does not
	// reach them.
	Replayable []string `json:"-"`
}

// Bad reports whether the rehearsal has ended and its files must not be loaded: they break a healthy
// campaign, or fix none of the blocked ones.
func (r FixRehearsal) Bad() bool {
	return !r.Run.Status.Active() && !r.Loaded && (r.Healthy.Failed > 0 || r.Tried.Sum() > 0 && r.Tried.Replayed == 0)
}

// Replays reports whether some of what is quarantined would pass, and is replayed once the files are
// loaded.
func (r FixRehearsal) Replays() bool { return r.Tried.Replayed > 0 && len(r.Replayable) > 0 }

// Requeues reports whether some of the blocked campaigns would pass, and are requeued once the files are
// loaded.
func (r FixRehearsal) Requeues() bool { return r.Tried.Replayed > 0 && r.Blocked > r.Quarantined }

// Outdated reports whether the rehearsed files are loaded, but not the other projections that it ran
// with.
func (r FixRehearsal) Outdated() bool {
	return len(r.Others) > 0 && !slices.ContainsFunc(r.Versions, RehearsalVersion.Differs)
}

// Passed reports whether the rehearsal is done and every blocked campaign would pass: at least one.
func (r FixRehearsal) Passed() bool {
	return r.Run.Status == RunCompleted && r.Tried.Replayed > 0 && r.Tried.Replayed == r.Tried.Sum()
}

// QuarantinePassed is what a rehearsal of the loaded files showed of a quarantined projection.
type QuarantinePassed struct {
	Rehearsal int64 // its run
	Campaigns int64 // where the projection is quarantined, passed, and was not replayed since
}

// Sentence says what to do, of a projection that is quarantined in some campaigns; empty if none passed.
func (q QuarantinePassed) Sentence(quarantined int64) string {
	of := fmt.Sprintf("%s of %s", event.Number(q.Campaigns), event.Count(quarantined, "quarantined campaign", "quarantined campaigns"))
	if q.Campaigns >= quarantined {
		of = event.Count(q.Campaigns, "quarantined campaign", "quarantined campaigns")
	}
	if q.Campaigns == 0 {
		return ""
	}
	return fmt.Sprintf("%s passed rehearsal %d with the loaded files: replay the projection; a requeue does not reach it.", of, q.Rehearsal)
}

// Unchanged reports whether the rehearsal is done, no campaign was blocked, and in all of those
// compared the rows are the same.
func (r FixRehearsal) Unchanged() bool {
	return r.Run.Status == RunCompleted && r.Blocked == 0 && r.Healthy.Matched > 0 && r.Healthy.Matched == r.Healthy.Sum()
}

// Describe sets the sentences of the answer, and the order of its groups.
func (r *FixRehearsal) Describe() {
	slices.SortStableFunc(r.Groups, func(a, b RehearsalGroup) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.Count, a.Count))
	})
	r.Answer, r.Effects = r.answer(), r.effects()
}

func (r *FixRehearsal) answer() string {
	n := r.Tried
	switch {
	case r.Blocked == 0:
		return "No campaign was blocked, failing or quarantined, so healthy ones alone are compared"
	case n.Sum() == 0:
		return "No blocked campaign has been rehearsed yet"
	}
	kind := "blocked"
	switch r.Quarantined {
	case 0:
	case r.Blocked:
		kind = "quarantined"
	default:
		kind = "blocked or quarantined"
	}
	parts := []string{fmt.Sprintf("%s of %s would pass", event.Number(n.Replayed), event.Count(n.Sum(), kind+" campaign", kind+" campaigns"))}
	if r.SameError > 0 {
		parts = append(parts, event.Count(r.SameError, "fails", "fail")+" with the same error")
	}
	if other := n.Failed - r.SameError; other > 0 {
		parts = append(parts, event.Count(other, "fails", "fail")+" differently")
	}
	if n.NotCompared > 0 {
		parts = append(parts, event.Count(n.NotCompared, "was", "were")+" not rehearsed")
	}
	if r.More {
		parts = append(parts, fmt.Sprintf("more than %s are "+kind+", the others were not taken", event.Number(MaxRehearsed)))
	}
	return strings.Join(parts, "; ")
}

func (r *FixRehearsal) effects() string {
	n, not := r.Healthy, ""
	compared := n.Sum() - n.NotCompared
	if n.NotCompared > 0 {
		not = event.Count(n.NotCompared, "healthy campaign", "healthy campaigns") + " could not be fully compared"
	}
	if compared == 0 {
		return cmp.Or(not, "No healthy campaign was compared")
	}
	kind := "healthy campaign"
	if n.Sum() >= RehearsalSample {
		kind = "sampled healthy campaign"
	}
	of := event.Count(compared, kind, kind+"s")
	var parts []string
	if n.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s cannot be rebuilt: an event that is applied fails with the changed files", event.Number(n.Failed), of))
	}
	if n.Drifted > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s would get other rows than they have now: rebuild what differs after loading if that is meant; if it is not, the changed files are wrong", event.Number(n.Drifted), of))
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%s compared: the changed files make the same rows", of))
	}
	if r.Drifted > 0 {
		parts = append(parts, fmt.Sprintf("the live rows of %s are not those that the loaded files make: verify", event.Number(r.Drifted)))
	}
	if not != "" {
		parts = append(parts, not)
	}
	return strings.Join(parts, "; ")
}

// Add counts the result of a campaign, and adds it to the group of like ones. likeness makes the same text
// of like errors.
func (r *FixRehearsal) Add(one RunResult, likeness func(string) string) {
	g := RehearsalGroup{Outcome: one.Outcome, Error: one.Error, Count: 1, Campaigns: []string{one.CampaignID}}
	if at := one.Rehearsed; at != nil {
		g.Blocked, g.SameError, g.Seq = at.Head > 0, at.SameError, at.FailedSeq
		if len(at.Drifted) > 0 {
			r.Drifted++
		}
	}
	counts := &r.Healthy
	if g.Blocked {
		counts = &r.Tried
	}
	counts.Add(one.Outcome, 1)
	if g.SameError {
		r.SameError++
	}
	i := slices.IndexFunc(r.Groups, func(other RehearsalGroup) bool {
		return other.Outcome == g.Outcome && other.Blocked == g.Blocked && other.SameError == g.SameError && likeness(other.Error) == likeness(g.Error)
	})
	if i < 0 {
		r.Groups = append(r.Groups, g)
		return
	}
	r.Groups[i].Count++
	if len(r.Groups[i].Campaigns) < groupNames {
		r.Groups[i].Campaigns = append(r.Groups[i].Campaigns, one.CampaignID)
	}
}

// rank orders groups: blocked campaigns first, and what needs attention first in each half.
func (g RehearsalGroup) rank() int {
	rank := slices.Index([]string{OutcomeFailed, OutcomeDrift, OutcomeNotCompared, OutcomeReplayed, OutcomeMatch}, g.Outcome)
	if !g.Blocked {
		rank += 10
	}
	return rank
}

// groupNames is how many campaigns a group names.
const groupNames = 5
