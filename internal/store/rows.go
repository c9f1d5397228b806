package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"outboxweb/internal/outbox"
)

const rowColumns = `o.campaign_id, o.seq, o.event_type, o.status, o.attempt_count, o.next_attempt_at, o.last_error, o.fingerprint, o.enqueued_at, o.updated_at`

func scanRow(rows scanner, more ...any) (outbox.Row, error) {
	var r outbox.Row
	var status string
	var next, enqueued, updated int64
	err := rows.Scan(append([]any{&r.CampaignID, &r.Seq, &r.EventType, &status, &r.AttemptCount, &next, &r.LastError, &r.Fingerprint, &enqueued, &updated}, more...)...)
	r.Status = outbox.Status(status)
	r.NextAttemptAt, r.EnqueuedAt, r.UpdatedAt = at(next), at(enqueued), at(updated)
	return r, err
}

func (t *tx) row(campaign string, seq int64) (r outbox.Row, found bool, err error) {
	err = t.each(func(rows scanner) error {
		found = true
		r, err = scanRow(rows)
		return err
	}, `select `+rowColumns+` from projection_apply_outbox o where o.campaign_id = $1 and o.seq = $2`, campaign, seq)
	if err != nil {
		err = fmt.Errorf("read campaign %q seq %d: %w", campaign, seq, err)
	}
	return r, found, err
}

func describeHead(r *outbox.Row, c *campaignRow) {
	r.IsHead = c.head.Valid && c.head.Int64 == r.Seq
	if r.IsHead {
		r.BlockedBehind = c.counts.Total() - 1
	}
}

// Row reads one row with its event, its failed attempts and the acts on it.
// A missing one is outbox.ErrNotFound, whose sentence tells whether the event
// was applied.
func (s *Store) Row(ctx context.Context, campaign string, seq int64) (outbox.RowDetail, error) {
	var d outbox.RowDetail
	err := s.journal.read(ctx, func(t *tx) error {
		c, row, err := t.rowForChange(campaign, seq, s.now())
		if err != nil {
			return err
		}
		d.Row, d.Campaign = row, c.view()
		if d.Event, _, err = t.skippableEvent(campaign, seq); err != nil {
			return err
		}
		if d.Attempts, err = t.attempts(campaign, seq); err != nil {
			return err
		}
		d.Acts, err = t.acts(outbox.ActFilter{CampaignID: campaign, Seq: seq}, 0, 20)
		return err
	})
	return d, err
}

func (t *tx) attempts(campaign string, seq int64) ([]outbox.Attempt, error) {
	attempts := []outbox.Attempt{}
	err := t.each(func(rows scanner) error {
		var a outbox.Attempt
		var when int64
		err := rows.Scan(&when, &a.Attempt, &a.Worker, &a.Build, &a.Error, &a.Fingerprint)
		a.At = at(when)
		attempts = append(attempts, a)
		return err
	}, `select at, attempt, worker, build, error, fingerprint from attempts where campaign_id = $1 and seq = $2 order by at desc, attempt desc limit 50`, campaign, seq)
	return attempts, err
}

// scanWindow is how many rows one step of a filtered list looks at, and
// scanWindows how many steps a page takes before it answers with what it has.
const (
	scanWindow  = 1000
	scanWindows = 5
)

// Rows pages through rows. Failed and dead rows come in the order of their
// next attempt; all others by campaign and seq. A page looks through a bounded
// number of rows: when few match it may end early, with Partial set and a
// cursor to go on.
func (s *Store) Rows(ctx context.Context, f outbox.RowFilter) (outbox.Page[outbox.Row], error) {
	page := outbox.Page[outbox.Row]{Items: []outbox.Row{}}
	limit := pageLimit(f.Limit, 200)
	list := rowListFor(f)
	from, err := list.start(f.Cursor)
	if err != nil {
		return page, err
	}
	err = s.journal.read(ctx, func(t *tx) error {
		for range scanWindows {
			done, err := t.rowWindow(&page, list, f, from, limit)
			if err != nil || done {
				return err
			}
			from = list.last
			page.NextCursor, page.Partial = cursorOf(from...), true
		}
		return nil
	})
	if err != nil {
		return page, fmt.Errorf("list rows: %w", err)
	}
	return page, nil
}

// rowWindow reads the next rows of the list, keeps those that match, and
// returns true when the page is complete.
func (t *tx) rowWindow(page *outbox.Page[outbox.Row], list *rowList, f outbox.RowFilter, from []any, limit int) (bool, error) {
	looked, full := 0, false
	window := scanWindow
	if !f.Filtered() {
		window = limit + 1 - len(page.Items)
	}
	err := t.each(func(rows scanner) error {
		c := campaignRow{}
		r, err := scanRow(rows, &c.head, &c.counts.Pending, &c.counts.Processing, &c.counts.Failed, &c.counts.Dead)
		if err != nil || full {
			return err
		}
		looked++
		if f.Matches(r) && len(page.Items) == limit {
			full = true
			page.NextCursor, page.Partial = cursorOf(list.last...), false
			return nil
		}
		list.last = list.key(r)
		if f.Matches(r) {
			describeHead(&r, &c)
			page.Items = append(page.Items, r)
		}
		return nil
	}, list.query, append(from, list.args(f, window)...)...)
	if err != nil || full {
		return full, err
	}
	if looked < window {
		page.NextCursor, page.Partial = nil, false
		return true, nil
	}
	return false, nil
}

// rowList is one way to walk the rows: a query that takes the key to start
// after, filters, and a limit.
type rowList struct {
	query string
	args  func(f outbox.RowFilter, limit int) []any
	key   func(outbox.Row) []any
	last  []any
	texts int // which part of the key is text, from 0
	first []any
}

const selectRowWithCampaign = `
select ` + rowColumns + `, c.head_seq, c.pending, c.processing, c.failed, c.dead
from `

const (
	// Partial indexes serve only queries that repeat their condition to the
	// letter: the status on SQLite, that it was tried on PostgreSQL.
	rowsDead = selectRowWithCampaign + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where o.status = 'dead'
  and o.attempt_count > 0
  and (o.next_attempt_at, o.seq, o.campaign_id) > ($1, $2, $3)
order by o.next_attempt_at, o.seq, o.campaign_id
limit $4`

	rowsFailed = selectRowWithCampaign + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where o.status = 'failed'
  and o.attempt_count > 0
  and (o.next_attempt_at, o.seq, o.campaign_id) > ($1, $2, $3)
order by o.next_attempt_at, o.seq, o.campaign_id
limit $4`

	rowsOfCampaign = selectRowWithCampaign + `projection_apply_outbox o join campaigns c on c.campaign_id = o.campaign_id
where o.campaign_id = $3
  and o.seq > $2
  and o.campaign_id >= $1
order by o.seq
limit $4`

	// The page is chosen first, so that no plan walks the campaigns beside it.
	rowsAll = selectRowWithCampaign + `(
  select ` + rowColumns + `
  from projection_apply_outbox o
  where (o.campaign_id, o.seq) > ($1, $2)
  order by o.campaign_id, o.seq
  limit $3
) as o
join campaigns c on c.campaign_id = o.campaign_id
order by o.campaign_id, o.seq`

	// Rows in processing exist only in campaigns that say so, at their head.
	rowsProcessing = selectRowWithCampaign + `campaigns c cross join projection_apply_outbox o
where c.processing > 0
  and c.campaign_id >= $1
  and o.campaign_id = c.campaign_id
  and o.seq < c.head_seq + c.processing
  and (o.campaign_id, o.seq) > ($1, $2)
order by c.campaign_id, o.seq
limit $3`
)

func rowListFor(f outbox.RowFilter) *rowList {
	byID := func(query string) *rowList {
		return &rowList{query: query, first: []any{"", int64(0)}, texts: 0,
			key:  func(r outbox.Row) []any { return []any{r.CampaignID, r.Seq} },
			args: func(_ outbox.RowFilter, limit int) []any { return []any{limit} }}
	}
	byDue := func(query string) *rowList {
		return &rowList{query: query, first: []any{int64(-1), int64(0), ""}, texts: 2,
			key:  func(r outbox.Row) []any { return []any{r.NextAttemptAt.UnixMicro(), r.Seq, r.CampaignID} },
			args: func(_ outbox.RowFilter, limit int) []any { return []any{limit} }}
	}
	switch {
	case f.CampaignID != "":
		list := byID(rowsOfCampaign)
		list.args = func(f outbox.RowFilter, limit int) []any { return []any{f.CampaignID, limit} }
		return list
	case f.Status == outbox.Dead:
		return byDue(rowsDead)
	case f.Status == outbox.Failed:
		return byDue(rowsFailed)
	case f.Status == outbox.Processing:
		return byID(rowsProcessing)
	default:
		return byID(rowsAll)
	}
}

func (l *rowList) start(cursor string) ([]any, error) {
	l.last = l.first
	if cursor == "" {
		return l.first, nil
	}
	parts, err := cursorParts(cursor)
	if err != nil || len(parts) != len(l.first) {
		return nil, invalidCursor()
	}
	from := make([]any, len(parts))
	for i, p := range parts {
		if i == l.texts {
			from[i] = p
			continue
		}
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			return nil, invalidCursor()
		}
		from[i] = n
	}
	l.last = from
	return from, nil
}

// cursorOf packs the parts of a key into an opaque cursor.
func cursorOf(parts ...any) *string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = fmt.Sprint(p)
	}
	cursor := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(texts, "\x00")))
	return &cursor
}

func cursorParts(cursor string) ([]string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || !utf8.Valid(raw) {
		return nil, invalidCursor()
	}
	return strings.Split(string(raw), "\x00"), nil
}

func invalidCursor() error {
	return outbox.Invalid("cursor", "this cursor is not one of ours; start again without it")
}

// cursorNumbers unpacks a cursor of n numbers; an empty one is all zeros.
func cursorNumbers(cursor string, n int) ([]int64, error) {
	numbers := make([]int64, n)
	if cursor == "" {
		return numbers, nil
	}
	parts, err := cursorParts(cursor)
	if err != nil || len(parts) != n {
		return nil, invalidCursor()
	}
	for i, p := range parts {
		if numbers[i], err = strconv.ParseInt(p, 10, 64); err != nil {
			return nil, invalidCursor()
		}
	}
	return numbers, nil
}
