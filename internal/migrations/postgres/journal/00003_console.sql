-- +goose Up

-- How things stood at a minute: written when something is not as at the sample
-- before. The totals are counted since ever.
create table samples (
  minute bigint not null primary key,
  pending bigint not null,
  processing bigint not null,
  failed bigint not null,
  dead bigint not null,
  lag_events bigint not null,
  blocked bigint not null,
  oldest_enqueued_at bigint,
  applied_total bigint not null,
  failed_total bigint not null
);

-- The campaigns that were the furthest behind at a minute.
create table campaign_samples (
  campaign_id text collate "C" not null,
  minute bigint not null,
  lag_events bigint not null,
  oldest_enqueued_at bigint not null,
  primary key (campaign_id, minute)
);

create index campaign_samples_by_minute on campaign_samples (minute);

-- What operators pinned to an error that many rows share.
create table group_notes (
  fingerprint text collate "C" not null primary key,
  note text not null,
  noted_by text not null,
  noted_at bigint not null
);

create index campaigns_paused on campaigns (paused_at) where paused_at is not null;
