package outbox

import (
	"fmt"
	"time"
)

// Summary is the state of the whole system at one moment.
type Summary struct {
	Mode   Mode      `json:"mode"`
	AsOf   time.Time `json:"as_of"`
	Counts Counts    `json:"counts"`
	Events int64     `json:"-"`      // in the journal
	Oldest *Oldest   `json:"oldest"` // the oldest event that is not applied, with a row or without; nil when all are applied
	// the oldest event that workers try by themselves: in no blocked, paused or
	// diverged campaign; nil when there is none
	OldestRetryable *Oldest        `json:"oldest_retryable"`
	Campaigns       CampaignCounts `json:"campaigns"`
	Lag             Lag            `json:"lag"`
	Throughput      Throughput     `json:"throughput"`
	Worker          WorkerSummary  `json:"worker"`
	OtherJournal    bool           `json:"other_journal"` // the projections have events that the journal does not have: it is the wrong one, or an older copy
	// databases whose disk has no room, as far as this process knows; appends and
	// actions are refused with status 507 where the journal is one of them
	DisksFull []FullDisk `json:"disks_full"`
	// campaigns that the self-check of this server found not to match their outbox
	// rows, and repaired, since it started
	Drift      int64           `json:"drift"`
	Instances  []InstanceState `json:"instances" api:"nullable"`
	Operations OperationCounts `json:"operations"`
	// Held are the projections that are paused, quarantined or behind, by name; nil while the
	// projections database cannot be read.
	Held []HeldProjection `json:"held_projections" api:"nullable"`
}

// WrongJournal reports whether the journal as a whole is likely to be the wrong
// one: it contradicts the projections in half of all campaigns or more, or nobody
// has compared them yet.
func (s Summary) WrongJournal() bool {
	return s.OtherJournal && (s.Campaigns.Diverged == 0 || 2*s.Campaigns.Diverged >= s.Campaigns.Total)
}

// OtherJournalText says what OtherJournal tells of, and what to do, without a
// capital and a final stop.
func (s Summary) OtherJournalText() string {
	switch {
	case s.Events == 0:
		return "the journal is empty, but the projections have events: " + lostJournal
	case s.Campaigns.Diverged == 0:
		return "the projections have events that the journal does not have: " + lostJournal
	}
	return Count(s.Campaigns.Diverged, "campaign contradicts", "campaigns contradict") + " the journal, the projections have events that the journal does not have: " + lostJournal
}

const lostJournal = "check that --journal-db names the right database and restore the right journal; if it is the right one, the events were applied from another journal, or it has lost them: only then rebuild, as the runbook explains under “Databases restored from different days”"

// RightJournalFirst is what to do about a campaign that has diverged: a rebuild
// made beside the wrong journal takes good rows away. It goes into sentences,
// after a semicolon.
const RightJournalFirst = "the journal may be the wrong one or an older copy: check --journal-db and restore the right one; only if that is lost, rebuild all projections of the campaign, which removes the lost events from them"

// Surroundings are what every campaign's progress depends on.
func (s Summary) Surroundings() Surroundings { return Surroundings{Mode: s.Mode, Worker: &s.Worker} }

// FullDisk is a database whose disk has no room, so that nothing can be written
// to it.
type FullDisk struct {
	Database string    `json:"database" api:"enum=journal projections"` // journal or projections
	Since    time.Time `json:"since"`                                   // the first write that failed
}

// Oldest is an event that waits to be applied and was appended before all others
// of its kind.
type Oldest struct {
	CampaignID string    `json:"campaign_id" redact:"-"`
	Seq        int64     `json:"seq"`
	EnqueuedAt time.Time `json:"enqueued_at"`
	AgeSeconds float64   `json:"age_seconds"`
	HasRow     bool      `json:"-"`
}

// CampaignCounts counts campaigns by condition; one campaign may count in
// several.
type CampaignCounts struct {
	Total    int64 `json:"total"`
	Lagging  int64 `json:"lagging"` // with at least one unapplied event
	Blocked  int64 `json:"blocked"` // with a dead head
	Paused   int64 `json:"paused"`
	Diverged int64 `json:"diverged"`
	Drifted  int64 `json:"drifted"` // live rows differ from the journal, as last verified
	// the last verify could not replay the journal, since an event was changed or
	// deleted or a projection refuses one
	Unverifiable int64 `json:"unverifiable"`
	Leased       int64 `json:"leased"`
	Skips        int64 `json:"skips"` // skipped events, in all campaigns together
}

// Lag is how far the projections are behind the journal, over all campaigns.
type Lag struct {
	Events           int64   `json:"events"`
	MaxSeconds       float64 `json:"max_seconds"`       // age of oldest
	RetryableSeconds float64 `json:"retryable_seconds"` // age of oldest_retryable, worth an alarm: of campaigns that are neither blocked, paused nor diverged
}

// Throughput is a recent rate, in events per second.
type Throughput struct {
	AppliedPerSecond float64 `json:"applied_per_second"`
	FailedPerSecond  float64 `json:"failed_per_second"`
}

// WorkerSummary says whether somebody works.
type WorkerSummary struct {
	Running  bool       `json:"running"`   // an instance with a worker has not stopped
	LastSeen *time.Time `json:"last_seen"` // the latest sign of life of any worker
	// the campaigns that the running instances serve: ids, and beginnings of ids
	// with * behind them; * alone is every campaign, also when no instance runs
	Campaigns Scope `json:"campaigns"`
	Applied   int64 `json:"applied_total"`
	Failed    int64 `json:"failed_total"`
	Fenced    int64 `json:"fenced_total"`
}

func (w *WorkerSummary) whyUnserved() string {
	return fmt.Sprintf("No running instance serves it: they serve only campaigns that match %s", w.Campaigns)
}

// serves reports whether a running instance serves the campaign, or nobody knows.
func (w *WorkerSummary) serves(id string) bool { return w == nil || w.Campaigns.Includes(id) }

// HeldProjection is a projection that an operator has paused, that is set aside
// after a failure, or that is behind since it was resumed.
type HeldProjection struct {
	Projection      string `json:"projection" redact:"-"`
	Paused          *Pause `json:"paused"`           // who stopped it for all campaigns; nil when nobody did
	PausedCampaigns int64  `json:"paused_campaigns"` // campaigns for which it is paused one by one; 0 while it is paused for all
	Behind          int64  `json:"behind"`           // campaigns in which it was resumed and waits for a replay; 0 while it is paused for all
	Quarantined     int64  `json:"quarantined"`      // campaigns for which it is quarantined after a failure; 0 while it is paused for all
	CountsCapped    bool   `json:"counts_capped"`    // there are more than the counts say
	RunID           int64  `json:"run_id"`           // the active run that catches it up; 0 when there is none
	BlockedByRun    int64  `json:"blocked_by_run"`   // the run at whose end a replay starts that catches it up; 0 when there is none
}

// PausedProjections counts the projections that are paused for all campaigns,
// and those that are for some, once for each campaign.
func (s Summary) PausedProjections() (forAll, campaigns int64) {
	for _, h := range s.Held {
		campaigns += h.PausedCampaigns
		if h.Paused != nil {
			forAll++
		}
	}
	return forAll, campaigns
}

// QuarantinedProjections counts the projections that are set aside after a
// failure, once for each campaign.
func (s Summary) QuarantinedProjections() (campaigns int64) {
	for _, h := range s.Held {
		campaigns += h.Quarantined
	}
	return campaigns
}

// BehindCounts counts the projections that were resumed behind a campaign's
// watermark, once for each campaign, by what becomes of them.
type BehindCounts struct {
	Alone    int64 // no run catches them up until somebody starts a replay
	Waiting  int64 // a replay starts when another run has ended
	CatchUps int64 // a run catches them up
}

// ProjectionInfo describes a loaded projection.
type ProjectionInfo struct {
	Name       string   `json:"name" redact:"-"`
	Version    string   `json:"version"` // hash of its definition
	Tables     []string `json:"tables"`
	EventTypes []string `json:"event_types"`
	OnFailure  string   `json:"on_failure" api:"enum=block quarantine"` // block or quarantine
	// failed attempts after which an event that fails in it is not tried again; 0
	// when --max-attempts says how many
	MaxAttempts     int    `json:"max_attempts"`
	Source          string `json:"source"`           // file, or builtin:NAME
	CursorsBehind   int64  `json:"cursors_behind"`   // campaigns whose events it does not have all of
	Quarantined     int64  `json:"quarantined"`      // campaigns it is set aside for after a failure
	PausedCampaigns int64  `json:"paused_campaigns"` // campaigns it is paused for, by a pause of theirs or of all that has come to them
	Behind          int64  `json:"behind"`           // campaigns in which it was resumed and waits for a replay
	OpenFailures    int64  `json:"open_failures"`
	RunID           int64  `json:"run_id"`         // the active run that catches it up; 0 when there is none
	BlockedByRun    int64  `json:"blocked_by_run"` // the run at whose end a replay starts that catches it up; 0 when there is none
	Blocking        int64  `json:"blocking"`       // campaigns that it holds up: it follows them, and an event fails in it
	CountsCapped    bool   `json:"counts_capped"`  // there are more than the counts say
	Paused          *Pause `json:"paused"`         // who stopped it for all campaigns; nil when nobody did
	// hash of the definition that made the rows; empty when it is not known, or
	// when somebody else made the tables
	BuiltVersion        string `json:"built_version"`
	BuiltByOtherVersion bool   `json:"built_by_other_version"`
}
