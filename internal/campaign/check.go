package campaign

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

// Invariant names a checked property.
type Invariant string

// The invariants with what holds, in the order of the reference of commands.
const (
	InvariantJournalPosition   Invariant = "journal_position"    // the positions of a campaign's events rise with their seqs
	InvariantSequence          Invariant = "sequence"            // each sequence of PostgreSQL is at or above every number drawn from it, such as the positions of events
	InvariantJournalDense      Invariant = "journal_dense"       // a campaign's events have the seqs 1, 2, 3, … without a gap
	InvariantJournalHash       Invariant = "journal_hash"        // each event has the content that its hash was computed from
	InvariantJournalChain      Invariant = "journal_chain"       // each event's chain hash continues that of the event before it
	InvariantRecordedAt        Invariant = "recorded_at"         // each event was recorded between the events before and after it, give or take an hour
	InvariantCampaignRow       Invariant = "campaign_row"        // each campaign's row agrees with its events, its rows, its skips and its watermark
	InvariantWatermarkHash     Invariant = "watermark_hash"      // the projections were built from the journal's own events
	InvariantWatermarkBound    Invariant = "watermark_bound"     // no watermark is above the end of its campaign's journal
	InvariantEventOwed         Invariant = "event_owed"          // each event that is not applied has a row
	InvariantAppliedAndOwed    Invariant = "applied_and_owed"    // no applied event has a row, unless a worker is processing it
	InvariantRowEvent          Invariant = "row_event"           // each row belongs to an event, and has its type and its time
	InvariantRowState          Invariant = "row_state"           // each row has a known status, and a number of attempts that fits it
	InvariantBehindHead        Invariant = "behind_head"         // no row behind a head is failed or dead, and none is processing unless a worker holds the campaign
	InvariantEpoch             Invariant = "epoch"               // no row and no fence has a higher epoch than its campaign's lease
	InvariantSkips             Invariant = "skips"               // the projections passed over exactly the events that are skipped
	InvariantCursor            Invariant = "cursor"              // each projection's cursor has a known state and is not above the watermark
	InvariantSetAside          Invariant = "set_aside"           // the watermark counts exactly the projections that are quarantined, paused or behind
	InvariantOpenFailures      Invariant = "open_failures"       // the watermark counts exactly the open projection failures
	InvariantReplayOwed        Invariant = "replay_owed"         // each projection that is behind has a run that is catching it up
	InvariantUnknownCampaign   Invariant = "unknown_campaign"    // no projection's table has rows of a campaign that the journal does not know, or of which nothing was applied
	InvariantReadModelTable    Invariant = "read_model_table"    // each table of a loaded projection exists
	InvariantTagIndex          Invariant = "tag_index"           // the index of tags has exactly the tags of the events
	InvariantReadable          Invariant = "readable"            // each campaign, table and page of both databases can be read
	InvariantRebuiltEqualsLive Invariant = "rebuilt_equals_live" // a replay of the journal gives the live rows
)

// Violation is a broken invariant found by the check command.
type Violation struct {
	Invariant  Invariant `json:"invariant"`
	CampaignID string    `json:"campaign_id"`
	Seq        int64     `json:"seq"`
	Detail     string    `json:"detail"`
}

// NotCompared are events that a verify or a rebuild has not compared with a projection's live rows,
// since they were not applied to it.
type NotCompared struct {
	CampaignID string `json:"campaign_id"`
	Projection string `json:"projection"`
	State      string `json:"state"` // of its cursor: paused, quarantined or behind
	FromSeq    int64  `json:"from_seq"`
	UntilSeq   int64  `json:"until_seq"`
}

func (n NotCompared) String() string {
	return fmt.Sprintf("%s of campaign %s in projection %s, %s", n.Events(), n.CampaignID, n.Projection, n.Why())
}

// Events is the range of events: "events 3 to 5".
func (n NotCompared) Events() string {
	switch {
	case n.FromSeq == 1:
		return "all events"
	case n.FromSeq == n.UntilSeq:
		return fmt.Sprintf("event %d", n.UntilSeq)
	}
	return fmt.Sprintf("events %d to %d", n.FromSeq, n.UntilSeq)
}

// Why is the reason, to continue a sentence: "paused".
func (n NotCompared) Why() string {
	if n.State == CursorBehind {
		return "behind until a replay has caught it up"
	}
	return n.State
}
