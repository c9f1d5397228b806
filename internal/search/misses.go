package search

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// likeLooked bounds the campaigns that are compared with a text, for each of its beginnings.
const likeLooked = 20

// Misses returns the values of a filter that nothing in the journal has, with those that are like
// them: why a search is empty. Each lookup uses an index and is bounded. Hidden values are not found;
// see outbox.EventFilter. A text is compared with event types and campaigns.
func (s *Search) Misses(ctx context.Context, f outbox.EventFilter) ([]outbox.Miss, error) {
	values, err := s.Values(ctx)
	if err != nil {
		return nil, err
	}
	var all []outbox.Miss
	err = s.core.Journal().Read(ctx, func(t *store.Tx) error {
		for _, m := range []outbox.Miss{
			{Field: "campaign", Value: f.CampaignID}, {Field: "event_type", Value: f.EventType}, {Field: "event_id", Value: f.EventID},
			{Field: "entity_id", Value: f.EntityID}, {Field: "request_id", Value: f.RequestID},
			{Field: "campaign", Value: f.Q, Text: true}, {Field: "event_type", Value: f.Q, Text: true},
		} {
			if m.Value == "" || len(m.Value) > outbox.MaxIDLength {
				continue
			}
			known, err := isKnown(t, m.Field, m.Value, f.Shown)
			if err != nil {
				return err
			}
			if known {
				continue
			}
			if m.Nearest, err = nearest(t, m, values, f.Shown); err != nil {
				return err
			}
			if !m.Text || len(m.Nearest) > 0 {
				all = append(all, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find what a search may mean: %w", err)
	}
	return all, nil
}

// isKnown reports whether an event has a value.
func isKnown(t *store.Tx, field, value string, shown outbox.EventRedactor) (bool, error) {
	f := outbox.EventFilter{Shown: shown, Limit: 1}
	switch field {
	case "campaign":
		var last int64
		return t.One([]any{&last}, selectLastSeq, value)
	case "event_type":
		f.EventType = value
	case "event_id":
		f.EventID = value
	case "entity_id":
		f.EntityID = value
	case "request_id":
		f.RequestID = value
	}
	page, err := lookUp(t, f)
	return len(page.Items) > 0, err
}

// nearest are the known values that are like a missing one. Of ids, which have no order to look near
// in, only those in other capitals are found.
func nearest(t *store.Tx, m outbox.Miss, values outbox.EventValues, shown outbox.EventRedactor) ([]string, error) {
	switch m.Field {
	case "event_type":
		return outbox.NearestTo(m.Value, values.EventTypes), nil
	case "campaign":
		candidates, err := campaignsLike(t, m.Value)
		return outbox.NearestTo(m.Value, candidates), err
	}
	var found []string
	for _, v := range spellings(m.Value)[1:] {
		known, err := isKnown(t, m.Field, v, shown)
		if err != nil {
			return nil, err
		}
		if known {
			found = append(found, v)
		}
	}
	return found, nil
}

// campaignsLike returns campaigns that begin like a text, however it is spelled.
func campaignsLike(t *store.Tx, text string) ([]string, error) {
	var b sqldb.Batch
	var found []string
	for _, spelled := range spellings(outbox.WithoutWildcard(text)) {
		for _, start := range beginnings(spelled) {
			b.Each(func(row sqldb.Row) error {
				var id, head string
				var events int64
				err := row.Scan(&id, &head, &events)
				found = append(found, id)
				return err
			}, campaignsWithPrefix, start, start+"\U0010FFFF", likeLooked)
		}
	}
	if err := t.RunAll(&b); err != nil {
		return nil, err
	}
	return found, nil
}

var leadingZeros = regexp.MustCompile(`\b0+([0-9])`)

// spellings are a text, and the same in other capitals and without leading zeros.
func spellings(text string) []string {
	all := []string{text}
	lower := strings.ToLower(text)
	_, first := utf8.DecodeRuneInString(lower)
	for _, s := range []string{lower, strings.ToUpper(text), strings.ToUpper(lower[:first]) + lower[first:], leadingZeros.ReplaceAllString(text, "$1")} {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// beginnings are a text, the same without its last letters, its part up to the last separator, and its
// first half, if they are long enough to mean something.
func beginnings(text string) []string {
	runes := []rune(text)
	var all []string
	for _, s := range []string{text, string(runes[:max(0, len(runes)-1)]), string(runes[:max(0, len(runes)-2)]), text[:strings.LastIndexAny(text, "-_./:")+1], string(runes[:len(runes)/2])} {
		if len(s) >= 2 && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
