-- +goose Up

-- The databases of services whose rows become events. waiting, oldest_at and
-- error are as of the last look of the process that has the lease.
create table intake_sources (
  source text collate "C" not null primary key,
  place text not null default '',
  lease_owner text collate "C" not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  journalled bigint not null default 0,
  journalled_at bigint,
  looked_at bigint,
  waiting bigint not null default 0,
  oldest_at bigint,
  error text not null default '',
  error_at bigint
);

-- Rows that could not be journalled. Each holds back its campaign in its source,
-- unless it is discarded; row_key is its place in the source's order.
create table intake_rejections (
  id bigint generated always as identity primary key,
  source text collate "C" not null,
  row_key text collate "C" not null,
  campaign_id text collate "C" not null,
  event_id text not null,
  event_type text not null,
  content text not null,
  content_bytes bigint not null,
  reason text not null,
  attempts bigint not null default 1,
  rejected_at bigint not null,
  status text collate "C" not null default 'open',
  changed_at bigint,
  changed_by text not null default '',
  change_reason text not null default ''
);

create unique index intake_rejections_held on intake_rejections (source, row_key) where status <> 'discarded';
create index intake_rejections_list on intake_rejections (source, id);
