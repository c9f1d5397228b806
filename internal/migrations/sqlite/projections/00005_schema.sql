-- The migrations that were applied.
create table goose_db_version (
  id integer primary key autoincrement,
  version_id integer not null,
  is_applied integer not null,
  tstamp timestamp default (datetime('now'))
);

create table projection_watermarks (
  campaign_id text not null primary key,
  applied_seq bigint not null default 0,
  applied_hash text not null default '',
  fence_epoch bigint not null default 0,
  set_aside bigint not null default 0,
  updated_at bigint not null,
  -- How many open failures the campaign has.
  open_failures bigint not null default 0
) without rowid;

create table projection_cursors (
  campaign_id text not null,
  projection text not null,
  applied_seq bigint not null,
  generation bigint not null default 1,
  state text not null,
  updated_at bigint not null,
  -- Who set a projection aside for the campaign, and why; empty when a failure
  -- did, or a pause for all campaigns.
  paused_by text not null default '',
  paused_at bigint,
  reason text not null default '',
  -- When a projection that is set aside was last told an event; null where that
  -- is not known, or never was. Of one that follows, the watermark tells.
  applied_at bigint,
  primary key (campaign_id, projection)
) without rowid;

create index projection_cursors_aside on projection_cursors (projection, campaign_id) where state <> 'live';

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

create unique index failures_open on failures (campaign_id, projection, seq) where status = 'open';
create index failures_by_status on failures (status, id);
create index failures_by_campaign on failures (campaign_id, id);

-- The errors by which projections are quarantined are told apart before failures of each are read.
create index failures_causes on failures (projection, fingerprint, id) where status = 'open';

create table projection_versions (
  projection text not null primary key,
  version text not null,
  built_version text not null,
  installed_at bigint not null,
  -- A projection may be paused for all campaigns.
  paused_at bigint,
  paused_by text not null default '',
  reason text not null default ''
) without rowid;

-- The events that a watermark was advanced over without applying them.
create table watermark_skips (
  campaign_id text not null,
  seq bigint not null,
  skip_id bigint not null,
  at bigint not null,
  primary key (campaign_id, seq)
) without rowid;
