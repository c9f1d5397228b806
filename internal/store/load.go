package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Range is consecutive events of a campaign.
type Range struct {
	CampaignID  string
	First, Last int64
	Unskipped   bool // no event of the campaign is skipped, and none can be
}

// Loaded is the result of loading one range.
type Loaded struct {
	Events []event.Event // in order of seq, without missing ones
	// Partial is true when later events were not read because of their size.
	Partial bool
}

// largePayload is the length in bytes from which a payload is read separately, and only once it
// is certain to be used.
const largePayload = 1 << 20

// loadEvents reads the short texts of an event as one column, since a column costs the driver
// more than its content. The separator cannot occur in names or JSON.
var loadEvents = `
select position, seq, occurred_at, recorded_at,
  concat_ws(cast($5 as text), ` + strings.Join(event.EnvelopeNames()[1:], ", ") + `, tags, metadata, event_hash, chain_hash),
  case when octet_length(payload) < cast($4 as bigint) then payload else '' end
from events
where campaign_id = $1
  and seq between $2 and $3
order by seq`

// Load reads the events of each range, in one snapshot, and the audit-only event types. It
// stops where the documents of all events together would exceed most bytes; the very first
// event is always read. Skipped events are marked, unless the range says that there are none.
func (s *Store) Load(ctx context.Context, ranges []Range, most int64) (loaded []Loaded, auditOnly map[string]bool, err error) {
	lineage, now := s.Lineage(), s.Now()
	loaded = make([]Loaded, len(ranges))
	err = s.journal.Read(ctx, func(t *Tx) error {
		if auditOnly, err = t.auditOnly(); err != nil {
			return err
		}
		var b sqldb.Batch
		var skips []event.Skip
		budget := &budget{left: most}
		for i, c := range ranges {
			if !c.Unskipped {
				b.Each(sqldb.Collect(&skips, ScanSkip), activeSkipsInRange, c.CampaignID, c.First, c.Last)
			}
			loaded[i].Events = make([]event.Event, 0, max(0, min(c.Last-c.First+1, 4096)))
			b.Each(loaded[i].collect(c.CampaignID, budget), loadEvents, c.CampaignID, c.First, c.Last, largePayload, textBound)
		}
		if err := t.RunAll(&b); err != nil {
			return err
		}
		if budget.odd {
			if err := t.loadOdd(loaded); err != nil {
				return err
			}
		}
		if budget.large {
			if err := t.loadLarge(loaded, most); err != nil {
				return err
			}
		}
		for i := range loaded {
			markSkipped(loaded[i].Events, skips)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("load events: %w", err)
	}
	for _, l := range loaded {
		s.lineage.see(lineage, now, l.Events)
	}
	return loaded, auditOnly, nil
}

// budget is the number of bytes that may still be read.
type budget struct {
	left  int64
	some  bool // something was read
	large bool // a payload was left for a separate read
	odd   bool // a text contains the separator
}

// allows reports whether size bytes more may be read, and counts them.
func (b *budget) allows(size int64) bool {
	if b.some && size > b.left {
		b.left = 0 // no later event of the same campaigns may follow
		return false
	}
	b.some = true
	b.left -= size
	return true
}

func documents(e *event.Event) int64 {
	return int64(len(e.Payload) + len(e.Metadata) + len(e.Tags))
}

const (
	textBound = "\x1f" // separates the texts of an event
	textParts = 14
)

// scanLoaded reads a row of loadEvents. The hash of an event whose texts cannot be separated is
// left empty.
func scanLoaded(row sqldb.Row, campaign string) (event.Event, error) {
	e := event.Event{CampaignID: campaign}
	var occurred, recorded int64
	var texts, payload string
	err := row.Scan(&e.Position, &e.Seq, &occurred, &recorded, &texts, &payload)
	e.OccurredAt, e.RecordedAt, e.Payload = sqldb.At(occurred), sqldb.At(recorded), RawObject(payload)
	if err != nil || strings.Count(texts, textBound) != textParts-1 {
		return e, err
	}
	next := func() (text string) {
		text, texts, _ = strings.Cut(texts, textBound)
		return text
	}
	for i, text := range e.Envelope() {
		if i > 0 { // the first is the campaign's
			*text.Value = next()
		}
	}
	e.Tags, e.Metadata, e.EventHash, e.ChainHash = RawObject(next()), RawObject(next()), next(), next()
	return e, nil
}

func (l *Loaded) collect(campaign string, b *budget) func(sqldb.Row) error {
	return func(row sqldb.Row) error {
		e, err := scanLoaded(row, campaign)
		if err != nil {
			return err
		}
		size := documents(&e)
		if len(e.Payload) == 0 {
			b.large = true
			size += largePayload
		}
		b.odd = b.odd || e.EventHash == ""
		if !b.allows(size) {
			l.Partial = true
			return sqldb.ErrEnough
		}
		l.Events = append(l.Events, e)
		return nil
	}
}

// loadOdd re-reads, one by one, the events whose texts could not be separated.
func (t *Tx) loadOdd(loaded []Loaded) error {
	for _, l := range loaded {
		for k := range l.Events {
			if l.Events[k].EventHash != "" {
				continue
			}
			e, found, err := t.event(eventsInRange, l.Events[k].CampaignID, l.Events[k].Seq, l.Events[k].Seq)
			if err != nil {
				return err
			}
			if found {
				l.Events[k] = e
			}
		}
	}
	return nil
}

// loadLarge reads the large payloads and cuts off the events that then exceed the limit.
func (t *Tx) loadLarge(loaded []Loaded, most int64) error {
	b := budget{left: most}
	for i := range loaded {
		l := &loaded[i]
		for k := range l.Events {
			e := &l.Events[k]
			large := len(e.Payload) == 0 // or missing, which the hash check finds
			if large && (!b.some || b.left > 0) {
				if err := t.loadPayload(e); err != nil {
					return err
				}
				large = false
			}
			if large || !b.allows(documents(e)) {
				l.Events, l.Partial = l.Events[:k], true
				break
			}
		}
	}
	return nil
}

func (t *Tx) loadPayload(e *event.Event) error {
	var payload string
	_, err := t.One([]any{&payload, &e.EventHash}, selectDocument[event.PartPayload], e.CampaignID, e.Seq)
	e.Payload = RawObject(payload)
	return err
}

// auditOnly returns the event types that no projection receives.
func (t *Tx) auditOnly() (map[string]bool, error) {
	types, err := t.eventTypes()
	if err != nil {
		return nil, err
	}
	only := make(map[string]bool)
	for name, intent := range types {
		if intent == event.IntentAuditOnly {
			only[name] = true
		}
	}
	return only, nil
}
