package store

import (
	"context"
	"fmt"
	"math"
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
	by           Applier
}

// Applier is the process that applies events.
type Applier struct {
	Worker string // its id
	Build  string // version of the program
	Loaded string // digest of its projections' versions, as of campaign.SetOf; empty where it is not known
}

// String is "FIRST MORE BEGAN TOOK WORKER BUILD #LOADED", with numbers in base 36 and as differences,
// to keep it short: the row of a campaign is written often.
func (p span) String() string {
	text := make([]byte, 0, 128)
	for _, n := range []int64{p.first, p.last - p.first, p.began, p.ended - p.began} {
		text = append(strconv.AppendInt(text, n, 36), ' ')
	}
	text = append(append(text, p.by.Worker...), ' ')
	text = append(text, p.by.Build...)
	if p.by.Loaded != "" {
		text = append(append(text, setMark...), p.by.Loaded...)
	}
	return string(text)
}

const setMark = " #"

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
	p.by.Worker = fields[4]
	p.by.Build, p.by.Loaded, _ = strings.Cut(fields[5], setMark)
	return p, true
}

// follows reports whether p continues the span before.
func (p span) follows(before span) bool {
	return p.first == before.last+1 && p.by == before.by &&
		p.ended-before.began <= spanTime.Microseconds() && p.began-before.ended <= spanPause.Microseconds()
}

// recordSpan records that a worker applied the events after from, up to the applied seq. It returns
// the campaign's previous span when that is closed now and must be stored.
func (c *CampaignRow) recordSpan(from int64, by Applier, now int64) (closed *span) {
	if c.Applied <= from {
		return nil
	}
	p := span{first: from + 1, last: c.Applied, began: now, ended: now, by: by}
	p.by.Worker = spanWorker(by.Worker)
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
insert into applied_spans (campaign_id, first_seq, last_seq, began_at, ended_at, worker, build, loaded)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (campaign_id, first_seq, began_at) do nothing`

func (p *span) insertInto(b *sqldb.Batch, campaign string) {
	b.Exec(nil, insertSpan, campaign, p.first, p.last, p.began, p.ended, p.by.Worker, p.by.Build, p.by.Loaded)
}

func (p span) view() campaign.AppliedSpan {
	return campaign.AppliedSpan{FirstSeq: p.first, LastSeq: p.last, BeganAt: sqldb.At(p.began), EndedAt: sqldb.At(p.ended), Worker: p.by.Worker, Build: p.by.Build}
}

const (
	// What each set applied of a campaign, from its first span to its last one: of all spans there are thousands.
	selectSetSpans = `
select min(s.first_seq), max(s.last_seq), min(s.began_at), max(s.ended_at), s.loaded
from (select distinct loaded from loaded_sets) as sets
cross join applied_spans s
where s.campaign_id = $1
  and s.loaded = sets.loaded
  and s.first_seq in (
    (select min(e.first_seq) from applied_spans e where e.campaign_id = $1 and e.loaded = sets.loaded),
    (select max(e.first_seq) from applied_spans e where e.campaign_id = $1 and e.loaded = sets.loaded))
group by s.loaded
order by 4`

	// The spans of some events of a campaign, in the order in which they were applied.
	selectSpansWithin = `
select first_seq, last_seq, began_at, ended_at, loaded
from applied_spans
where campaign_id = $1
  and first_seq <= $2
  and first_seq >= (select coalesce(max(e.first_seq), 0) from applied_spans e where e.campaign_id = $1 and e.first_seq < $3)
order by ended_at, first_seq`

	selectLoadedSet = `
select projection, version
from loaded_sets
where loaded = $1`
)

// AppliedBy returns which version of each projection workers applied the events of a campaign with, as far as
// the journal tells.
func (s *Store) AppliedBy(ctx context.Context, campaignID string) (map[string]campaign.BuiltRanges, error) {
	return Reading(ctx, s, fmt.Sprintf("read what campaign %q was applied by", campaignID), func(t *Tx) (map[string]campaign.BuiltRanges, error) {
		c, found, err := t.Campaign(campaignID)
		if err != nil || !found {
			return nil, err
		}
		spans, err := sqldb.All(t, scanSetSpan, selectSetSpans, campaignID)
		if err != nil {
			return nil, err
		}
		last, _ := parseSpan(c.span)
		spans = append(spans, last)
		if from, to := overlap(spans); from <= to {
			within, err := sqldb.All(t, scanSetSpan, selectSpansWithin, campaignID, to, from)
			if err != nil {
				return nil, err
			}
			spans = append(append(spans, within...), last)
		}
		by, sets := map[string]campaign.BuiltRanges{}, map[string]map[string]string{}
		for _, p := range spans {
			set, known := sets[p.by.Loaded]
			if !known {
				set = map[string]string{}
				err := t.Each(func(row sqldb.Row) error {
					var projection, version string
					err := row.Scan(&projection, &version)
					set[projection] = version
					return err
				}, selectLoadedSet, p.by.Loaded)
				if err != nil {
					return nil, err
				}
				sets[p.by.Loaded] = set
			}
			began, ended := sqldb.At(p.began), sqldb.At(p.ended)
			for name, version := range set {
				by[name] = by[name].With(campaign.BuiltRange{FirstSeq: p.first, LastSeq: p.last, LoadedVersion: campaign.LoadedVersion{Version: version}, BeganAt: &began, EndedAt: &ended})
			}
		}
		return by, nil
	})
}

func scanSetSpan(row sqldb.Row) (p span, err error) {
	err = row.Scan(&p.first, &p.last, &p.began, &p.ended, &p.by.Loaded)
	return p, err
}

// overlap returns the events from the first to the last that more than one span has; from is after to without any.
func overlap(spans []span) (from, to int64) {
	from = math.MaxInt64
	for i, a := range spans {
		for _, b := range spans[:i] {
			if first, last := max(a.first, b.first), min(a.last, b.last); first <= last {
				from, to = min(from, first), max(to, last)
			}
		}
	}
	return from, to
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
		err = row.Scan(&p.first, &p.last, &p.began, &p.ended, &p.by.Worker, &p.by.Build)
		return p, err
	}, selectSpansOf, c.ID, seq, spansSearched)
	if p, found := parseSpan(c.span); found && p.first <= seq && seq <= p.last {
		spans = append(spans, p)
	}
	return spans, err
}
