-- +goose Up

create table operations (
  id integer primary key autoincrement,
  kind text not null,
  status text not null,
  canary bigint not null,
  filter text not null,
  started_by text not null,
  via text not null,
  reason text not null,
  request_id text not null,
  started_at bigint not null,
  updated_at bigint not null,
  finished_at bigint,
  heads bigint not null default 0,
  released bigint not null default 0,
  refused bigint not null default 0,
  chosen bigint not null default 0,
  waiting bigint not null default 0,
  requeued bigint not null default 0,
  done bigint not null default 0,
  skipped bigint not null default 0,
  failed_again bigint not null default 0,
  left_alone bigint not null default 0,
  unwatched bigint not null default 0,
  stop_reason text not null default '',
  cancelled_by text not null default '',
  acknowledged_at bigint,
  acknowledged_by text not null default ''
);

create index operations_open on operations (id) where acknowledged_at is null;

create table operation_groups (
  operation_id bigint not null,
  number bigint not null,
  fingerprint text not null,
  example text not null,
  row_count bigint not null,
  status text not null,
  wave bigint not null,
  wave_size bigint not null default 0,
  reason text not null default '',
  updated_at bigint not null,
  primary key (operation_id, number)
) without rowid;

create index operation_groups_by_fingerprint on operation_groups (operation_id, fingerprint);

create table operation_rows (
  operation_id bigint not null,
  campaign_id text not null,
  seq bigint not null,
  ordinal bigint not null,
  group_number bigint not null,
  event_type text not null,
  fingerprint text not null,
  frozen_updated_at bigint not null,
  frozen_attempts bigint not null,
  watch_seq bigint not null,
  status text not null,
  wave bigint not null,
  detail text not null default '',
  failed_fingerprint text not null default '',
  requeued_at bigint,
  finished_at bigint,
  primary key (operation_id, campaign_id, seq)
) without rowid;

create index operation_rows_in_order on operation_rows (operation_id, ordinal);

create index operation_rows_by_status on operation_rows (operation_id, status, group_number, ordinal);

-- A row belongs to one running operation at most.
create unique index operation_rows_open on operation_rows (campaign_id, seq) where finished_at is null;
