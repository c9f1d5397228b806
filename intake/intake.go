// Package intake writes events into the table outboxweb_intake of a service's own database, in the
// service's own transaction. The service's rows and its events then commit together, or not at all.
// A server of outboxweb that has the database as a source moves the rows into its journal, each
// exactly once.
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	_, err = tx.ExecContext(ctx, `update orders set status = 'paid' where id = $1`, id)
//	…
//	err = intake.Append(ctx, tx, intake.Event{CampaignID: id, EventID: eventID, EventType: "order.paid", Payload: payload})
//	…
//	err = tx.Commit()
//
// [Append] takes a *sql.Tx of database/sql, with any driver for PostgreSQL or SQLite. A transaction
// of pgx is passed through [Pgx].
//
// # Order
//
// The events of a campaign enter the journal in the order in which their rows were inserted, provided
// that the transactions that insert them do not overlap. A service that locks the row of its own
// aggregate before it appends, as it does anyway to change it, has that order. Transactions that write
// events of one campaign without such a lock are not ordered by anything: either may come first.
// Writers of different campaigns never wait for each other, nor for outboxweb.
//
// # Rows are not changed
//
// An inserted row belongs to outboxweb, which deletes it once its event is in the journal. A row that
// cannot be journalled stays and holds back the later rows of its campaign, until an operator retries
// or discards it. Only such a row may be corrected with an update, before it is retried.
//
// The package, and what it imports of outboxweb, needs the standard library only.
package intake

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Table is the name of the table.
const Table = "outboxweb_intake"

// Event is one event to append. CampaignID, EventID, EventType and Payload are required; each text is
// at most 200 bytes long.
type Event struct {
	CampaignID string // the stream that orders the event: an aggregate, a tenant, a game
	// EventID is unique within the campaign. An event that is appended twice under one id, with equal
	// content, is one event of the journal. OccurredAt is not compared: that of the first one stays.
	EventID   string
	EventType string
	Payload   json.RawMessage // a JSON object

	OccurredAt time.Time // zero means now, by this process's clock

	ActorType, ActorID         string
	EntityType, EntityID       string
	SessionID, RequestID       string
	CorrelationID, CausationID string

	Tags     map[string]string
	Metadata json.RawMessage // a JSON object; nil means an empty one

	// ExpectedSeq makes the event conditional: the last event of its campaign in the journal must have
	// this seq, or there must be none for 0. Whether that holds is known only when the event is moved
	// to the journal; if not, the row is rejected and an operator has to decide. nil means no condition.
	ExpectedSeq *int64
}

// Tx is a transaction that Append writes in: a *sql.Tx, or the result of Pgx. A *sql.Conn on which
// the caller has begun a transaction is one as well.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Pgx returns a transaction of pgx, such as a pgx.Tx, for Append. The type argument is inferred:
//
//	err := intake.Append(ctx, intake.Pgx(tx), events...)
func Pgx[Tag interface{ RowsAffected() int64 }](tx interface {
	Exec(ctx context.Context, sql string, args ...any) (Tag, error)
}) Tx {
	return pgxTx[Tag]{tx}
}

var errNoTx = errors.New("the transaction is nil; begin one, and pass it")

type pgxTx[Tag interface{ RowsAffected() int64 }] struct {
	tx interface {
		Exec(ctx context.Context, sql string, args ...any) (Tag, error)
	}
}

func (t pgxTx[Tag]) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if t.tx == nil {
		return nil, errNoTx
	}
	tag, err := t.tx.Exec(ctx, query, args...)
	return pgxResult[Tag]{tag}, err
}

type pgxResult[Tag interface{ RowsAffected() int64 }] struct{ tag Tag }

func (r pgxResult[Tag]) LastInsertId() (int64, error) {
	return 0, fmt.Errorf("PostgreSQL has no last insert id")
}
func (r pgxResult[Tag]) RowsAffected() (int64, error) { return r.tag.RowsAffected(), nil }

// columns are those that Append writes, in the order of values.
const columns = `campaign_id, event_id, event_type, payload, occurred_at, actor_type, actor_id, entity_type, entity_id, session_id, request_id, correlation_id, causation_id, tags, metadata, expected_seq`

// rowsAtOnce is how many events one statement inserts.
const rowsAtOnce = 50

// Append inserts events within the caller's transaction, in their order. The caller commits; until
// then nothing has happened, and after a rollback nothing has. An event that could never be journalled
// is an error that names it, and nothing is inserted.
//
// What depends on the server is known when it reads the row, and then rejects it: a payload, metadata
// or tags over its limit (--max-payload or MaxPayload, 256 KiB unless it is set), an EventID that the
// campaign has with different content, an ExpectedSeq that the campaign is not at.
func Append(ctx context.Context, tx Tx, events ...Event) error {
	if t, isSQL := tx.(*sql.Tx); tx == nil || isSQL && t == nil {
		return fmt.Errorf("append events to %s: %w", Table, errNoTx)
	}
	rows := make([][]any, len(events))
	for i := range events {
		row, err := events[i].values()
		if err != nil {
			return fmt.Errorf("append event %d of %d: %w", i+1, len(events), err)
		}
		rows[i] = row
	}
	for len(rows) > 0 {
		n := min(len(rows), rowsAtOnce)
		var args []any
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if _, err := tx.ExecContext(ctx, insert(n), args...); err != nil {
			return fmt.Errorf("append events to %s: %w", Table, err)
		}
		rows = rows[n:]
	}
	return nil
}

// insert is the statement for n rows.
func insert(n int) string {
	var text strings.Builder
	text.WriteString("insert into " + Table + " (" + columns + ") values ")
	arg := 0
	for row := range n {
		if row > 0 {
			text.WriteString(", ")
		}
		for column := range strings.Count(columns, ",") + 1 {
			arg++
			text.WriteString(map[bool]string{true: "($", false: ", $"}[column == 0] + strconv.Itoa(arg))
		}
		text.WriteString(")")
	}
	return text.String()
}

// values are the event's columns.
func (e *Event) values() ([]any, error) {
	o := event.Event{CampaignID: e.CampaignID, EventID: e.EventID, EventType: e.EventType, Payload: e.Payload, OccurredAt: e.OccurredAt,
		ActorType: e.ActorType, ActorID: e.ActorID, EntityType: e.EntityType, EntityID: e.EntityID, SessionID: e.SessionID, RequestID: e.RequestID,
		CorrelationID: e.CorrelationID, CausationID: e.CausationID, Metadata: e.Metadata}
	if o.OccurredAt.IsZero() {
		o.OccurredAt = time.Now()
	}
	if len(e.Tags) > 0 {
		for name, value := range e.Tags {
			if !utf8.ValidString(name) || !utf8.ValidString(value) { // which JSON would replace
				return nil, fmt.Errorf("tags are not valid UTF-8")
			}
		}
		var err error
		if o.Tags, err = json.Marshal(e.Tags); err != nil {
			return nil, err
		}
	}
	if err := o.NormalizeRow(e.ExpectedSeq, math.MaxInt); err != nil {
		return nil, err
	}
	var expected any
	if e.ExpectedSeq != nil {
		expected = *e.ExpectedSeq
	}
	return []any{o.CampaignID, o.EventID, o.EventType, string(o.Payload), o.OccurredAt.Format("2006-01-02T15:04:05.999999Z"),
		o.ActorType, o.ActorID, o.EntityType, o.EntityID, o.SessionID, o.RequestID, o.CorrelationID, o.CausationID,
		string(o.Tags), string(o.Metadata), expected}, nil
}
