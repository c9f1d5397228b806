-- +goose Up

create table projection_watermarks (
  campaign_id text not null primary key,
  applied_seq bigint not null default 0,
  applied_hash text not null default '',
  fence_epoch bigint not null default 0,
  set_aside bigint not null default 0,
  updated_at bigint not null
) without rowid;

create table projection_cursors (
  campaign_id text not null,
  projection text not null,
  applied_seq bigint not null,
  generation bigint not null default 1,
  state text not null,
  updated_at bigint not null,
  primary key (campaign_id, projection)
) without rowid;

create index projection_cursors_aside on projection_cursors (projection, campaign_id) where state = 'quarantined';

create table failures (
  id integer primary key autoincrement,
  campaign_id text not null,
  projection text not null,
  seq bigint not null,
  event_type text not null,
  fingerprint text not null,
  message text not null,
  attempts bigint not null,
  first_at bigint not null,
  last_at bigint not null,
  status text not null default 'open',
  resolved_at bigint
);

create unique index failures_open on failures (campaign_id, projection) where status = 'open';

create table projection_versions (
  projection text not null primary key,
  version text not null,
  built_version text not null,
  installed_at bigint not null
) without rowid;
