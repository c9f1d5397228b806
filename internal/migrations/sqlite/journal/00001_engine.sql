-- +goose Up

create table events (
  position integer primary key autoincrement,
  campaign_id text not null,
  seq bigint not null,
  event_id text not null,
  event_type text not null,
  occurred_at bigint not null,
  recorded_at bigint not null,
  actor_type text not null,
  actor_id text not null,
  entity_type text not null,
  entity_id text not null,
  session_id text not null,
  request_id text not null,
  correlation_id text not null,
  causation_id text not null,
  tags text not null,
  metadata text not null,
  payload text not null,
  event_hash text not null,
  chain_hash text not null
);

create unique index events_by_seq on events (campaign_id, seq);

create unique index events_by_event_id on events (campaign_id, event_id);

-- +goose StatementBegin
create trigger events_refuse_update before update on events
begin
  select raise(abort, 'the journal is append-only: events are never updated');
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger events_refuse_delete before delete on events
begin
  select raise(abort, 'the journal is append-only: events are never deleted');
end;
-- +goose StatementEnd

create table event_types (
  event_type text not null primary key,
  intent text not null,
  registered_at bigint not null
) without rowid;

create table projection_apply_outbox (
  campaign_id text not null,
  seq bigint not null,
  event_type text not null,
  status text not null default 'pending',
  attempt_count bigint not null default 0,
  next_attempt_at bigint not null,
  claim_epoch bigint not null default 0,
  last_error text not null default '',
  fingerprint text not null default '',
  enqueued_at bigint not null,
  updated_at bigint not null,
  primary key (campaign_id, seq)
) without rowid;

create index outbox_dead on projection_apply_outbox (next_attempt_at, seq, campaign_id) where status = 'dead';

create index outbox_failed on projection_apply_outbox (next_attempt_at, seq, campaign_id) where status = 'failed';

create table campaigns (
  campaign_id text not null primary key,
  high_water_seq bigint not null default 0,
  chain_hash text not null default '',
  applied_seq bigint not null default 0,
  head_seq bigint,
  head_status text,
  head_next_attempt_at bigint,
  oldest_enqueued_at bigint,
  due_at bigint,
  pending bigint not null default 0,
  processing bigint not null default 0,
  failed bigint not null default 0,
  dead bigint not null default 0,
  lease_owner text not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  crashes bigint not null default 0,
  suspect_seq bigint not null default 0,
  paused_at bigint,
  paused_by text not null default '',
  paused_reason text not null default '',
  diverged text not null default '',
  created_at bigint not null,
  updated_at bigint not null
) without rowid;

create index campaigns_due on campaigns (due_at, campaign_id) where due_at is not null;

create index campaigns_by_lag on campaigns (applied_seq - high_water_seq, campaign_id);

create index campaigns_by_age on campaigns (coalesce(oldest_enqueued_at, 4611686018427387904), campaign_id);

create index campaigns_in_trouble on campaigns (campaign_id) where failed > 0 or dead > 0 or diverged <> '';

create table attempts (
  campaign_id text not null,
  seq bigint not null,
  at bigint not null,
  attempt bigint not null,
  worker text not null,
  build text not null,
  error text not null,
  fingerprint text not null,
  primary key (campaign_id, seq, at, attempt)
) without rowid;

create table rehearsals (
  campaign_id text not null primary key,
  rehearsed_seq bigint not null,
  failed_seq bigint,
  error text not null default '',
  fingerprint text not null default '',
  at bigint not null
) without rowid;

create table operator_acts (
  id integer primary key autoincrement,
  at bigint not null,
  actor text not null,
  via text not null,
  origin text not null,
  action text not null,
  campaign_id text not null,
  seq bigint not null,
  before text not null,
  after text not null,
  reason text not null,
  request_id text not null,
  idempotency_key text not null,
  result text not null
);

create index operator_acts_by_campaign on operator_acts (campaign_id, id);

create unique index operator_acts_once on operator_acts (idempotency_key) where idempotency_key <> '';

-- +goose StatementBegin
create trigger operator_acts_refuse_update before update on operator_acts
begin
  select raise(abort, 'audit records are never updated');
end;
-- +goose StatementEnd

create table instances (
  id text not null primary key,
  host text not null,
  pid bigint not null,
  version text not null,
  mode text not null,
  started_at bigint not null,
  last_seen bigint not null,
  stopped_at bigint,
  applied bigint not null default 0,
  failed bigint not null default 0,
  fenced bigint not null default 0,
  applied_per_second double precision not null default 0,
  failed_per_second double precision not null default 0
) without rowid;
