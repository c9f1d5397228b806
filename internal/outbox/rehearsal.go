package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The outcomes of a rehearsal in one campaign: the first four are of blocked campaigns, the others
// of healthy ones.
const (
	OutcomePasses           = "passes"            // the event that blocks it and those behind it would be applied
	OutcomeFailsSame        = "fails_same"        // that event would fail with the same error
	OutcomeFailsDifferently = "fails_differently" // that event, or one behind it, would fail with another error
	OutcomeNotRehearsed     = "not_rehearsed"     // the result says why
	OutcomeSameRows         = "same_rows"         // the changed files make the same rows of its journal
	OutcomeOtherRows        = "other_rows"        // they make other rows: a rebuild is needed after loading
	OutcomeBreaks           = "breaks"            // an applied event fails with them: a rebuild would stop there
)

// RehearsalOutcomes lists the outcomes of rehearsals, the worst of each half first.
var RehearsalOutcomes = []string{OutcomeFailsDifferently, OutcomeFailsSame, OutcomeNotRehearsed, OutcomePasses, OutcomeBreaks, OutcomeOtherRows, OutcomeNotCompared, OutcomeSameRows}

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

// RehearsalFile is a changed projection file.
type RehearsalFile struct {
	Name string `json:"name" redact:"-"`
	Text string `json:"text" redact:"-"`
}

// RehearsalRequest asks whether changed projection files would fix blocked campaigns.
type RehearsalRequest struct {
	Files []RehearsalFile
	// Fingerprint and Campaigns restrict the blocked campaigns: to those blocked by this error, and
	// to these. Without them they are all and, if there are none, a sample of healthy ones is compared.
	Fingerprint string
	Campaigns   []string
	Behind      int64 // events behind each blocking one; 0 means RehearsalBehind
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
		return Invalid("files", "give the changed projection files")
	case len(o.Files) > MaxRehearsalFileList:
		return Invalid("files", "%d files are given; the limit is %d", len(o.Files), MaxRehearsalFileList)
	case size > MaxRehearsalFiles:
		return Invalid("files", "the files have %s; the limit is %s", Bytes(int64(size)), Bytes(MaxRehearsalFiles))
	case o.Behind < 0 || o.Behind > MaxRehearsalBehind:
		return Invalid("behind", "behind must be from 1 to %d", MaxRehearsalBehind)
	case len(o.Campaigns) > MaxRehearsed:
		return Invalid("campaign_ids", "%d campaigns are named; the limit is %d", len(o.Campaigns), MaxRehearsed)
	}
	return nil
}

// Rehearsed is how far a rehearsal got in one campaign.
type Rehearsed struct {
	Head    int64 `json:"head"`    // the event that blocks the campaign, or at which a projection is quarantined; 0 for a healthy one
	Applied int64 `json:"applied"` // events that would be applied, from that one on
	Left    int64 `json:"left"`    // events behind them that were not tried; 0 if all were
	// FailedSeq is the event that would fail; 0 if none.
	FailedSeq int64  `json:"failed_seq"`
	EventType string `json:"event_type" redact:"-"` // of that event
	// Quarantined is the projection that is quarantined at Head; empty if Head blocks the campaign.
	Quarantined string `json:"quarantined" redact:"-"`
	// Also are other quarantines of the campaign that would pass; nil if there are none.
	Also []TriedQuarantine `json:"also,omitempty"`
	// Live says that the rows of a healthy campaign were compared with the live ones, since the loaded
	// files cannot replay it.
	Live bool `json:"live"`
	// Drifted are the projections of a healthy campaign whose live rows are not those that the loaded
	// files make; nil if none is known.
	Drifted []string `json:"drifted,omitempty" redact:"-"`
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
	switch r.Outcome {
	case OutcomePasses:
		text := fmt.Sprintf("Event %d would be applied, with %s behind it.", at.Head, Count(at.Applied-1, "event", "events"))
		if at.Quarantined != "" {
			text = fmt.Sprintf("Projection %s, which is quarantined at event %d, would apply it, with %s behind it.", at.Quarantined, at.Head, Count(at.Applied-1, "event", "events"))
		}
		if at.Left > 0 {
			text += fmt.Sprintf(" %s not tried.", Count(at.Left, "event behind those was", "events behind those were"))
		}
		for _, also := range at.Also {
			text += fmt.Sprintf(" Projection %s would apply event %d, at which it is quarantined.", also.Projection, also.Head)
		}
		return text
	case OutcomeFailsSame:
		return fmt.Sprintf("Event %d would fail with the same error.", at.FailedSeq)
	case OutcomeFailsDifferently:
		return fmt.Sprintf("Event %d would fail, with another error than now.", at.FailedSeq)
	case OutcomeSameRows:
		return "The changed files make the same rows of its journal as " + at.against() + "." + at.driftText()
	case OutcomeOtherRows:
		return "The changed files make other rows of its journal than " + at.against() + "." + at.driftText()
	case OutcomeBreaks:
		return fmt.Sprintf("Event %d, which is applied, fails with the changed files.", at.FailedSeq)
	case OutcomeNotCompared:
		if len(r.Projections) > 0 {
			return "The changed files make the same rows, as far as they were compared."
		}
		return "Not compared."
	}
	return "Not rehearsed."
}

// driftText says that live rows are others than those compared; empty if none is known.
func (at Rehearsed) driftText() string {
	if len(at.Drifted) == 0 {
		return ""
	}
	return " Its live rows in " + list(at.Drifted, " and ") + " are not those that the loaded files make: verify it."
}

// against is what a healthy campaign was compared with.
func (at Rehearsed) against() string {
	if at.Live {
		return "its live rows, which an earlier version made: the loaded files cannot replay it"
	}
	return "the loaded ones"
}

// RehearsalCounts counts the campaigns of a rehearsal by outcome.
type RehearsalCounts struct {
	Passes           int64 `json:"passes"`
	FailsSame        int64 `json:"fails_same"`
	FailsDifferently int64 `json:"fails_differently"`
	NotRehearsed     int64 `json:"not_rehearsed"`
	SameRows         int64 `json:"same_rows"`
	OtherRows        int64 `json:"other_rows"`
	Breaks           int64 `json:"breaks"`
	NotCompared      int64 `json:"not_compared"` // healthy campaigns that could not be compared, or not to their end
}

// Field returns the counter of an outcome, to be changed; nil for an unknown one.
func (n *RehearsalCounts) Field(outcome string) *int64 {
	switch outcome {
	case OutcomePasses:
		return &n.Passes
	case OutcomeFailsSame:
		return &n.FailsSame
	case OutcomeFailsDifferently:
		return &n.FailsDifferently
	case OutcomeNotRehearsed:
		return &n.NotRehearsed
	case OutcomeSameRows:
		return &n.SameRows
	case OutcomeOtherRows:
		return &n.OtherRows
	case OutcomeBreaks:
		return &n.Breaks
	case OutcomeNotCompared:
		return &n.NotCompared
	}
	return nil
}

// Blocked is the number of blocked campaigns that have a result.
func (n RehearsalCounts) Blocked() int64 {
	return n.Passes + n.FailsSame + n.FailsDifferently + n.NotRehearsed
}

// Text says in a few words how many of the blocked campaigns would pass or, if none was blocked, what
// the files would change in the others; empty without a result.
func (n RehearsalCounts) Text() string {
	healthy := n.Healthy()
	switch {
	case n.Blocked() > 0:
		return fmt.Sprintf("%s of %s would pass", Number(n.Passes), Number(n.Blocked()))
	case n.Breaks > 0:
		return fmt.Sprintf("%s of %s healthy cannot be rebuilt", Number(n.Breaks), Number(healthy))
	case healthy > 0:
		return fmt.Sprintf("%s of %s healthy would get other rows", Number(n.OtherRows), Number(healthy))
	}
	return ""
}

// Healthy is the number of healthy campaigns that were compared.
func (n RehearsalCounts) Healthy() int64 { return n.SameRows + n.OtherRows + n.Breaks }

// RehearsalGroup is the campaigns of a rehearsal with the same outcome and a like error.
type RehearsalGroup struct {
	Outcome   string   `json:"outcome" api:"enum=passes fails_same fails_differently not_rehearsed same_rows other_rows breaks not_compared"`
	Error     string   `json:"error"` // of the first campaign; empty without one
	Seq       int64    `json:"seq"`   // the event that fails in that campaign; 0 if none does
	Count     int64    `json:"count"`
	Campaigns []string `json:"campaigns" redact:"-" api:"max=5"` // the first ones
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
	Others      []RehearsalVersion `json:"others"` // the other projections that are not loaded as it ran with them: in another version, or only then or now
	Counts      RehearsalCounts    `json:"counts"`
	Groups      []RehearsalGroup   `json:"groups"`
	// Live counts the healthy campaigns that were compared with their live rows, since the loaded files
	// cannot replay them; Drifted those whose live rows are not those that the loaded files make.
	Live    int64  `json:"compared_live"`
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
	n := r.Counts
	return !r.Run.Status.Active() && !r.Loaded && (n.Breaks > 0 || n.Blocked() > 0 && n.Passes == 0)
}

// Replays reports whether some of what is quarantined would pass, and is replayed once the files are
// loaded.
func (r FixRehearsal) Replays() bool { return r.Counts.Passes > 0 && len(r.Replayable) > 0 }

// Requeues reports whether some of the blocked campaigns would pass, and are requeued once the files are
// loaded.
func (r FixRehearsal) Requeues() bool { return r.Counts.Passes > 0 && r.Blocked > r.Quarantined }

// Outdated reports whether the rehearsed files are loaded, but not the other projections that it ran
// with.
func (r FixRehearsal) Outdated() bool {
	return len(r.Others) > 0 && !slices.ContainsFunc(r.Versions, RehearsalVersion.Differs)
}

// Passed reports whether the rehearsal is done and every blocked campaign would pass: at least one.
func (r FixRehearsal) Passed() bool {
	return r.Run.Status == RunCompleted && r.Counts.Blocked() > 0 && r.Counts.Passes == r.Counts.Blocked()
}

// QuarantinePassed is what a rehearsal of the loaded files showed of a quarantined projection.
type QuarantinePassed struct {
	Rehearsal int64 // its run
	Campaigns int64 // where the projection is quarantined, passed, and was not replayed since
}

// Sentence says what to do, of a projection that is quarantined in some campaigns; empty if none passed.
func (q QuarantinePassed) Sentence(quarantined int64) string {
	of := fmt.Sprintf("%s of %s", Number(q.Campaigns), Count(quarantined, "quarantined campaign", "quarantined campaigns"))
	if q.Campaigns >= quarantined {
		of = Count(q.Campaigns, "quarantined campaign", "quarantined campaigns")
	}
	if q.Campaigns == 0 {
		return ""
	}
	return fmt.Sprintf("%s passed rehearsal %d with the loaded files: replay the projection; a requeue does not reach it.", of, q.Rehearsal)
}

// Unchanged reports whether the rehearsal is done, no campaign was blocked, and in all of those
// compared the rows are the same.
func (r FixRehearsal) Unchanged() bool {
	n := r.Counts
	return r.Run.Status == RunCompleted && r.Blocked == 0 && n.SameRows > 0 && n.SameRows == n.Healthy()+n.NotCompared
}

// Describe sets the sentences of the answer.
func (r *FixRehearsal) Describe() {
	r.Answer, r.Effects = r.answer(), r.effects()
}

func (r *FixRehearsal) answer() string {
	n := r.Counts
	switch {
	case r.Blocked == 0:
		return "No campaign was blocked, failing or quarantined, so healthy ones alone are compared"
	case n.Blocked() == 0:
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
	parts := []string{fmt.Sprintf("%s of %s would pass", Number(n.Passes), Count(n.Blocked(), kind+" campaign", kind+" campaigns"))}
	if n.FailsSame > 0 {
		parts = append(parts, Count(n.FailsSame, "fails", "fail")+" with the same error")
	}
	if n.FailsDifferently > 0 {
		parts = append(parts, Count(n.FailsDifferently, "fails", "fail")+" differently")
	}
	if n.NotRehearsed > 0 {
		parts = append(parts, Count(n.NotRehearsed, "was", "were")+" not rehearsed")
	}
	if r.More {
		parts = append(parts, fmt.Sprintf("more than %s are "+kind+", the others were not taken", Number(MaxRehearsed)))
	}
	return strings.Join(parts, "; ")
}

func (r *FixRehearsal) effects() string {
	n := r.Counts
	not := ""
	if n.NotCompared > 0 {
		not = Count(n.NotCompared, "healthy campaign", "healthy campaigns") + " could not be fully compared"
	}
	if n.Healthy() == 0 {
		return cmp.Or(not, "No healthy campaign was compared")
	}
	kind := "healthy campaign"
	if n.Healthy()+n.NotCompared >= RehearsalSample {
		kind = "sampled healthy campaign"
	}
	of := Count(n.Healthy(), kind, kind+"s")
	than := "than the loaded files make"
	if r.Live > 0 {
		than += ", or than they have now where those cannot replay them"
	}
	var parts []string
	if n.Breaks > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s cannot be rebuilt: an event that is applied fails with the changed files", Number(n.Breaks), of))
	}
	if n.OtherRows > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s would get other rows %s: rebuild what differs after loading if that is meant; if it is not, the changed files are wrong", Number(n.OtherRows), of, than))
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%s compared: the changed files make the same rows", of))
	}
	if r.Drifted > 0 {
		parts = append(parts, fmt.Sprintf("the live rows of %s are not those that the loaded files make: verify", Number(r.Drifted)))
	}
	if not != "" {
		parts = append(parts, not)
	}
	return strings.Join(parts, "; ")
}

// GroupRehearsed groups the results of a rehearsal by outcome and error, and counts them. likeness
// makes the same text of like errors.
func GroupRehearsed(results []RunResult, likeness func(string) string) (groups []RehearsalGroup, n RehearsalCounts) {
	at := map[[2]string]int{}
	groups = []RehearsalGroup{}
	for _, r := range results {
		if field := n.Field(r.Outcome); field != nil {
			*field++
		}
		key := [2]string{r.Outcome, likeness(r.Error)}
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			g := RehearsalGroup{Outcome: r.Outcome, Error: r.Error, Campaigns: []string{}}
			if r.Rehearsed != nil {
				g.Seq = r.Rehearsed.FailedSeq
			}
			groups = append(groups, g)
		}
		groups[i].Count++
		if len(groups[i].Campaigns) < groupNames {
			groups[i].Campaigns = append(groups[i].Campaigns, r.CampaignID)
		}
	}
	slices.SortStableFunc(groups, func(a, b RehearsalGroup) int {
		return cmp.Or(cmp.Compare(slices.Index(RehearsalOutcomes, a.Outcome), slices.Index(RehearsalOutcomes, b.Outcome)), cmp.Compare(b.Count, a.Count))
	})
	return groups, n
}

// groupNames is how many campaigns a group names.
const groupNames = 5
