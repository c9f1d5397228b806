-- +goose Up

-- The events that have a tag, in the order of positions. Names and values are
-- cut off, since an index bounds what fits into it: whoever finds an event here
-- still has to look at its tags.
create table event_tags (
  name text collate "C" not null,
  value text collate "C" not null,
  position bigint not null,
  event_type text collate "C" not null,
  primary key (name, value, position)
);

-- +goose StatementBegin
create function events_tag() returns trigger language plpgsql as $$
begin
  insert into event_tags (name, value, position, event_type)
  select left(t.key, 100), left(coalesce(t.value, ''), 200), new.position, new.event_type
  from json_each_text(cast(new.tags as json)) t
  on conflict do nothing;
  return null;
end
$$;
-- +goose StatementEnd

-- From here on nobody else appends until all of this is committed.
create trigger events_tag after insert on events for each row when (new.tags <> '{}') execute function events_tag();

insert into event_tags (name, value, position, event_type)
select left(t.key, 100), left(coalesce(t.value, ''), 200), e.position, e.event_type
from events e
cross join lateral json_each_text(cast(e.tags as json)) t
where e.tags <> '{}'
  and e.tags !~* '\\ud[89a-f]'
on conflict do nothing;

-- An escape may spell half a character, which cannot be stored; it was read as
-- the replacement character ever since.
-- +goose StatementBegin
do $$
declare
  e record;
begin
  for e in select position, event_type, tags from events where tags ~* '\\ud[89a-f]' loop
    begin
      insert into event_tags (name, value, position, event_type)
      select left(t.key, 100), left(coalesce(t.value, ''), 200), e.position, e.event_type
      from json_each_text(cast(e.tags as json)) t
      on conflict do nothing;
    exception when data_exception or invalid_text_representation then
      insert into event_tags (name, value, position, event_type)
      select left(t.key, 100), left(coalesce(t.value, ''), 200), e.position, e.event_type
      from json_each_text(cast(regexp_replace(e.tags, '\\ud[89a-f][0-9a-f]{2}', '\\ufffd', 'gi') as json)) t
      on conflict do nothing;
    end;
  end loop;
end
$$;
-- +goose StatementEnd

create index events_by_type on events (event_type, position);
