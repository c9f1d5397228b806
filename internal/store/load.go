package store

import (
	"context"
	"fmt"

	"outboxweb/internal/outbox"
)

// Loaded is what was read of the events of one claim.
type Loaded struct {
	Events []outbox.Event // in order of seq; a missing one leaves a hole
	// Partial is true when the events that follow were not read because of their size.
	Partial bool
}

// largePayload is the length in bytes from which on a payload is read by itself,
// and only once it is clear that it will be used.
const largePayload = 1 << 20

const loadEvents = `
select position, campaign_id, seq, event_id, event_type, occurred_at, recorded_at,
  actor_type, actor_id, entity_type, entity_id, session_id, request_id, correlation_id, causation_id,
  tags, metadata, case when octet_length(payload) < cast($4 as bigint) then payload else '' end, event_hash, chain_hash
from events
where campaign_id = $1
  and seq between $2 and $3
order by seq`

// Load reads the events of each claim, in one snapshot, together with the
// event types that are only journalled. It ends where the documents of all
// events together would be longer than most bytes; the very first event is read
// in any case. Events that are skipped say so, unless their claim knows that
// there are none.
func (s *Store) Load(ctx context.Context, claims []Claim, most int64) (loaded []Loaded, auditOnly map[string]bool, err error) {
	loaded = make([]Loaded, len(claims))
	err = s.journal.read(ctx, func(t *tx) error {
		if auditOnly, err = t.auditOnly(); err != nil {
			return err
		}
		var b batch
		var skips []outbox.Skip
		budget := &budget{left: most}
		for i, c := range claims {
			if !c.Unskipped {
				b.each(collectSkips(&skips), standingInRange, c.CampaignID, c.First, c.Last)
			}
			loaded[i].Events = make([]outbox.Event, 0, max(0, min(c.Last-c.First+1, 4096)))
			b.each(loaded[i].collect(budget), loadEvents, c.CampaignID, c.First, c.Last, largePayload)
		}
		if err := t.runAll(&b); err != nil {
			return err
		}
		if budget.large {
			if err := t.loadLarge(loaded, most); err != nil {
				return err
			}
		}
		for i := range loaded {
			noteSkips(loaded[i].Events, skips)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("load events: %w", err)
	}
	return loaded, auditOnly, nil
}

// budget is how many bytes more may be read.
type budget struct {
	left  int64
	some  bool // something was read
	large bool // a payload was left out
}

// allows reports whether size bytes more may be read, and counts them.
func (b *budget) allows(size int64) bool {
	if b.some && size > b.left {
		b.left = 0 // nothing of the same campaigns may follow
		return false
	}
	b.some = true
	b.left -= size
	return true
}

func documents(e *outbox.Event) int64 {
	return int64(len(e.Payload) + len(e.Metadata) + len(e.Tags))
}

func (l *Loaded) collect(b *budget) func(scanner) error {
	return func(row scanner) error {
		e, err := scanEvent(row)
		if err != nil {
			return err
		}
		size := documents(&e)
		if len(e.Payload) == 0 {
			b.large = true
			size += largePayload
		}
		if !b.allows(size) {
			l.Partial = true
			return errEnough
		}
		l.Events = append(l.Events, e)
		return nil
	}
}

// loadLarge reads the payloads that were left out, and cuts off what becomes too
// much with them.
func (t *tx) loadLarge(loaded []Loaded, most int64) error {
	b := budget{left: most}
	for i := range loaded {
		l := &loaded[i]
		for k := range l.Events {
			e := &l.Events[k]
			large := len(e.Payload) == 0 // or gone, which its hash will tell
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

func (t *tx) loadPayload(e *outbox.Event) error {
	var payload string
	_, err := t.one([]any{&payload, &e.EventHash}, selectDocument[outbox.PartPayload], e.CampaignID, e.Seq)
	e.Payload = rawObject(payload)
	return err
}
