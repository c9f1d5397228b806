-- +goose Up

create table skips (
  id bigint generated always as identity primary key,
  campaign_id text collate "C" not null,
  seq bigint not null,
  event_type text collate "C" not null,
  error text not null,
  skipped_at bigint not null,
  skipped_by text collate "C" not null,
  reason text not null,
  applied_at bigint,
  undone_at bigint,
  undone_by text collate "C" not null default '',
  undone_reason text not null default ''
);

create unique index skips_standing on skips (campaign_id, seq) where undone_at is null;

create index skips_by_campaign on skips (campaign_id, id);

-- How many of the campaign's skips stand.
alter table campaigns add column skips bigint not null default 0;
