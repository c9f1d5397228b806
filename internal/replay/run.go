package replay

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// RunKind is what a run does.
type RunKind string

// The kinds of runs.
const (
	RunReplay  RunKind = "replay"  // unapplied events get their rows back; projections that are behind or quarantined catch up
	RunVerify  RunKind = "verify"  // the journal is replayed and compared with the live rows, which do not change
	RunRebuild RunKind = "rebuild" // the journal is replayed and the live rows are replaced
	// RunRehearse applies blocked events with changed projection files to copies of the live rows,
	// which do not change. Only a rehearsal starts it.
	RunRehearse RunKind = "rehearse"
)

// RunKinds lists every kind.
var RunKinds = []RunKind{RunReplay, RunVerify, RunRebuild, RunRehearse}

// ScopedRunKinds lists the kinds that are started over a scope of campaigns and projections.
var ScopedRunKinds = []RunKind{RunReplay, RunVerify, RunRebuild}

// ReadsOnly reports whether a run of this kind leaves every row as it is.
func (k RunKind) ReadsOnly() bool { return k == RunVerify || k == RunRehearse }

// CatchesUp reports whether a run of this kind catches up projections.
func (k RunKind) CatchesUp() bool { return k == RunReplay || k == RunRebuild }

// RunStatus is the state of a run.
type RunStatus string

// The statuses of a run. The last four are final; interrupted and failed runs can be resumed.
const (
	RunQueued      RunStatus = "queued"
	RunRunning     RunStatus = "running"
	RunCancelling  RunStatus = "cancelling" // an operator has cancelled it, and it has not stopped yet
	RunCompleted   RunStatus = "completed"
	RunFailed      RunStatus = "failed" // some campaign failed
	RunCancelled   RunStatus = "cancelled"
	RunInterrupted RunStatus = "interrupted" // its processes died or were stopped, or none has its projections any more
)

// RunStatuses lists every status in the order of a run's life.
var RunStatuses = []RunStatus{RunQueued, RunRunning, RunCancelling, RunCompleted, RunFailed, RunCancelled, RunInterrupted}

// Active reports whether the run blocks other runs in its scope.
func (s RunStatus) Active() bool { return s == RunQueued || s == RunRunning || s == RunCancelling }

// RunRequest is the kind and scope of a requested run: at most MaxRunCampaigns campaigns, or all.
type RunRequest struct {
	Kind        RunKind  `json:"kind" validate:"omitempty,startedkind" api:"required" kong:"-"`
	Campaigns   []string `json:"campaign_ids,omitempty" validate:"dive,required,id" api:"max=MaxRunCampaigns" name:"campaign" sep:"none" placeholder:"C" help:"A campaign to include. Repeatable."`
	All         bool     `json:"all_campaigns,omitempty" api:"default=false" name:"all" help:"All campaigns."`
	Projections []string `json:"projections,omitempty" validate:"dive,required,id" name:"projection" sep:"none" placeholder:"P" help:"A projection to include. Repeatable; default all."`                                                                                          // none means all loaded projections
	UntilSeq    int64    `json:"until_seq,omitempty" validate:"min=0" least:"1" placeholder:"SEQ" help:"Verify of one campaign only: replay up to this event."`                                                                                                                    // for a verify of one campaign: the last event to replay
	Rate        int64    `json:"rate,omitempty" validate:"min=0" api:"default=0" least:"0" placeholder:"N" help:"At most this many events per second; 0 for no limit."`                                                                                                            // maximum events per second; 0 is no limit
	WithVersion string   `json:"with_version,omitempty" validate:"omitempty,hexadecimal,maxbytes=64" placeholder:"VERSION" help:"Verify of one projection only: compare with this kept version of its file, by its number or the beginning of its hash, not with the loaded one."` // of a verify of one projection: the kept version of its file to compare with, not the loaded one; by its number or the beginning of its hash
}

// CompareAll is a verify of a projection in all campaigns with a kept version of its file.
func CompareAll(projection, version string) RunRequest {
	return RunRequest{Kind: RunVerify, All: true, Projections: []string{projection}, WithVersion: version}
}

// RunStartRequest asks for the start of a run.
type RunStartRequest struct {
	RunRequest
	CampaignID string `json:"campaign_id,omitempty" validate:"id" kong:"-"`                                                                                                                    // a single campaign; or use campaign_ids or all_campaigns
	Reason     string `json:"reason" validate:"reason" placeholder:"TEXT" help:"The reason, for the audit log; required for a rebuild of all campaigns."`                                      // required for a rebuild of all campaigns
	Confirm    string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"The phrase 'rebuild all campaigns', required for that. Prompted for at a terminal if not given."` // required for a rebuild of all campaigns: the words "rebuild all campaigns"
}

// Order is the run that is asked for.
func (r RunStartRequest) Order() (RunRequest, error) {
	switch {
	case r.Kind == "":
		return r.RunRequest, event.Invalid("kind", "kind is required")
	case r.CampaignID != "" && len(r.Campaigns) > 0:
		return r.RunRequest, event.Invalid("campaign_ids", "name one campaign in campaign_id, or several in campaign_ids, not both")
	case r.CampaignID != "":
		r.Campaigns = []string{r.CampaignID}
	}
	return r.RunRequest, nil
}

// Progress is how much of a run is done.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"` // as of the start of the run, or more if more is done; 0 before that
}

// Share is the fraction done, from 0 to 1.
func (p Progress) Share() float64 {
	if p.Total <= 0 {
		return 0
	}
	return min(1, float64(p.Done)/float64(p.Total))
}

// RunCounts counts the campaigns of a run by outcome.
type RunCounts struct {
	Matched     int64 `json:"matched"`  // live rows and replay agree
	Drifted     int64 `json:"drifted"`  // they differ, or differed before the rebuild
	Replayed    int64 `json:"replayed"` // caught up, or nothing to do
	Failed      int64 `json:"failed"`
	NotCompared int64 `json:"not_compared"` // campaigns without differences in which not all events were compared
}

// Add counts campaigns with an outcome; none means without a result yet.
func (n *RunCounts) Add(outcome string, campaigns int64) {
	switch outcome {
	case OutcomeMatch:
		n.Matched += campaigns
	case OutcomeDrift:
		n.Drifted += campaigns
	case OutcomeReplayed:
		n.Replayed += campaigns
	case OutcomeFailed:
		n.Failed += campaigns
	case OutcomeNotCompared:
		n.NotCompared += campaigns
	}
}

// Sum is the number of campaigns with a result.
func (n RunCounts) Sum() int64 {
	return n.Matched + n.Drifted + n.Replayed + n.Failed + n.NotCompared
}

// Run is a replay, verify or rebuild over a scope of campaigns × projections.
type Run struct {
	ID          int64             `json:"id"`
	Kind        RunKind           `json:"kind"`
	Status      RunStatus         `json:"status"`
	CampaignID  string            `json:"campaign_id" redact:"-"`  // of a run over one campaign; empty otherwise
	CampaignIDs []string          `json:"campaign_ids" redact:"-"` // the campaigns named one by one; empty for all
	All         bool              `json:"all_campaigns"`
	Projections []string          `json:"projections" redact:"-"` // in load order
	Versions    map[string]string `json:"versions" redact:"-"`    // of the projections, by name, at the start of the run
	// With are the versions that it replays with instead of the loaded ones, by projection: those of changed
	// files, or of a kept version. Empty otherwise.
	With        map[string]string `json:"with_versions" redact:"-"`
	UntilSeq    int64             `json:"until_seq"` // the last event replayed; 0 means as far as the live rows are
	Rate        int64             `json:"rate"`      // maximum events per second; 0 is no limit
	Reason      string            `json:"reason"`
	RequestedBy string            `json:"requested_by"`
	Via         string            `json:"via"`
	RequestID   string            `json:"request_id"`
	RequestedAt time.Time         `json:"requested_at"`
	StartedAt   *time.Time        `json:"started_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
	FinishedAt  *time.Time        `json:"finished_at"`
	Campaigns   Progress          `json:"campaigns"`
	Events      Progress          `json:"events"` // of a verify or a rebuild the applied ones, of a replay all in the journal
	Counts      RunCounts         `json:"counts"`
	// EventsPerSecond is the recent rate; 0 while it is not running, or its process has not reported
	// for 5 seconds.
	EventsPerSecond float64           `json:"events_per_second"`
	SecondsLeft     *float64          `json:"seconds_left"`              // nil while unknown
	Digests         map[string]string `json:"digests" redact:"-"`        // of a run over one campaign: the replay's digests by projection, and full
	Before          map[string]string `json:"digests_before" redact:"-"` // the live rows' digests before the run
	// Seq is the seq that Digests belong to; 0 without them.
	Seq         int64            `json:"seq"`
	Verdict     campaign.Verdict `json:"verdict" api:"enum=match drift,empty"` // empty until the end, and for a replay
	Error       string           `json:"error"`                                // why it failed or was interrupted
	CancelledBy string           `json:"cancelled_by"`
	Attempts    int64            `json:"attempts"` // how many times a process has claimed it
	Lease       *campaign.Lease  `json:"lease"`    // nil when no process has leased it
}

// RunPreview is what a run would cover if it were started now.
type RunPreview struct {
	Kind        RunKind
	Projections []string          `redact:"-"` // in load order
	With        map[string]string `redact:"-"` // as of a Run
	Campaigns   int64
	Diverged    int64 // of Campaigns, the diverged ones
	Events      int64
	Confirm     string // the phrase that it requires, with a reason; empty if none is required
	BlockingRun *Run   // the active run that blocks it, or nil
}

// RunTally is the number of runs of a kind with a status.
type RunTally struct {
	Kind   RunKind
	Status RunStatus
	Runs   int64
}

// FullDigest is the key of the digest over all projections in Run.Digests.
const FullDigest = "full"

// Succeeded reports whether a run that has ended was successful: a verify that found drift was not.
func (r Run) Succeeded() bool {
	return r.Status == RunCompleted && (r.Kind != RunVerify || r.Verdict != campaign.VerdictDrift)
}

// FailedCampaigns is in how many campaigns the run failed. That an event fails is an answer of a rehearsal.
func (r Run) FailedCampaigns() int64 {
	if r.Kind == RunRehearse {
		return 0
	}
	return r.Counts.Failed
}

// VersionsOf says which versions the rows and the replay of a projection were of, in the first result that
// differs; empty if none does.
func VersionsOf(results []RunResult, projection string) string {
	for _, r := range results {
		for _, p := range r.Projections {
			if c := p.Comparison; p.Projection == projection && c != nil && c.Differs() {
				return c.Versions()
			}
		}
	}
	return ""
}

// AllDrifted reports whether every campaign differed in a verify of all.
func (r Run) AllDrifted() bool { return r.All && r.Counts.Drifted == r.Campaigns.Total }

// Scope describes the run's scope in words.
func (r Run) Scope() string {
	if r.Kind == RunRehearse {
		return "changed files in " + event.Count(int64(len(r.CampaignIDs)), "campaign", "campaigns")
	}
	what := "projection " + strings.Join(r.Projections, ", ")
	if len(r.Projections) > 1 {
		what = "projections " + event.Joined(r.Projections, " and ")
	}
	if with := WithText(r.With); with != "" {
		what += ", replayed with " + with + ","
	}
	switch {
	case r.All:
		return what + " in all campaigns"
	case r.CampaignID != "":
		return what + " in campaign " + r.CampaignID
	default:
		return what + " in " + event.Count(int64(len(r.CampaignIDs)), "campaign", "campaigns")
	}
}

// OfLoaded reports whether the run replays with the loaded files: what it finds is of them, and of no others.
func (r Run) OfLoaded() bool { return r.Kind != RunRehearse && len(r.With) == 0 }

// WithText names versions that a run replays with instead of the loaded ones: "version 1a2b3c4d of seats"; empty
// without any.
func WithText(versions map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		all = append(all, "version "+event.ShortHash(versions[name])+" of "+name)
	}
	return event.Joined(all, " and ")
}

// RunFilter selects runs for a page. Zero fields select all.
type RunFilter struct {
	Kind       RunKind   `json:"kind" validate:"omitempty,runkind" column:"kind" placeholder:"K" values:"run-kind" help:"Only runs of this kind: replay, verify, rebuild or rehearse."`
	Status     RunStatus `json:"status" validate:"omitempty,runstatus" column:"status" placeholder:"S" values:"run-status" help:"Only runs with this status: queued, running, cancelling, completed, failed, cancelled or interrupted."`
	CampaignID string    `json:"campaign" validate:"id" label:"Campaign" hint:"exact id" kong:"-"` // runs whose scope includes it, also runs over all campaigns
	Cursor     string    `json:"cursor" validate:"cursor" kong:"-"`                                // next_cursor or prev_cursor of another page, with the same filter and order
	Limit      int       `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// The outcomes of a run in one campaign.
const (
	OutcomeMatch       = "match" // of a replay: nothing was to be replayed
	OutcomeDrift       = "drift"
	OutcomeReplayed    = "replayed"     // of a rehearsal and a dry run: the events would be applied
	OutcomeFailed      = "failed"       // of a rehearsal and a dry run: an event would fail, which is an answer
	OutcomeNotCompared = "not_compared" // nothing differs, but a projection that is paused, quarantined or behind lacks events; also for a rebuild, which does not advance a paused one
)

// OutcomeName is an outcome in words for a run of this kind: rows that differed before a rebuild
// are correct after it.
func (k RunKind) OutcomeName(outcome string) string {
	switch {
	case k == RunRebuild && outcome == OutcomeDrift:
		return "differed before"
	case k == RunRebuild && outcome == OutcomeMatch:
		return "did not differ"
	case k == RunReplay && outcome == OutcomeMatch:
		return "nothing to replay"
	case k == RunRehearse && outcome == OutcomeDrift:
		return "other rows"
	case k == RunRehearse && outcome == OutcomeMatch:
		return "same rows"
	case k == RunRehearse && outcome == OutcomeReplayed:
		return "passes"
	case k == RunRehearse && outcome == OutcomeFailed:
		return "fails"
	case k == RunRebuild && outcome == OutcomeNotCompared:
		return "not complete"
	case outcome == OutcomeNotCompared:
		return "not fully compared"
	}
	return strings.ReplaceAll(outcome, "_", " ")
}

// LeftOut returns the result of a projection of which a run over one campaign left out events; nil
// for any other.
func (r Run) LeftOut(results []RunResult, projection string) *ProjectionResult {
	for _, one := range results {
		for i, p := range one.Projections {
			if p.Projection == projection && p.LeftOut != "" && one.CampaignID == r.CampaignID {
				return &one.Projections[i]
			}
		}
	}
	return nil
}

// RunResult is the result of one campaign of a run.
type RunResult struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	// match of a replay: nothing was to be replayed; not_compared: nothing differs, but a projection
	// that is paused, quarantined or behind lacks events; also for a rebuild, which does not advance a paused one
	Outcome     string             `json:"outcome" api:"enum=match drift replayed failed not_compared"`
	Seq         int64              `json:"seq"`    // replayed up to here
	Events      int64              `json:"events"` // number of the run's events that are this campaign's
	Full        string             `json:"full"`   // digest over all projections of the run; empty for a replay
	Projections []ProjectionResult `json:"projections"`
	Error       string             `json:"error"`     // in full; empty unless failed
	Rehearsed   *Rehearsed         `json:"rehearsed"` // nil unless the run is a rehearsal
	At          time.Time          `json:"at"`
	// Unsound is the event of the journal that made a verify impossible; 0 without one. It is not
	// stored, but Verifications use it.
	Unsound int64 `json:"-"`
}

// ProjectionResult is the result of one projection in one campaign of a run.
type ProjectionResult struct {
	Projection string `json:"projection" redact:"-"`
	// Verdict is drift if the live rows differ from the replay's: of a rehearsal, if the changed files
	// make other rows.
	Verdict    campaign.Verdict `json:"verdict" api:"enum=match drift,empty"`
	Digest     string           `json:"digest"`                   // of the replay
	Before     string           `json:"digest_before" redact:"-"` // of the live rows
	Generation int64            `json:"generation"`               // after a rebuild or a catch-up; 0 otherwise
	// Rows are those that a rebuild or a catch-up replaced; nil otherwise.
	Rows *campaign.RowsReplaced `json:"rows"`
	// Seq is the projection's position now; a projection that failed again may be behind the
	// campaign.
	Seq int64 `json:"seq"`
	// From is where a replay or a rebuild found a projection that was not live, and advanced it from;
	// nil otherwise.
	From *int64 `json:"from_seq"`
	// why a verify or a rebuild has not compared all of the campaign's events, or a dry run of a row
	// does not apply them: the state of the cursor; paused or quarantined: compared up to seq;
	// behind: not compared. Empty otherwise
	LeftOut    string                 `json:"left_out" api:"enum=paused quarantined behind,empty"`
	Comparison *projection.Comparison `json:"comparison"` // how the live rows differ from the replay; nil when not compared row by row
	Error      string                 `json:"error"`      // why it could not be replayed, or compared
	ErrorSeq   int64                  `json:"error_seq"`  // the event it failed at; 0 if no event is at fault
}

// Of returns the result of a projection; without one it is empty.
func (r RunResult) Of(projection string) (of ProjectionResult) {
	for _, p := range r.Projections {
		if p.Projection == projection {
			of = p
		}
	}
	return of
}

// NotCompared lists the events left out of the comparison, in load order of the projections.
func (r RunResult) NotCompared() (all []campaign.NotCompared) {
	for _, p := range r.Projections {
		if p.LeftOut == "" || p.Error != "" { // of which nothing was compared
			continue
		}
		n := campaign.NotCompared{CampaignID: r.CampaignID, Projection: p.Projection, State: p.LeftOut, FromSeq: p.Seq + 1, UntilSeq: r.Seq}
		if p.LeftOut == campaign.CursorBehind {
			n.FromSeq = 1
		}
		all = append(all, n)
	}
	return all
}

// ResultFilter selects results of a run. Zero fields select all.
type ResultFilter struct {
	RunID   int64  `json:"-"`
	Outcome string `json:"outcome" validate:"omitempty,oneof=match drift replayed failed not_compared"`
	Samples bool   `json:"-"`                        // with samples of the rows that differ
	Cursor  string `json:"cursor" validate:"cursor"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// RunLine is a line of a run's log.
type RunLine struct {
	ID         int64     `json:"id"`
	At         time.Time `json:"at"`
	CampaignID string    `json:"campaign_id" redact:"-"` // empty for a line about the whole run
	Text       string    `json:"text"`                   // errors in full, with their stack if there is one
}

// Verifications are the conclusions of the result about the current live rows; a run that has only
// projections stands for the background verify. A comparison as of an earlier event has none;
// rebuilt rows are those of the replay. A verify that an event prevented from replaying the journal
// has failed, for all of its projections or for the one that refused the event.
func (r RunResult) Verifications(run Run) []campaign.Verification {
	var all []campaign.Verification
	if !run.OfLoaded() {
		return nil
	}
	if r.Unsound > 0 {
		for _, name := range run.Projections {
			all = append(all, r.failed(run, name, r.Unsound, r.Error))
		}
		return all
	}
	if run.UntilSeq > 0 || run.Kind == RunReplay {
		return nil
	}
	for _, p := range r.Projections {
		if p.ErrorSeq > 0 && run.Kind != RunRebuild {
			all = append(all, r.failed(run, p.Projection, p.ErrorSeq, fmt.Sprintf("event %d cannot be replayed: %s", p.ErrorSeq, p.Error)))
		}
		unchanged := run.Kind == RunRebuild && p.Generation == 0 && r.Outcome == OutcomeFailed
		nothing := p.LeftOut != "" && p.Seq == 0 // no event was applied to it, so none was compared
		if p.Error != "" || p.Verdict == "" || unchanged || nothing {
			continue
		}
		all = append(all, r.judged(run, p))
	}
	return all
}

func (r RunResult) judged(run Run, p ProjectionResult) campaign.Verification {
	v := campaign.Verification{CampaignID: r.CampaignID, Projection: p.Projection, Version: run.Versions[p.Projection], At: r.At, Seq: p.Seq, Verdict: p.Verdict, RunID: run.ID, Digest: p.Digest}
	if v.Seq == 0 {
		v.Seq = r.Seq
	}
	if run.Kind == RunRebuild {
		v.Verdict = campaign.VerdictMatch
	} else if c := p.Comparison; c != nil {
		v.Added, v.Changed, v.Removed, v.FirstSeq = c.Added, c.Changed, c.Removed, c.FirstSeq
		for _, by := range c.BuiltVersions {
			v.Built = append(v.Built, by.Version)
		}
	}
	return v
}

// failed returns a verification that could not be completed.
func (r RunResult) failed(run Run, projection string, seq int64, why string) campaign.Verification {
	return campaign.Verification{CampaignID: r.CampaignID, Projection: projection, Version: run.Versions[projection], At: r.At, Seq: seq, Verdict: campaign.VerdictFailed, RunID: run.ID, Error: why}
}

// Leased reports whether a process has leased the run.
func (r Run) Leased(now time.Time) bool { return r.Lease != nil && r.Lease.ExpiresAt.After(now) }

// runQuiet is how long a process at work on a run may report nothing; it reports twice a second.
const runQuiet = 5 * time.Second

// Silent reports whether the process that has leased the run may be dead: it has not reported lately.
func (r Run) Silent(now time.Time) bool {
	return r.Status.Active() && r.Leased(now) && now.Sub(r.UpdatedAt) > runQuiet
}

// Unattended says what is known of the process at work on an active run when it has not reported
// lately; empty while it reports.
func (r Run) Unattended(now time.Time) string {
	ago := event.Age(now.Sub(r.UpdatedAt)) + " ago"
	switch {
	case r.Silent(now):
		return fmt.Sprintf("Its process last reported %s; if it is dead, another worker takes over in %s.", ago, event.Age(r.Lease.ExpiresAt.Sub(now)))
	case (r.Status == RunRunning || r.Status == RunCancelling) && !r.Leased(now):
		return "No process works on it: the last one reported " + ago + ". The next free worker takes over."
	}
	return ""
}

// StatusWords is the run's status, and how old its last report is when that is not recent.
func (r Run) StatusWords(now time.Time) string {
	if r.Unattended(now) != "" {
		return string(r.Status) + ", last report " + event.Age(now.Sub(r.UpdatedAt)) + " ago"
	}
	return string(r.Status)
}

// Cancellable reports whether the run may be cancelled. Its holder ends a cancelling run. If the
// holder is gone the run can be cancelled again, which ends it at once: no other process may be
// there to do so.
func (r Run) Cancellable(now time.Time) bool {
	return r.Status.Active() && (r.Status != RunCancelling || !r.Leased(now))
}

// Resumable reports whether the run stopped before its end, or failed.
func (r Run) Resumable() bool { return r.Status == RunInterrupted || r.Status == RunFailed }

// Action is the action on the run; empty if there is none.
func (r Run) Action(now time.Time) operator.Action {
	switch {
	case r.Cancellable(now):
		return operator.ActionRunCancel
	case r.Resumable():
		return operator.ActionRunResume
	}
	return ""
}

// Actions returns the actions on the run, including starting another like it.
func (r Run) Actions(now time.Time) []operator.Action {
	var all []operator.Action
	if a := r.Action(now); a != "" {
		all = append(all, a)
	}
	if !r.Status.Active() {
		all = append(all, operator.ActionRunStart)
	}
	return all
}

// Query is the request in the address of the page that prepares it, as far as findings fill it.
func (o RunRequest) Query() url.Values {
	query := url.Values{"kind": {string(o.Kind)}, "campaign_ids": o.Campaigns, "projections": o.Projections}
	if o.All {
		query.Set("all_campaigns", "true")
	}
	if o.WithVersion != "" {
		query.Set("with_version", o.WithVersion)
	}
	return query
}
