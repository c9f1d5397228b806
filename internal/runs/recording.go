package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Change is a change of a row in a replay.
type Change struct {
	Table     int               // index of Recording.Tables
	Seq       int64             // of the event
	Statement int               // index of Recording.Statements
	Was       []json.RawMessage // the former key of a changed or removed row; nil for an added one
	Is        []json.RawMessage // the columns of an added or changed row; nil for a removed one
}

// Recording replays one campaign and tells every change of its rows, in order by table. It must be
// used by one goroutine only.
type Recording struct {
	Tables     []projection.Shape
	Statements []projection.Statement

	replayer *Replayer
	expected *Expected
	events   bool // changes are told by event: Statement is 0
	captured []readmodel.CapturedTable
}

// NewRecording creates scratch tables for the replay of a campaign. The caller must Close it.
// Errors are those of NewReplayer.
func NewRecording(ctx context.Context, s *store.Store, set *projection.Set, campaign string) (*Recording, error) {
	f, err := NewReplayer(ctx, s, set)
	if err != nil {
		return nil, err
	}
	r := newRecording(f, set.Shapes())
	if r.expected, err = f.Begin(ctx, campaign, nil); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func newRecording(f *Replayer, tables []projection.Shape) *Recording {
	r := &Recording{replayer: f, Tables: tables, Statements: f.set.Statements()}
	for _, t := range r.Tables {
		r.captured = append(r.captured, readmodel.CapturedTable{Name: t.Table, Columns: t.Columns, Key: t.Key})
	}
	return r
}

// Close drops the scratch tables.
func (r *Recording) Close() error { return r.replayer.Close() }

// Seq is the event up to which the campaign is replayed.
func (r *Recording) Seq() int64 { return r.expected.Seq }

// Skim replays up to an event without recording, and calls step after each chunk. It must come
// before To.
func (r *Recording) Skim(ctx context.Context, until int64, step func(seq int64) error) error {
	return refuseUnsound(r.run(ctx, until, func(context.Context) error { return step(r.expected.Seq) }))
}

// To replays up to an event. It calls tell with the changes of each chunk of events, and Seq is
// then the last of them. An error of tell ends the replay, and the Recording with it.
func (r *Recording) To(ctx context.Context, until int64, tell func([]Change) error) error {
	return refuseUnsound(r.record(ctx, until, tell))
}

func (r *Recording) record(ctx context.Context, until int64, tell func([]Change) error) error {
	if r.replayer.marks == nil {
		if err := r.replayer.scratch.Capture(r.captured); err != nil {
			return err
		}
		r.replayer.marks = &marks{Scratch: r.replayer.scratch, events: r.events}
	}
	return r.run(ctx, until, func(ctx context.Context) error {
		changes, err := r.read(ctx)
		if err != nil {
			return err
		}
		return tell(changes)
	})
}

func (r *Recording) run(ctx context.Context, until int64, step func(context.Context) error) error {
	r.replayer.pace = func(ctx context.Context, _ *Expected, _ int64, _ time.Duration) error { return step(ctx) }
	defer func() { r.replayer.pace = nil }()
	return r.expected.To(ctx, until)
}

func refuseUnsound(err error) error {
	if unsound := asInconsistent(err); unsound != nil {
		return event.Conflict("event %d of the journal is not the one that was appended: %s", unsound.seq, unsound.reason)
	}
	return err
}

// read reads the changes captured since the last call.
func (r *Recording) read(ctx context.Context) ([]Change, error) {
	var all []Change
	for i, t := range r.captured {
		rows, err := r.replayer.scratch.Captured(ctx, i, t)
		if err != nil {
			return nil, fmt.Errorf("read the changes of table %q: %w", t.Name, err)
		}
		before := len(all)
		err = projection.EachRow(rows, func(cells []json.RawMessage) error {
			c, err := changeOf(i, len(t.Key), cells)
			all = append(all, c)
			return err
		})
		rows.Close()
		if err == nil && len(all) > before {
			err = r.replayer.scratch.ForgetCaptured(i)
		}
		if err != nil {
			return nil, fmt.Errorf("read the changes of table %q: %w", t.Name, err)
		}
	}
	return all, nil
}

// changeOf makes a change of a captured row: the mark, what happened, the former key, the columns.
func changeOf(table, keys int, cells []json.RawMessage) (Change, error) {
	c := Change{Table: table}
	var mark string
	if err := json.Unmarshal(cells[0], &mark); err != nil {
		return c, err
	}
	seq, step, _ := strings.Cut(mark, " ")
	var err, err2 error
	c.Seq, err = strconv.ParseInt(seq, 10, 64)
	c.Statement, err2 = strconv.Atoi(step)
	kind := string(cells[1])
	if kind != strconv.Itoa(readmodel.CapturedInsert) {
		c.Was = append(c.Was, cells[2:2+keys]...)
	}
	if kind != strconv.Itoa(readmodel.CapturedDelete) {
		c.Is = append(c.Is, cells[2+keys:]...)
	}
	return c, errors.Join(err, err2)
}

// Rows reads the replayed rows of a table.
func (r *Recording) Rows(ctx context.Context, table int, visit func(cells []json.RawMessage) error) error {
	names := make([]string, len(r.captured[table].Columns))
	for i, name := range r.captured[table].Columns {
		names[i] = readmodel.QuoteName(name)
	}
	rows, err := r.replayer.scratch.QueryContext(ctx, "select "+strings.Join(names, ", ")+" from "+readmodel.QuoteName(r.captured[table].Name)+" where campaign_id = $1", r.expected.campaign)
	if err != nil {
		return fmt.Errorf("read the replayed rows of table %q: %w", r.captured[table].Name, err)
	}
	defer rows.Close()
	return projection.EachRow(rows, visit)
}

// Skips are the ids of the skips that the replay passed over, by seq.
func (r *Recording) Skips() map[int64]int64 { return maps.Clone(r.expected.Skips) }

// Compare compares the replayed rows with the live ones, if those are at the same event. A
// projection without a verdict was not compared.
func (r *Recording) Compare(ctx context.Context) ([]replay.ProjectionResult, error) {
	m := comparing{Replayer: r.replayer, campaign: r.expected.campaign, names: r.expected.names, until: r.expected.Seq, expected: r.expected}
	result, _, err := m.compareAll(ctx)
	return result.Projections, err
}

// marks tells the scratch tables which event and statement make the changes that follow.
type marks struct {
	*readmodel.Scratch
	events    bool // rather than their statements
	seq, mark string
	told      string // the last mark of the event
	first     int    // index of the first statement of the event's set
}

// begin is called before an event.
func (m *marks) begin(e *event.Event, first int) *marks {
	m.seq, m.told, m.first = strconv.FormatInt(e.Seq, 10)+" ", "", first
	return m
}

// Step implements projection.Stepper.
func (m *marks) Step(statement int) {
	if m.events {
		statement = -m.first
	}
	m.mark = m.seq + strconv.Itoa(m.first+statement)
}

// Exec marks and runs a statement.
func (m *marks) Exec(ctx context.Context, query string, args []any) error {
	if m.told != m.mark {
		if err := m.MarkAt(ctx, m.mark); err != nil {
			return err
		}
		m.told = m.mark
	}
	return m.Scratch.Exec(ctx, query, args)
}
