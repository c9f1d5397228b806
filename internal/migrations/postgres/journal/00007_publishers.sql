-- +goose Up

-- Which journal this is, also after a restore: receivers of its events tell
-- them from those of others by it.
create table journal_identity (
  id text collate "C" not null primary key
);

insert into journal_identity (id) values (md5(random()::text || random()::text || clock_timestamp()::text));

-- A row for each pair of topic and publisher there ever was. position is how
-- far the journal was scanned; what was delivered stands beside it.
create table publisher_progress (
  topic text collate "C" not null,
  publisher text collate "C" not null,
  destination text not null,
  selects text not null,
  max_errors bigint not null,
  status text collate "C" not null default 'active',
  position bigint not null,
  delivered_position bigint not null default 0,
  delivered bigint not null default 0,
  error_count bigint not null default 0,
  error_kind text collate "C" not null default '',
  last_error text not null default '',
  last_error_at bigint,
  error_position bigint not null default 0,
  retry_at bigint,
  stopped bigint not null default 0,
  last_published_at bigint,
  events_per_second double precision not null default 0,
  next_poll_at bigint,
  paused_at bigint,
  paused_by text not null default '',
  paused_reason text not null default '',
  acts bigint not null default 0,
  lease_owner text collate "C" not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  wanted_by text collate "C" not null default '',
  wanted_at bigint not null default 0,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (topic, publisher)
);

create table publisher_samples (
  topic text collate "C" not null,
  publisher text collate "C" not null,
  minute bigint not null,
  delivered bigint not null,
  lag_events bigint not null,
  oldest_recorded_at bigint,
  error_count bigint not null,
  primary key (topic, publisher, minute)
);

create index publisher_samples_by_minute on publisher_samples (minute);
