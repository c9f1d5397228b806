package store

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// The parts of events that pages read. A document may be megabytes long, so documents over a
// limit are not read. Both databases know the length in bytes without reading the document.
// Reading only its beginning would not be cheaper: SQLite reads all of it for substr, and for
// length, which counts characters.

// eventWithin is the columns of SelectEvent and the documents' lengths. SQLite reaches the
// hashes only by walking over the payload: 10 ms for 25 MB.
var eventWithin = "\nselect " + EventColumns("", within("tags")+", "+within("metadata")+", "+within("payload")+", event_hash, chain_hash") + `,
  octet_length(payload), octet_length(tags), octet_length(metadata)
from events
where campaign_id = $1
  and seq = $2`

func within(document string) string {
	return "case when octet_length(" + document + ") <= cast($3 as bigint) then " + document + " else '' end"
}

// EventWithin reads an event and the sizes of its documents; documents longer than limit bytes
// are nil. The event says whether it is skipped and whether its content matches its hash.
func (t *Tx) EventWithin(campaign string, seq, limit int64) (e event.Event, sizes event.Sizes, found bool, err error) {
	scan := func(row sqldb.Row) (event.Event, error) {
		return ScanEvent(row, &sizes.Payload, &sizes.Tags, &sizes.Metadata)
	}
	e, found, err = sqldb.First(t, scan, eventWithin, campaign, seq, limit)
	if err == nil && found {
		one := []event.Event{e}
		err = t.readSkips(one)
		e = one[0]
		if max(sizes.Payload, sizes.Tags, sizes.Metadata) <= limit {
			checkContentHash(&e, sizes)
		}
	}
	return e, sizes, found, err
}

// EventWithin reads one event for its page, without documents longer than limit bytes. A
// missing event is event.ErrNotFound.
func (s *Store) EventWithin(ctx context.Context, campaignID string, seq, limit int64) (campaign.EventDetail, error) {
	return Reading(ctx, s, "", func(t *Tx) (d campaign.EventDetail, err error) {
		var found bool
		d.Event, d.Sizes, found, err = t.EventWithin(campaignID, seq, limit)
		if err == nil && !found {
			err = t.MissingEvent(campaignID, seq)
		}
		if err != nil {
			return d, err
		}
		row, _, err := t.Row(campaignID, seq)
		d.RowStatus = row.Status
		if err == nil {
			err = t.relatives(&d)
		}
		return d, err
	})
}

// selectRelatives finds events by id within a campaign, by an index. There is no way to find
// the events that name another as their cause.
const selectRelatives = `
select seq, event_id
from events
where campaign_id = $1
  and event_id in ($2, $3)`

// relatives finds the events that an event names as its correlation and its cause.
func (t *Tx) relatives(d *campaign.EventDetail) error {
	e := d.Event
	if e.CorrelationID == "" && e.CausationID == "" {
		return nil
	}
	err := t.Each(func(row sqldb.Row) error {
		var seq int64
		var id string
		err := row.Scan(&seq, &id)
		if id != "" && id == e.CorrelationID {
			d.CorrelationSeq = seq
		}
		if id != "" && id == e.CausationID {
			d.CausationSeq = seq
		}
		return err
	}, selectRelatives, e.CampaignID, e.CorrelationID, e.CausationID)
	return sqldb.Wrapf(err, "read the causes of campaign %q seq %d", e.CampaignID, e.Seq)
}

var selectDocument = map[event.Part]string{
	event.PartPayload:  `select payload, event_hash from events where campaign_id = $1 and seq = $2`,
	event.PartTags:     `select tags, event_hash from events where campaign_id = $1 and seq = $2`,
	event.PartMetadata: `select metadata, event_hash from events where campaign_id = $1 and seq = $2`,
}

// Document reads one document of an event, whole and exactly as stored, and the event's hash. A
// missing event is event.ErrNotFound.
func (s *Store) Document(ctx context.Context, campaign string, seq int64, part event.Part) (text, hash string, err error) {
	query, ok := selectDocument[part]
	if !ok {
		return "", "", event.Invalid("part", "part %q is unknown; use payload, tags or metadata", part)
	}
	err = s.journal.Read(ctx, func(t *Tx) error {
		found, err := t.One([]any{&text, &hash}, query, campaign, seq)
		if err == nil && !found {
			err = t.MissingEvent(campaign, seq)
		}
		return err
	})
	return text, hash, err
}

const selectEventLines = `
select e.seq, e.event_type, e.entity_type, e.entity_id, e.occurred_at, coalesce(o.status, ''), k.id is not null
from events e
left join projection_apply_outbox o on o.campaign_id = e.campaign_id and o.seq = e.seq
left join skips k on k.campaign_id = e.campaign_id and k.seq = e.seq and k.undone_at is null
where e.campaign_id = $1
  and e.seq between $2 and $3
order by e.seq`

// EventLines reads the events first to last of a campaign, each with the status of its row and
// without documents.
func (s *Store) EventLines(ctx context.Context, campaignID string, first, last int64) ([]campaign.EventLine, error) {
	what := fmt.Sprintf("read events %d to %d of campaign %q", first, last, campaignID)
	return Reading(ctx, s, what, func(t *Tx) ([]campaign.EventLine, error) {
		return sqldb.All(t, func(row sqldb.Row) (l campaign.EventLine, err error) {
			err = row.Scan(&l.Seq, &l.EventType, &l.EntityType, &l.EntityID, sqldb.ScanTime(&l.OccurredAt), &l.RowStatus, &l.Skipped)
			return l, err
		}, selectEventLines, campaignID, first, last)
	})
}
