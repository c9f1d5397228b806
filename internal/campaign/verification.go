package campaign

import (
	"fmt"
	"strconv"
	"time"
)

// Verification is the last comparison of a campaign's projection with its journal, by a run or in
// the background.
type Verification struct {
	CampaignID string    `json:"campaign_id" redact:"-"`
	Projection string    `json:"projection" redact:"-"`
	At         time.Time `json:"at"`
	Seq        int64     `json:"seq"`                 // compared up to here; for a failed one, the event at fault
	Verdict    Verdict   `json:"verdict" api:"empty"` // failed: the journal could not be replayed
	RunID      int64     `json:"run_id"`              // 0 for a background verify
	Digest     string    `json:"digest"`              // of the replay
	Added      int64     `json:"added"`
	Changed    int64     `json:"changed"`
	Removed    int64     `json:"removed"`
	// FirstSeq is the first divergence, as in a comparison: the cause may be an earlier event, or a
	// later one if another version built rows.
	FirstSeq int64  `json:"first_seq"`
	Error    string `json:"error"`    // why it failed; empty if it did not
	Version  string `json:"version"`  // hash of the definition that it compared with; empty if unknown
	Outdated bool   `json:"outdated"` // another version is loaded now: verify again
	// of rows that differ, the versions that had made them; empty if unknown
	Built []string `json:"built_by,omitempty"`
}

// Failure describes a failed verification: "could not be verified at 2026-05-07T09:00:00Z: event 2
// is missing from the journal (run 7)".
func (v Verification) Failure() string {
	by := "in the background"
	if v.RunID > 0 {
		by = fmt.Sprintf("run %d", v.RunID)
	}
	return fmt.Sprintf("could not be verified at %s: %s (%s)", v.At.UTC().Format(time.RFC3339), v.Error, by)
}

// Verdict says whether live rows match a replay of the journal.
type Verdict string

// The verdicts. A run has none until it ends; a replay never has one.
const (
	VerdictMatch  Verdict = "match"
	VerdictDrift  Verdict = "drift"  // for a rebuild: the rows differed before it
	VerdictFailed Verdict = "failed" // only for a verification: the journal could not be replayed
)

// FoundDrift is what the last verifications of a projection found in some campaigns.
type FoundDrift struct {
	Projection string
	Verdict    Verdict // drift, or failed where the journal could not be replayed
	Campaigns  int64
	Since      time.Time // of the first of these verifications
	Error      string    // of a failed one
}

// DriftBuilt counts the campaigns that differ from the loaded version of a projection by what made their rows.
type DriftBuilt struct {
	Projection string
	Versions   []string // none if unknown
	Campaigns  int64
}

// RowsReplaced counts the rows of a projection in a campaign.
type RowsReplaced struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// Page is where a verification is shown: the run that found it, or its campaign.
func (v Verification) Page() string {
	if v.RunID > 0 {
		return PagePath(nil, "runs", strconv.FormatInt(v.RunID, 10), "results", v.CampaignID)
	}
	return PagePath(nil, "campaigns", v.CampaignID)
}
