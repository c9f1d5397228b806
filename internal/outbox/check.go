package outbox

import "fmt"

// CheckReport is the result of checking both databases.
type CheckReport struct {
	OK         bool             `json:"ok"`
	Checked    map[string]int64 `json:"checked"` // campaigns, events, rows, skips, tags; and skipped: campaigns that kept changing
	Violations []Violation      `json:"violations"`
	// NotCompared are events that were not applied to projections which are paused, quarantined or
	// behind, and that were compared with no replay.
	NotCompared []NotCompared `json:"not_compared"`
	NotLoaded   []string      `json:"not_loaded,omitempty"` // projections that events are applied with, and that the replay did not have
}

// Add adds a violation; the seq is 0, and the campaign empty, for one that is of none.
func (r *CheckReport) Add(invariant Invariant, campaign string, seq int64, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{Invariant: invariant, CampaignID: campaign, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

// Invariant names a checked property; see Invariants.
type Invariant string

// The invariants, in the order of their explanations.
const (
	InvariantJournalPosition   Invariant = "journal_position"
	InvariantSequence          Invariant = "sequence"
	InvariantJournalDense      Invariant = "journal_dense"
	InvariantJournalHash       Invariant = "journal_hash"
	InvariantJournalChain      Invariant = "journal_chain"
	InvariantRecordedAt        Invariant = "recorded_at"
	InvariantCampaignRow       Invariant = "campaign_row"
	InvariantWatermarkHash     Invariant = "watermark_hash"
	InvariantWatermarkBound    Invariant = "watermark_bound"
	InvariantEventOwed         Invariant = "event_owed"
	InvariantAppliedAndOwed    Invariant = "applied_and_owed"
	InvariantRowEvent          Invariant = "row_event"
	InvariantRowState          Invariant = "row_state"
	InvariantBehindHead        Invariant = "behind_head"
	InvariantEpoch             Invariant = "epoch"
	InvariantSkips             Invariant = "skips"
	InvariantCursor            Invariant = "cursor"
	InvariantSetAside          Invariant = "set_aside"
	InvariantOpenFailures      Invariant = "open_failures"
	InvariantReplayOwed        Invariant = "replay_owed"
	InvariantUnknownCampaign   Invariant = "unknown_campaign"
	InvariantReadModelTable    Invariant = "read_model_table"
	InvariantTagIndex          Invariant = "tag_index"
	InvariantReadable          Invariant = "readable"
	InvariantRebuiltEqualsLive Invariant = "rebuilt_equals_live"
)

// Invariants lists every invariant with the property that it states.
var Invariants = []struct {
	Name  Invariant
	Holds string
}{
	{InvariantJournalPosition, "The positions of a campaign's events rise with their seqs."},
	{InvariantSequence, "Each sequence of PostgreSQL is at or above every number drawn from it, such as the positions of events."},
	{InvariantJournalDense, "A campaign's events have the seqs 1, 2, 3, … without a gap."},
	{InvariantJournalHash, "Each event has the content that its hash was computed from."},
	{InvariantJournalChain, "Each event's chain hash continues that of the event before it."},
	{InvariantRecordedAt, "Each event was recorded between the events before and after it, give or take an hour."},
	{InvariantCampaignRow, "Each campaign's row agrees with its events, its rows, its skips and its watermark."},
	{InvariantWatermarkHash, "The projections were built from the journal's own events."},
	{InvariantWatermarkBound, "No watermark is above the end of its campaign's journal."},
	{InvariantEventOwed, "Each event that is not applied has a row."},
	{InvariantAppliedAndOwed, "No applied event has a row, unless a worker is processing it."},
	{InvariantRowEvent, "Each row belongs to an event, and has its type and its time."},
	{InvariantRowState, "Each row has a known status, and a number of attempts that fits it."},
	{InvariantBehindHead, "No row behind a head is failed or dead, and none is processing unless a worker holds the campaign."},
	{InvariantEpoch, "No row and no fence has a higher epoch than its campaign's lease."},
	{InvariantSkips, "The projections passed over exactly the events that are skipped."},
	{InvariantCursor, "Each projection's cursor has a known state and is not above the watermark."},
	{InvariantSetAside, "The watermark counts exactly the projections that are quarantined, paused or behind."},
	{InvariantOpenFailures, "The watermark counts exactly the open projection failures."},
	{InvariantReplayOwed, "Each projection that is behind has a run that is catching it up."},
	{InvariantUnknownCampaign, "No projection's table has rows of a campaign that the journal does not know, or of which nothing was applied."},
	{InvariantReadModelTable, "Each table of a loaded projection exists."},
	{InvariantTagIndex, "The index of tags has exactly the tags of the events."},
	{InvariantReadable, "Each campaign, table and page of both databases can be read."},
	{InvariantRebuiltEqualsLive, "A replay of the journal gives the live rows."},
}

// Violation is a broken invariant found by the check command.
type Violation struct {
	Invariant  Invariant `json:"invariant"`
	CampaignID string    `json:"campaign_id"`
	Seq        int64     `json:"seq"`
	Detail     string    `json:"detail"`
}
