-- +goose Up

-- The events that have a tag, in the order of positions. Names and values are
-- cut off, since PostgreSQL bounds what fits into an index: whoever finds an
-- event here still has to look at its tags.
create table event_tags (
  name text not null,
  value text not null,
  position bigint not null,
  event_type text not null,
  primary key (name, value, position)
) without rowid;

-- +goose StatementBegin
create trigger events_tag after insert on events when new.tags <> '{}'
begin
  insert or ignore into event_tags (name, value, position, event_type)
  select substr(key, 1, 100), substr(coalesce(value, ''), 1, 200), new.position, new.event_type
  from json_each(new.tags);
end;
-- +goose StatementEnd

insert or ignore into event_tags (name, value, position, event_type)
select substr(t.key, 1, 100), substr(coalesce(t.value, ''), 1, 200), e.position, e.event_type
from events e
join json_each(e.tags) t
where e.tags <> '{}';

create index events_by_type on events (event_type);
