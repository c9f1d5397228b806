package timetravel

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// ReadModel is the rows that a replay of the journal gives a campaign, as of an event.
type ReadModel struct {
	CampaignID string          `json:"campaign_id" redact:"-"`
	Seq        int64           `json:"seq"`       // the rows are as they were after this event
	FirstSeq   int64           `json:"first_seq"` // the first event whose rows are kept; 0 when they are kept from the start
	LastSeq    int64           `json:"last_seq"`  // the last applied event
	Live       bool            `json:"live"`      // the rows are read from the projections database, without their history
	Tables     []ModelTable    `json:"tables"`
	Changes    []ModelTable    `json:"changes"`     // the rows that the event changed, when no table or row was asked for
	Graphs     []ModelGraph    `json:"graphs"`      // of projections that have one, when no table or row was asked for
	Standings  []ModelStanding `json:"projections"` // how the replay went and compares with the live rows
}

// ModelTable is rows of one table of a projection, in the order of their keys.
type ModelTable struct {
	Projection string     `json:"projection" redact:"-"`
	Name       string     `json:"table" redact:"-"`
	Columns    []string   `json:"columns" redact:"-"`                               // without the campaign's
	Source     string     `json:"source" redact:"-" api:"enum=replay live unknown"` // where the rows are from; unknown when there are none to show
	Rows       []ModelRow `json:"rows"`
	Next       string     `json:"next" redact:"-"` // the row after which the rest begins; empty when there is none
	More       bool       `json:"more"`            // there are more rows
	campaign.ReplayedWith
}

// Sources of rows.
const (
	SourceReplay  = "replay"  // the journal, replayed with the loaded version
	SourceLive    = "live"    // the projections database, since the loaded version cannot replay the campaign up to the event
	SourceUnknown = "unknown" // none: the same, as of an event before the last applied one
)

// FailedBy returns how the replay of a projection went that could not replay the campaign up to Seq;
// false if it could.
func (m ReadModel) FailedBy(projection string) (ModelStanding, bool) {
	for _, s := range m.Standings {
		if s.Projection == projection && s.FailedSeq > 0 && s.FailedSeq <= m.Seq {
			return s, true
		}
	}
	return ModelStanding{}, false
}

// ModelGraph is rows of two tables as nodes and edges: those that the event changed, those joined with
// them, and others in the order of their keys.
type ModelGraph struct {
	Projection string      `json:"projection" redact:"-"`
	Nodes      []ModelNode `json:"nodes" api:"max=60"`
	Edges      []ModelEdge `json:"edges" api:"max=200"` // between these nodes
	NodesTotal int64       `json:"nodes_total"`         // how many nodes there are; 1,000 means that or more
	EdgesTotal int64       `json:"edges_total"`         // likewise
}

// ModelNode is a row as a node of a graph.
type ModelNode struct {
	ID    projection.Field `json:"id"`
	Label projection.Field `json:"label"`
	Kind  string           `json:"kind" redact:"-" api:"enum=added changed removed,empty"` // what the event did to it; empty for nothing
}

// ModelEdge is a row as an edge of a graph.
type ModelEdge struct {
	From int    `json:"from"` // index of a node
	To   int    `json:"to"`
	Kind string `json:"kind" redact:"-" api:"enum=added changed removed,empty"`
}

// Limits of a graph.
const (
	MaxGraphNodes = 60
	MaxGraphEdges = 200
	GraphRows     = 1000 // rows of a table that are counted and examined
)

// ModelRow is a row as of an event, beside the one before that event.
type ModelRow struct {
	Row       string             `json:"row" redact:"-"`                                         // names the row; empty for a live one
	Kind      string             `json:"kind" redact:"-" api:"enum=added changed removed,empty"` // what the event did to it; empty for nothing
	Key       []projection.Field `json:"key"`                                                    // the primary key without the campaign
	Cells     []ModelCell        `json:"cells"`                                                  // the other columns; of a removed row those it had
	Previous  int64              `json:"previous_seq"`                                           // the event of its last change before; 0 when there is none
	Following int64              `json:"next_seq"`                                               // the event of its next change; 0 when there is none
}

// ModelCell is a value of a row, and what set it.
type ModelCell struct {
	Name      string          `json:"name" redact:"-"`
	Value     json.RawMessage `json:"value"`                // any JSON value; nil for a value too long for a list
	Before    json.RawMessage `json:"before"`               // the value before the event, if the event changed it; otherwise nil
	Changed   bool            `json:"changed"`              // by the event
	Long      bool            `json:"long"`                 // value or before are too long for a list
	SetSeq    int64           `json:"set_seq"`              // the event that set it; 0 when that is not kept
	Statement string          `json:"statement" redact:"-"` // file and line of the statement that set it; empty when that is not kept
}

// ModelStanding is how a projection's replay went, and how it compares with the live rows.
type ModelStanding struct {
	Projection string `json:"projection" redact:"-"`
	Verdict    string `json:"verdict" redact:"-"` // match, drift, or empty when it was not compared
	Differ     int64  `json:"differ"`             // how many live rows differ
	FailedSeq  int64  `json:"failed_seq"`         // the event that it could not replay; 0 when there is none
	Error      string `json:"error"`              // why
}

// ModelHistory is one cell of a read model, whole, with what set it and the values it had before.
type ModelHistory struct {
	CampaignID string             `json:"campaign_id" redact:"-"`
	Seq        int64              `json:"seq"` // as of this event
	FirstSeq   int64              `json:"first_seq"`
	LastSeq    int64              `json:"last_seq"`
	Projection string             `json:"projection" redact:"-"`
	Table      string             `json:"table" redact:"-"`
	Row        string             `json:"row" redact:"-"`
	Key        []projection.Field `json:"key"`
	Gone       bool               `json:"gone"`                  // the row is not there as of the event
	Cell       ModelCell          `json:"cell"`                  // as of the event
	Earlier    []ModelCell        `json:"earlier"`               // the values before, newest first, at most 20
	SQL        string             `json:"sql" redact:"-"`        // the statement that set it
	EventType  string             `json:"event_type" redact:"-"` // of the event that set it
	SetBy      *ModelSetter       `json:"set_by"`                // nil when that is not kept
	campaign.ReplayedWith
}

// ModelSetter is whose event set a cell, and with which version of the projection it was applied.
type ModelSetter struct {
	ActorType  string                 `json:"actor_type"`
	ActorID    string                 `json:"actor_id"`
	RequestID  string                 `json:"request_id"`
	RecordedAt time.Time              `json:"recorded_at"`
	Version    campaign.LoadedVersion `json:"version"`
}

// Sentence says so: "By user ana, recorded 2026-11-26 18:10:00 UTC, request r-1, applied by version 1 (5b70dfd1a2c3)".
func (s ModelSetter) Sentence() string {
	text := "Recorded " + event.Second(s.RecordedAt)
	if s.ActorID != "" {
		text = "By " + strings.TrimSpace(s.ActorType+" "+s.ActorID) + ", " + event.Lowered(text)
	}
	if s.RequestID != "" {
		text += ", request " + s.RequestID
	}
	if s.Version.Version != "" {
		text += ", applied by version " + s.Version.Short()
	}
	return text + "."
}

// ModelQuery selects rows of a read model.
type ModelQuery struct {
	CampaignID string `json:"-" validate:"-"`
	Seq        int64  `json:"seq" validate:"min=0"`                             // as of this event; 0 means the last applied one
	Table      string `json:"table" validate:"id"`                              // only this table
	After      string `json:"after" validate:"id"`                              // the rows of that table after this one: next of the page before
	Row        string `json:"row" validate:"id"`                                // only this row
	Limit      int    `json:"limit" validate:"min=0,max=100" api:"default=100"` // rows of each table
}

// MaxModelRows is the maximum number of rows of a table in one answer.
const MaxModelRows = 100

// Replaying is the error of a read model that is still being replayed.
type Replaying struct{ Done, Total int64 }

func (e *Replaying) Error() string { return e.Sentence() }

// Unwrap makes it an ErrBusy.
func (e *Replaying) Unwrap() error { return event.ErrBusy }

// Sentence says how far the replay is.
func (e *Replaying) Sentence() string {
	return fmt.Sprintf("Replaying the campaign: %s of %s", event.Number(e.Done), event.Count(e.Total, "event", "events"))
}

// Changed counts the rows that the event changed.
func (t ModelTable) Changed() int {
	n := 0
	for _, r := range t.Rows {
		if r.Kind != "" {
			n++
		}
	}
	return n
}
