-- Events of this service on their way to outboxweb. A row is inserted in the
-- transaction that changes the service's own rows; outboxweb reads committed rows
-- in the order of id, journals them, and then deletes them. Ids are never reused.
create table if not exists outboxweb_intake (
  id integer primary key autoincrement,
  campaign_id text not null,
  event_id text not null,
  event_type text not null,
  payload text not null,
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  actor_type text not null default '',
  actor_id text not null default '',
  entity_type text not null default '',
  entity_id text not null default '',
  session_id text not null default '',
  request_id text not null default '',
  correlation_id text not null default '',
  causation_id text not null default '',
  tags text not null default '{}',
  metadata text not null default '{}',
  expected_seq integer
);
