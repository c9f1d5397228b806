package intake

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// row is a row of a source's table.
type row struct {
	key        string // its place in the order, and its identity
	event      event.Event
	expected   sql.NullString
	bytes      [3]int64 // of payload, metadata and tags in the table; the event may have less
	at         any      // occurred_at by the column's type
	journalled bool
}

func scanRow(rows *sql.Rows) (row, error) {
	var r row
	e := &r.event
	var payload, metadata, tags string
	columns := []any{&r.key}
	for _, text := range e.Envelope() {
		columns = append(columns, text.Value)
	}
	err := rows.Scan(append(columns, &r.bytes[0], &payload, &r.bytes[1], &metadata, &r.bytes[2], &tags, &r.at, &r.expected)...)
	e.Payload, e.Metadata, e.Tags = json.RawMessage(payload), json.RawMessage(metadata), json.RawMessage(tags)
	return r, err
}

// size is about how much memory the row takes.
func (r *row) size() int {
	return len(r.event.Payload) + len(r.event.Metadata) + len(r.event.Tags) + 512
}

// normalize completes the event and checks what can be checked without the journal. An error is an
// *event.Refusal.
func (r *row) normalize(maxPayload int) error {
	e := &r.event
	for i, name := range []string{"payload", "metadata", "tags"} {
		if r.bytes[i] > int64(maxPayload) {
			return &event.Refusal{Err: event.ErrTooLarge, Field: name, Detail: fmt.Sprintf("%s is %d bytes; the limit is %d", name, r.bytes[i], maxPayload)}
		}
	}
	var expected *int64
	if r.expected.Valid {
		seq, err := strconv.ParseInt(r.expected.String, 10, 64)
		if err != nil {
			return event.Invalid("expected_seq", "expected_seq must be a whole number from 0, not %s", outbound.Shorten(r.expected.String))
		}
		expected = &seq
	}
	var err error
	if e.OccurredAt, err = moment(r.at); err != nil {
		return err
	}
	return e.NormalizeRow(expected, maxPayload)
}

// explain is the refusal in the words of the row: a condition on the seq was written as expected_seq.
func (r *row) explain(refusal *event.Refusal) error {
	if refusal.NextSeq != 0 && r.expected.Valid {
		return event.Conflict("expected_seq %s was missed: the next seq of campaign %q is %d, not %d", r.expected.String, r.event.CampaignID, refusal.NextSeq, r.event.Seq)
	}
	return refusal
}

// moment returns a time of whatever type its column has; the zero time for null.
func moment(value any) (time.Time, error) {
	switch v := value.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		if err := event.CheckYear(v); err != nil {
			return time.Time{}, err
		}
		return v, nil
	case []byte:
		return moment(string(v))
	case string:
		forms := []string{v}
		if day, clock, spaced := strings.Cut(v, " "); spaced {
			forms = []string{day + "T" + clock, day + "T" + clock + "Z"}
		}
		for _, form := range forms {
			if t, known := event.ParseTime(form); known {
				return moment(t)
			}
		}
	}
	return time.Time{}, event.Invalid("occurred_at", "occurred_at is %s, not a timestamp or a text such as 2026-11-21T07:10:03.12Z", outbound.Shorten(fmt.Sprint(value)))
}

// content is the row as its rejection keeps it.
func (r *row) content() (text string, bytes int64, err error) {
	document := func(raw json.RawMessage) any {
		if json.Valid(raw) {
			return raw
		}
		return sqldb.Storable(string(raw))
	}
	e := &r.event
	kept := map[string]any{}
	for _, f := range e.Envelope() {
		if *f.Value != "" {
			kept[f.Name] = sqldb.Storable(*f.Value)
		}
	}
	kept["payload"] = document(e.Payload)
	for name, raw := range map[string]json.RawMessage{"metadata": e.Metadata, "tags": e.Tags} {
		if len(raw) > 0 && string(raw) != "{}" {
			kept[name] = document(raw)
		}
	}
	if r.at != nil {
		kept["occurred_at"] = outbound.Shorten(fmt.Sprint(r.at))
		if t, err := moment(r.at); err == nil {
			kept["occurred_at"] = t
		}
	}
	if r.expected.Valid {
		kept["expected_seq"] = outbound.Shorten(r.expected.String)
	}
	out, err := json.Marshal(kept)
	return string(out), r.bytes[0] + r.bytes[1] + r.bytes[2], err
}
