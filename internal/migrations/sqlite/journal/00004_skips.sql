-- +goose Up

create table skips (
  id integer primary key autoincrement,
  campaign_id text not null,
  seq bigint not null,
  event_type text not null,
  error text not null,
  skipped_at bigint not null,
  skipped_by text not null,
  reason text not null,
  applied_at bigint,
  undone_at bigint,
  undone_by text not null default '',
  undone_reason text not null default ''
);

create unique index skips_standing on skips (campaign_id, seq) where undone_at is null;

create index skips_by_campaign on skips (campaign_id, id);

-- How many of the campaign's skips stand.
alter table campaigns add column skips bigint not null default 0;
