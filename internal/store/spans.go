package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// A span is extended for at most spanTime, and while the gaps between its events are at most
// spanPause.
const (
	spanTime  = time.Minute
	spanPause = 5 * time.Second
)

// span is consecutive events of a campaign that one process applied. The last span of a
// campaign is stored in the campaign's row, as one text: a column costs the driver more than
// its content, and applying events needs no extra statement.
type span struct {
	first, last  int64
	began, ended int64
	worker       string // without spaces
	build        string
}

// String is "FIRST MORE BEGAN TOOK WORKER BUILD", with numbers in base 36 and as differences,
// to keep it short: the row of a campaign is written often.
func (p span) String() string {
	text := make([]byte, 0, 128)
	for _, n := range []int64{p.first, p.last - p.first, p.began, p.ended - p.began} {
		text = append(strconv.AppendInt(text, n, 36), ' ')
	}
	text = append(append(text, p.worker...), ' ')
	return string(append(text, p.build...))
}

// parseSpan parses the text of a campaign's row; false when it is empty or malformed.
func parseSpan(text string) (p span, found bool) {
	fields := strings.SplitN(text, " ", 6)
	if len(fields) != 6 {
		return p, false
	}
	for i, into := range []*int64{&p.first, &p.last, &p.began, &p.ended} {
		n, err := strconv.ParseInt(fields[i], 36, 64)
		if err != nil {
			return p, false
		}
		*into = n
	}
	p.last += p.first
	p.ended += p.began
	p.worker, p.build = fields[4], fields[5]
	return p, true
}

// follows reports whether p continues the span before.
func (p span) follows(before span) bool {
	return p.first == before.last+1 && p.worker == before.worker && p.build == before.build &&
		p.ended-before.began <= spanTime.Microseconds() && p.began-before.ended <= spanPause.Microseconds()
}

// recordSpan records that a worker applied the events after from, up to the applied seq. It returns
// the campaign's previous span when that is closed now and must be stored.
func (c *CampaignRow) recordSpan(from int64, worker, build string, now int64) (closed *span) {
	if c.Applied <= from {
		return nil
	}
	p := span{first: from + 1, last: c.Applied, began: now, ended: now, worker: spanWorker(worker), build: build}
	if before, found := parseSpan(c.span); found && p.follows(before) {
		p.first, p.began = before.first, before.began
	} else if found {
		closed = &before
	}
	c.span = p.String()
	return closed
}

// spanWorker is a worker's name in spans.
func spanWorker(id string) string { return strings.ReplaceAll(id, " ", "_") }

const insertSpan = `
insert into applied_spans (campaign_id, first_seq, last_seq, began_at, ended_at, worker, build)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (campaign_id, first_seq, began_at) do nothing`

func (p *span) insertInto(b *sqldb.Batch, campaign string) {
	b.Exec(nil, insertSpan, campaign, p.first, p.last, p.began, p.ended, p.worker, p.build)
}

func (p span) view() campaign.AppliedSpan {
	return campaign.AppliedSpan{FirstSeq: p.first, LastSeq: p.last, BeganAt: sqldb.At(p.began), EndedAt: sqldb.At(p.ended), Worker: p.worker, Build: p.build}
}

// spansSearched is how many spans are searched for an event. A later span begins before an
// earlier one ends only after a skip was reverted.
const spansSearched = 20

const selectSpansOf = `
select first_seq, last_seq, began_at, ended_at, worker, build
from (
  select first_seq, last_seq, began_at, ended_at, worker, build
  from applied_spans
  where campaign_id = $1
    and first_seq <= $2
  order by first_seq desc, began_at desc
  limit $3
) as near
where last_seq >= $2
order by ended_at`

// spansOf returns the spans in which an event was applied, oldest first.
func (t *Tx) spansOf(c *CampaignRow, seq int64) ([]span, error) {
	spans, err := sqldb.All(t, func(row sqldb.Row) (p span, err error) {
		err = row.Scan(&p.first, &p.last, &p.began, &p.ended, &p.worker, &p.build)
		return p, err
	}, selectSpansOf, c.ID, seq, spansSearched)
	if p, found := parseSpan(c.span); found && p.first <= seq && seq <= p.last {
		spans = append(spans, p)
	}
	return spans, err
}
