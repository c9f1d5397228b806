package search

import (
	"context"
	"slices"

	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Limits of the values that filters offer.
const (
	valuesShown  = 200
	valuesLooked = 2000 // the newest events
)

const (
	// A step from each type to the next in the index, so that it costs the types, not the events.
	selectTypesUsed = `
with recursive types (event_type) as (
  select min(event_type)
  from events
  union all
  select (select min(e.event_type) from events e where e.event_type > types.event_type)
  from types
  where types.event_type is not null
)
select event_type
from types
where event_type is not null
limit $1`

	selectEntityTypesUsed = `
select distinct entity_type
from (
  select entity_type
  from events
  order by position desc
  limit $1
) as newest
where entity_type <> ''`
)

// Values reads the values that filters of events offer: event types, and the entity types of
// the newest events. The result is shared by all callers, up to a second old or older; they must not
// change it.
func (s *Search) Values(ctx context.Context) (EventValues, error) {
	return s.values.Get(ctx, func() (EventValues, error) { return s.readValues(context.WithoutCancel(ctx)) })
}

func (s *Search) readValues(ctx context.Context) (EventValues, error) {
	return sqldb.Reading(ctx, s.core.Journal(), "read the values of filters", func(t *store.Tx) (v EventValues, err error) {
		if v.EventTypes, err = sqldb.All(t, sqldb.Column[string], selectTypesUsed, valuesShown); err != nil {
			return v, err
		}
		v.EntityTypes, err = sqldb.All(t, sqldb.Column[string], selectEntityTypesUsed, valuesLooked)
		slices.Sort(v.EntityTypes)
		v.EntityTypes = v.EntityTypes[:min(len(v.EntityTypes), valuesShown)]
		return v, err
	})
}
