package search

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Limits of a search for anything.
const (
	foundOfKind = 5                     // of one kind
	foundWithin = 15 * time.Millisecond // how long events of an entity or request are looked at
)

const campaignsWithPrefix = `
select campaign_id, cast(coalesce(head_status, '') as text), high_water_seq
from campaigns
where campaign_id >= $1
  and campaign_id < $2
order by campaign_id
limit $3`

// Find looks for what a reader may mean: a campaign by the beginning of its id, an event by its id
// or CAMPAIGN/SEQ, an entity, a request, an error by its fingerprint or a part of it. Every lookup
// uses an index and is bounded. Hidden values are not found; see EventFilter.
func (s *Search) Find(ctx context.Context, a Asked, shown EventRedactor) ([]Finding, error) {
	text := a.Named()
	if text == "" || len(text) > event.MaxIDLength {
		return nil, nil
	}
	found, err := sqldb.Reading(ctx, s.core.Journal(), fmt.Sprintf("find %q", text), func(t *store.Tx) (found []Finding, err error) {
		for _, look := range []func(*store.Tx, Asked, EventRedactor) ([]Finding, error){findCampaigns, findEvents, findEntity, findRequest} {
			some, err := look(t, a, shown)
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	causes, err := s.findCauses(ctx, text, shown)
	return append(found, causes...), err
}

// findCampaigns finds campaigns. With a range of time it also offers the events of the one that is named
// whole.
func findCampaigns(t *store.Tx, a Asked, _ EventRedactor) (found []Finding, err error) {
	for _, text := range []string{a.Named(), a.Hyphened()} {
		if text == "" || len(found) > 0 {
			continue
		}
		if found, err = campaignsNamed(t, text); err != nil {
			return nil, err
		}
		if len(found) > 0 && found[0].CampaignID == text && !a.Since.IsZero() {
			found = append(found, foundEvents(FoundRange, a.Within(EventFilter{CampaignID: text}), "events of campaign "+text))
		}
	}
	return found, nil
}

// campaignsNamed finds the campaigns whose ids begin with a text.
func campaignsNamed(t *store.Tx, text string) ([]Finding, error) {
	return sqldb.All(t, func(row sqldb.Row) (Finding, error) {
		f := Finding{Kind: FoundCampaign}
		var head string
		var events int64
		err := row.Scan(&f.CampaignID, &head, &events)
		f.Certain = f.CampaignID == text
		f.Note = event.Count(events, "event", "events")
		if event.Status(head).Stuck() {
			f.Note += ", head " + head
		}
		return f, err
	}, campaignsWithPrefix, text, text+"\U0010FFFF", foundOfKind)
}

const selectType = `
select event_type
from events
where campaign_id = $1
  and seq = $2`

// findEvents finds an event by CAMPAIGN/SEQ, and those with an id.
func findEvents(t *store.Tx, a Asked, shown EventRedactor) ([]Finding, error) {
	var found []Finding
	if row, ok := a.Row(); ok {
		var eventType string
		exists, err := t.One([]any{&eventType}, selectType, row.CampaignID, row.Seq)
		if err != nil {
			return nil, err
		}
		if exists {
			found = append(found, foundEvent(row.CampaignID, row.Seq, eventType))
		}
	}
	page, err := lookUp(t, EventFilter{EventID: a.Named(), Shown: shown, Limit: foundOfKind})
	for _, e := range page.Items {
		one := foundEvent(e.CampaignID, e.Seq, e.EventType)
		one.Certain = len(page.Items) == 1
		found = append(found, one)
	}
	return found, err
}

func foundEvent(campaign string, seq int64, eventType string) Finding {
	return Finding{Kind: FoundEvent, Certain: true, CampaignID: campaign, Seq: seq, Note: eventType}
}

// lookUp is a short search for what an index finds.
func lookUp(t *store.Tx, f EventFilter) (FoundEvents, error) {
	if f.Impossible() {
		return FoundEvents{}, nil
	}
	f.Within = foundWithin
	return searchEvents(t, f)
}

// findEntity finds the events of an entity. With a range of time it also offers the events with the
// text, in case it is no entity.
func findEntity(t *store.Tx, a Asked, shown EventRedactor) ([]Finding, error) {
	var found []Finding
	kind, id := a.Entity()
	ranged := !a.Since.IsZero()
	for _, f := range []EventFilter{{EntityType: kind, EntityID: id}, {EntityID: a.Named()}, {EntityID: a.Hyphened()}, {EntityID: id}} {
		if f.EntityID == "" {
			continue
		}
		f.Shown, f.Limit = shown, 1
		page, err := lookUp(t, f)
		if err != nil {
			return nil, err
		}
		if len(page.Items) == 0 {
			continue
		}
		if used := page.Items[0].EntityType; kind == "" && (shown == nil || shown.Text(used) == used) {
			f.EntityType = used
		}
		found = append(found, foundEvents(FoundEntity, a.Within(f), "events of "+strings.TrimSpace(f.EntityType+" "+f.EntityID)))
		if ranged {
			found[0].Kind, found[0].Certain = FoundRange, false
		}
		break
	}
	if ranged {
		text := cmp.Or(id, a.Named())
		found = append(found, foundEvents(FoundRange, a.Within(EventFilter{Q: text}), "events with the text "+text))
	}
	return found, nil
}

// foundEvents is the list of events that f selects, as a finding.
func foundEvents(kind FindingKind, f EventFilter, note string) Finding {
	f.Shown, f.Limit, f.Within = nil, 0, 0
	return Finding{Kind: kind, Certain: kind != FoundRange, Events: f, Note: note}
}

func findRequest(t *store.Tx, a Asked, shown EventRedactor) ([]Finding, error) {
	f := EventFilter{RequestID: a.Named(), Shown: shown, Limit: 1}
	page, err := lookUp(t, f)
	if err != nil || len(page.Items) == 0 {
		return nil, err
	}
	return []Finding{foundEvents(FoundRequest, a.Within(f), "events of request "+f.RequestID)}, nil
}

// findCauses finds errors of failed and dead rows in the shared groups, by what is shown of them.
func (s *Search) findCauses(ctx context.Context, text string, shown EventRedactor) ([]Finding, error) {
	all, err := s.core.ErrorGroups(ctx)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, g := range all.Groups {
		example := g.Example
		if shown != nil {
			example = shown.Text(example)
		}
		exact := g.Fingerprint == text
		if len(found) < foundOfKind && (exact || strings.Contains(strings.ToLower(example), strings.ToLower(text))) {
			line, _, _ := strings.Cut(example, "\n")
			found = append(found, Finding{Kind: FoundCause, Certain: exact, Fingerprint: g.Fingerprint, Note: line})
		}
	}
	return found, nil
}
