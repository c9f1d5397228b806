-- +goose Up

-- An event is found by its id, its entity and its request wherever it is. Most
-- events have no request, and some no entity: they cost nothing there. Times
-- need no index: positions grow with them.
create index events_by_id on events (event_id);
create index events_by_entity on events (entity_id) where entity_id <> '';
create index events_by_request on events (request_id) where request_id <> '';

-- Trouble first: the order of outbox.Campaign.Rank without what verifying found.
create index campaigns_by_trouble on campaigns (cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 when oldest_enqueued_at is not null then 4 else 5 end as bigint), campaign_id);

-- Filtered lists that operators named.
create table views (
  id integer primary key autoincrement,
  owner text not null,
  list text not null,
  name text not null,
  query text not null,
  created_at bigint not null
);

create unique index views_of_owner on views (owner, list, name);
