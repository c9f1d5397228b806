package campaign

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// Summary is the state of the whole system at one moment.
type Summary struct {
	Mode   Mode      `json:"mode"`
	AsOf   time.Time `json:"as_of"`
	Counts Counts    `json:"counts"`
	Events int64     `json:"-"`      // in the journal
	Oldest *Oldest   `json:"oldest"` // the oldest unapplied event, with or without a row; nil if all are applied
	// the oldest event that workers retry automatically: in no blocked, paused or diverged
	// campaign, nor in one that no running instance serves; nil if there is none
	OldestRetryable *Oldest `json:"oldest_retryable"`
	// DueSince is when the first event that workers retry automatically became due, or becomes so
	// when all of them wait for their next attempt; nil if there is none
	DueSince     *time.Time     `json:"-"`
	Campaigns    CampaignCounts `json:"campaigns"`
	Lag          Lag            `json:"lag"`
	Throughput   Throughput     `json:"throughput"`
	Outlook      Outlook        `json:"outlook"`
	Worker       WorkerSummary  `json:"worker"`
	OtherJournal bool           `json:"other_journal"` // the projections have events that the journal lacks: it is the wrong journal, or an older copy
	// what is wrong with the databases themselves, as far as this process knows
	Faults []database.DatabaseFault `json:"database_faults"`
	// campaigns that this server's self-check found not to match their outbox rows, and repaired,
	// since it started
	Drift      int64           `json:"drift"`
	Instances  []InstanceState `json:"instances" api:"nullable"`
	Operations OperationCounts `json:"operations"`
	// Held are the projections that are paused, quarantined, behind or no longer loaded, by name; nil
	// while the projections database cannot be read.
	Held []HeldProjection `json:"held_projections" api:"nullable"`
	// the pauses that end by themselves, at most 1,000, the first to end first
	PauseEnds PauseEnds `json:"pause_ends" api:"nullable"`
	// what is wrong now, the worst first
	Findings finding.List `json:"findings" api:"nullable"`
	// Rejecting are the sources with a rejected row that blocks a campaign, by campaign; at most MaxRejecting.
	Rejecting map[string][]string `json:"-" redact:"-"`
	// Installed are the projections that are or were loaded, by name; nil while the projections database
	// cannot be read.
	Installed map[string]Installed `json:"-" redact:"-"`
}

// MaxRejecting is how many rejected rows a summary tells of by their campaigns.
const MaxRejecting = 1000

// WrongJournal reports whether the journal as a whole is likely the wrong one: it contradicts the
// projections in at least half of all campaigns, or they have not been compared yet.
func (s Summary) WrongJournal() bool {
	return s.OtherJournal && (s.Campaigns.Diverged == 0 || 2*s.Campaigns.Diverged >= s.Campaigns.Total)
}

// OtherJournalText describes OtherJournal and what to do, without a capital and a final period.
func (s Summary) OtherJournalText() string {
	f := s.JournalFindings()[0]
	return event.Lowered(f.Says) + ". " + strings.TrimSuffix(f.Does, ".")
}

// RightJournalFirst is the advice for a diverged campaign: a rebuild from the wrong journal
// destroys correct rows. It follows a semicolon in sentences.
const RightJournalFirst = "the journal may be the wrong one or an older copy: check its URL and restore the right one; only if that is lost, rebuild all projections of the campaign, which removes the lost events from them"

// Surroundings returns the state that every campaign's progress depends on.
func (s Summary) Surroundings() Surroundings {
	return Surroundings{Mode: s.Mode, Worker: &s.Worker, OtherBuilt: s.otherBuilt(), Rejecting: s.Rejecting, Empty: s.Outlook.workers, Ends: s.PauseEnds}
}

// otherBuilt goes on that rows differ from the journal: other versions built rows than those that apply events
// now, and so replay the journal; empty if none did.
func (s Summary) otherBuilt() string {
	var names []string
	text := ""
	for _, name := range slices.Sorted(maps.Keys(s.Installed)) {
		i := s.Installed[name]
		if b := i.Rows(i.Version); i.Version != "" && b.BuiltByOtherVersion {
			names = append(names, name)
			text = fmt.Sprintf(", while version %s of projection %s is loaded and its rows were built %s", b.Now(i.Version).Short(), name, b.ByNow(i.Version))
		}
	}
	if len(names) > 1 {
		text = ", while other versions than the loaded ones built rows of " + ProjectionsNamed(names)
	}
	return text
}

// Oldest is the unapplied event of its kind that was appended first.
type Oldest struct {
	CampaignID string    `json:"campaign_id" redact:"-"`
	Seq        int64     `json:"seq"`
	EnqueuedAt time.Time `json:"enqueued_at"`
	AgeSeconds float64   `json:"age_seconds"`
}

// CampaignCounts counts campaigns by condition; one campaign may count in
// several.
type CampaignCounts struct {
	Total    int64 `json:"total"`
	Lagging  int64 `json:"lagging"` // with at least one unapplied event
	Blocked  int64 `json:"blocked"` // with a dead head
	Paused   int64 `json:"paused"`
	Diverged int64 `json:"diverged"`
	Drifted  int64 `json:"drifted"` // live rows differ from the journal, as of the last verify
	// of the drifted ones, those that differed from versions of projections that are not loaded any
	// more: verify again with the loaded ones
	OutdatedDrift int64 `json:"outdated_drift"`
	// the last verify could not replay the journal, since an event was changed or deleted or a
	// projection refuses one
	Unverifiable int64 `json:"unverifiable"`
	// diverged, drifted, unverifiable or several of them
	Mismatched int64 `json:"-"`
	// due for longer than SilentAfter, and served by no running instance
	Unserved int64 `json:"-"`
	Leased   int64 `json:"leased"`
	Skips    int64 `json:"skips"` // skipped events, in all campaigns together
}

// Lag is how far the projections are behind the journal, over all campaigns.
type Lag struct {
	Events           int64   `json:"events"`
	MaxSeconds       float64 `json:"max_seconds"`       // age of oldest
	RetryableSeconds float64 `json:"retryable_seconds"` // age of oldest_retryable, worth an alert: of campaigns that are served, and neither blocked, paused nor diverged
}

// Throughput is a recent rate, in events per second.
type Throughput struct {
	AppliedPerSecond  float64 `json:"applied_per_second"`
	FailedPerSecond   float64 `json:"failed_per_second"`
	AppendedPerSecond float64 `json:"appended_per_second"` // to the whole journal, by all processes
	BusyShare         float64 `json:"busy_share"`          // of the last seconds in which waves ran, 0 to 1; of several workers that of the busiest
}

// WorkerSummary says whether workers are running.
type WorkerSummary struct {
	Running  bool       `json:"running"`   // an instance with a worker is running or idle
	Starting bool       `json:"starting"`  // the worker of the process that answers has begun, and is not an instance yet
	LastSeen *time.Time `json:"last_seen"` // the latest sign of life of any worker
	// the campaigns that the running instances serve: ids, and prefixes of ids followed by *; *
	// alone is every campaign, also when no instance runs
	Campaigns Scope `json:"campaigns"`
	Applied   int64 `json:"applied_total"`
	Failed    int64 `json:"failed_total"`
	Fenced    int64 `json:"fenced_total"`
}

// Absent reports that no worker is running, nor about to.
func (w *WorkerSummary) Absent() bool { return !w.Running && !w.Starting }

func (w *WorkerSummary) whyUnserved() string {
	return fmt.Sprintf("No running instance serves it: they serve only campaigns that match %s", w.Campaigns)
}

// serves reports whether a running instance serves the campaign, or whether that is unknown.
func (w *WorkerSummary) serves(id string) bool { return w == nil || w.Campaigns.Includes(id) }

// HeldProjection is a projection that an operator has paused, that is quarantined after a failure,
// or that is behind since it was resumed or loaded again.
type HeldProjection struct {
	Projection      string `json:"projection" redact:"-"`
	Paused          *Pause `json:"paused"`           // who paused it for all campaigns; nil if not paused
	PausedCampaigns int64  `json:"paused_campaigns"` // campaigns in which it is paused: every one while it is paused for all
	Behind          int64  `json:"behind"`           // campaigns in which it was resumed or loaded again and waits for a replay, or that advanced without it while it is not loaded; 0 while it is paused for all
	Quarantined     int64  `json:"quarantined"`      // campaigns in which it is quarantined after a failure, also while it is paused for all
	NotLoaded       bool   `json:"not_loaded"`       // it was loaded earlier and is not now: its rows are not updated
	CountsCapped    bool   `json:"counts_capped"`    // the counts are lower bounds
	RunID           int64  `json:"run_id"`           // the active run that catches it up; 0 if there is none
	BlockedByRun    int64  `json:"blocked_by_run"`   // the run after which a replay will catch it up; 0 if there is none
}

// PausedProjections counts the projections that are paused for all campaigns, and those paused for
// some, once per campaign.
func (s Summary) PausedProjections() (forAll, campaigns int64) {
	for _, h := range s.Held {
		if h.Paused != nil {
			forAll++
		} else {
			campaigns += h.PausedCampaigns
		}
	}
	return forAll, campaigns
}

// QuarantinedProjections counts the quarantined projections, once per campaign.
func (s Summary) QuarantinedProjections() (campaigns int64) {
	for _, h := range s.Held {
		campaigns += h.Quarantined
	}
	return campaigns
}

// BehindCounts counts the projections that are behind a campaign's watermark, once per
// campaign, by what catches them up.
type BehindCounts struct {
	Alone    int64 // nothing, until an operator starts a replay
	Waiting  int64 // a replay that starts when another run has ended
	CatchUps int64 // an active run
}

// Built returns the loaded projections with the versions that built their rows; these are not set while
// the projections database cannot be read.
func (s Summary) Built(loaded []ProjectionInfo) []ProjectionInfo {
	all := slices.Clone(loaded)
	for i, p := range all {
		all[i].RowsBuilt = s.Installed[p.Name].Rows(p.Version)
	}
	return all
}

// ProjectionInfo describes a projection that is loaded, or was loaded earlier.
type ProjectionInfo struct {
	Name       string   `json:"name" redact:"-"`
	NotLoaded  bool     `json:"not_loaded"` // it was loaded earlier and is not now: its rows are not updated
	Version    string   `json:"version"`    // hash of its definition; empty, as is the rest of its file, if the answering process has not loaded it
	Tables     []string `json:"tables"`
	EventTypes []string `json:"event_types"`
	OnFailure  string   `json:"on_failure" api:"enum=block quarantine,empty"` // block or quarantine
	// failed attempts after which an event that fails in it is not retried; 0 means the value of
	// --max-attempts
	MaxAttempts     int    `json:"max_attempts"`
	Source          string `json:"source"`           // file, builtin:NAME, or Go
	CursorsBehind   int64  `json:"cursors_behind"`   // campaigns of which it lacks events
	Quarantined     int64  `json:"quarantined"`      // campaigns in which it is quarantined after a failure
	PausedCampaigns int64  `json:"paused_campaigns"` // campaigns in which it is paused: every one while it is paused for all
	Behind          int64  `json:"behind"`           // campaigns in which it was resumed or loaded again and waits for a replay
	OpenFailures    int64  `json:"open_failures"`
	RunID           int64  `json:"run_id"`         // the active run that catches it up; 0 if there is none
	BlockedByRun    int64  `json:"blocked_by_run"` // the run after which a replay will catch it up; 0 if there is none
	Blocking        int64  `json:"blocking"`       // campaigns that it blocks: it is live there, and an event fails in it
	CountsCapped    bool   `json:"counts_capped"`  // the counts are lower bounds
	Paused          *Pause `json:"paused"`         // who paused it for all campaigns; nil if not paused
	// what it costs; null if no wave of the loaded version was measured
	Cost *ProjectionCost `json:"cost" api:"nullable"`
	RowsBuilt
}

// SourceGo is the source of a projection that is written in Go.
const SourceGo = "Go"
