-- Events of this service on their way to outboxweb. A row is inserted in the
-- transaction that changes the service's own rows; outboxweb reads committed rows
-- in the order of id, journals them, and then deletes them. The documents are text,
-- which takes values of type json and jsonb too.
create table if not exists outboxweb_intake (
  id bigint generated always as identity primary key,
  campaign_id text not null,
  event_id text not null,
  event_type text not null,
  payload text not null,
  occurred_at timestamptz not null default clock_timestamp(),
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
  expected_seq bigint
);
