package campaign

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// CauseCampaign is a campaign whose head failed with an error: a dead head blocks it, and a failed
// one is retried. In shadow mode it is the event that would fail.
type CauseCampaign struct {
	CampaignID    string       `json:"campaign_id" redact:"-"`
	HeadSeq       int64        `json:"head_seq"`
	HeadStatus    event.Status `json:"head_status"` // dead or failed; pending if it would fail, as rehearsed in shadow_only mode
	EventType     string       `json:"event_type" redact:"-"`
	EventsWaiting int64        `json:"events_waiting"`  // unapplied events, the head among them
	OldestAt      *time.Time   `json:"oldest_at"`       // append time of the oldest of them; nil if unknown
	NextAttemptAt *time.Time   `json:"next_attempt_at"` // when a failed head is retried; nil for a dead one
	Score         int64        `json:"score"`           // waiting events × minutes that the oldest has waited, as of the reading
}

// CausesNamed is the maximum number of campaigns that a group of errors names.
const CausesNamed = 20

// ScoreRule says in a sentence how Score is computed.
const ScoreRule = "Score: waiting events × minutes, at least one, that the oldest of them has waited."

// Score says how bad it is that events wait: their number times the minutes, at least one, that
// the oldest of them has waited.
func Score(events int64, oldest time.Duration) int64 {
	minutes := max(1, int64(oldest/time.Minute))
	if events > math.MaxInt64/minutes {
		return math.MaxInt64
	}
	return max(0, events) * minutes
}

// Scored returns the campaign with its score at a time.
func (c CauseCampaign) Scored(now time.Time) CauseCampaign {
	waited := time.Duration(0)
	if c.OldestAt != nil {
		waited = now.Sub(*c.OldestAt)
	}
	c.Score = Score(c.EventsWaiting, waited)
	return c
}

// compareCampaigns orders campaigns of one error, worst first: blocked ones before those that are
// retried, then by score.
func compareCampaigns(a, b CauseCampaign) int {
	return cmp.Or(cmp.Compare(event.Truth(b.HeadStatus == event.Dead), event.Truth(a.HeadStatus == event.Dead)), cmp.Compare(b.Score, a.Score), cmp.Compare(b.EventsWaiting, a.EventsWaiting),
		cmp.Compare(a.CampaignID, b.CampaignID))
}

// AddCampaign counts a campaign whose head failed with the group's error, and names it if it is
// among the worst.
func (g *ErrorGroup) AddCampaign(c CauseCampaign) {
	g.Campaigns++
	g.EventsWaiting += c.EventsWaiting
	g.Score = addCapped(g.Score, c.Score)
	if c.HeadStatus == event.Dead {
		g.Heads++
	} else if c.NextAttemptAt != nil && (g.NextAttemptAt == nil || c.NextAttemptAt.Before(*g.NextAttemptAt)) {
		g.NextAttemptAt = c.NextAttemptAt
	}
	at, _ := slices.BinarySearchFunc(g.Worst, c, compareCampaigns)
	if at < CausesNamed {
		g.Worst = slices.Insert(g.Worst, at, c)
		g.Worst = g.Worst[:min(len(g.Worst), CausesNamed)]
	}
}

func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// CompareGroups orders errors, worst first: the one that blocks most campaigns, then the one that
// most campaigns fail with, then by the sum of their scores and the number of rows.
func CompareGroups(a, b ErrorGroup) int {
	return cmp.Or(cmp.Compare(b.Heads, a.Heads), cmp.Compare(b.Campaigns, a.Campaigns), cmp.Compare(b.Score, a.Score),
		cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Failed+b.Retrying, a.Failed+a.Retrying), cmp.Compare(a.Fingerprint, b.Fingerprint))
}

func (g ErrorGroup) rows() int64 { return g.Dead + g.Failed + g.Retrying }

// OnlyRehearsed reports whether no row failed with the error yet.
func (g ErrorGroup) OnlyRehearsed() bool { return g.Rehearsed > 0 && g.rows() == 0 }

// Reach says how many campaigns the error keeps from advancing, and how many of their events wait:
// "40 campaigns blocked, 5,700 events waiting".
func (g ErrorGroup) Reach() string {
	var parts []string
	if g.Heads > 0 {
		parts = append(parts, event.Count(g.Heads, "campaign blocked", "campaigns blocked"))
	}
	if n := g.Campaigns - g.Heads - g.Rehearsed; n > 0 {
		parts = append(parts, event.Count(n, "campaign retrying", "campaigns retrying"))
	}
	if g.Rehearsed > 0 {
		parts = append(parts, event.Count(g.Rehearsed, "campaign would be blocked", "campaigns would be blocked"))
	}
	if g.Campaigns == 0 {
		parts = append(parts, event.Count(g.rows(), "row behind another failure", "rows behind other failures"))
	} else {
		parts = append(parts, event.Count(g.EventsWaiting, "event waiting", "events waiting"))
	}
	says := strings.Join(parts, ", ")
	if g.Capped {
		return "at least " + says
	}
	return says
}

// FailsNow reports whether an examined attempt failed with the build that runs now and the version
// of the projection that is loaded now.
func (g ErrorGroup) FailsNow(now Running) bool { return slices.ContainsFunc(g.Tried, now.Is) }

// Is reports whether a build and a version of a projection are those that a retry would use.
func (now Running) Is(t Tried) bool { return now.Build == t.Build && now.projects(t) }

// GroupOperation is a running operation that requeues the dead rows of an error.
type GroupOperation struct {
	ID          int64  `json:"id"`
	Phase       string `json:"phase"` // canary, or the number of its wave: wave 3
	Fingerprint string `json:"-" redact:"-"`
}

// Remedy is the way forward that an error's block offers first.
type Remedy string

// The remedies.
const (
	RemedyWatch    Remedy = "watch"    // an operation is requeuing the rows already
	RemedyRequeue  Remedy = "requeue"  // a requeue may help
	RemedyRehearse Remedy = "rehearse" // a rehearsal tells whether it helps in all of the campaigns
	RemedyInspect  Remedy = "inspect"  // a requeue fails again until the cause is fixed
	RemedyWait     Remedy = "wait"     // workers retry by themselves
)

// Remedy says which way forward comes first.
func (g AssessedGroup) Remedy() Remedy {
	switch {
	case g.Operation != nil:
		return RemedyWatch
	case g.Outlook == OutlookNone:
		return RemedyInspect
	case g.PartlyRehearsed(), g.torn && g.Rehearsal == 0:
		return RemedyRehearse
	case g.Dead > 0:
		return RemedyRequeue
	default:
		return RemedyWait
	}
}

// stuckAfter is how long events may wait for the self-check, or for a run, before their campaign
// counts as stuck.
const stuckAfter = time.Minute

// StuckWithoutError reports whether events of the campaign wait for something else than a failed
// head, an operator's pause or their turn.
func (c Campaign) StuckWithoutError(now time.Time, around Surroundings) bool {
	long := c.LagEvents() > 0 && c.Lag(now) > stuckAfter
	switch c.Explain(now, around).Blocker {
	case BlockerDiverged, BlockerUnserved:
		return true
	case BlockerLease:
		return long && IsRun(c.Lease.Owner)
	case BlockerEmpty, BlockerUnqueued:
		return long
	}
	return false
}
