-- +goose Up

create table runs (
  id bigint generated always as identity primary key,
  kind text collate "C" not null,
  status text collate "C" not null,
  campaign_ids text not null,
  all_campaigns bigint not null,
  projections text not null,
  versions text not null,
  until_seq bigint not null default 0,
  rate bigint not null default 0,
  reason text not null,
  requested_by text collate "C" not null,
  via text not null,
  request_id text not null,
  requested_at bigint not null,
  started_at bigint,
  updated_at bigint not null,
  finished_at bigint,
  campaigns_done bigint not null default 0,
  campaigns_total bigint not null default 0,
  events_done bigint not null default 0,
  events_total bigint not null default 0,
  matched bigint not null default 0,
  drifted bigint not null default 0,
  replayed bigint not null default 0,
  failed bigint not null default 0,
  events_per_second double precision not null default 0,
  digests text not null default '',
  digests_before text not null default '',
  seq bigint not null default 0,
  verdict text collate "C" not null default '',
  error text not null default '',
  cancelled_by text collate "C" not null default '',
  attempts bigint not null default 0,
  lease_owner text collate "C" not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0
);

create index runs_active on runs (id) where finished_at is null;

create index runs_by_kind on runs (kind, id);

-- What a run is about: a row for each campaign and projection, the campaign
-- being empty where it is all of them.
create table run_scopes (
  run_id bigint not null,
  campaign_id text collate "C" not null,
  projection text collate "C" not null,
  active bigint not null,
  primary key (run_id, campaign_id, projection)
);

-- A campaign's projection belongs to one active run at most.
create unique index run_scopes_active on run_scopes (projection, campaign_id) where active = 1;

create index run_scopes_by_campaign on run_scopes (campaign_id, run_id);

create table run_results (
  run_id bigint not null,
  campaign_id text collate "C" not null,
  outcome text collate "C" not null,
  seq bigint not null,
  events bigint not null,
  full_digest text not null,
  projections text not null,
  error text not null,
  at bigint not null,
  primary key (run_id, campaign_id)
);

create index run_results_by_outcome on run_results (run_id, outcome, campaign_id);

create table run_log (
  id bigint generated always as identity primary key,
  run_id bigint not null,
  at bigint not null,
  campaign_id text collate "C" not null,
  text text not null
);

create index run_log_of_run on run_log (run_id, id);

-- The last comparison of each projection of a campaign with its journal.
create table verifications (
  campaign_id text collate "C" not null,
  projection text collate "C" not null,
  at bigint not null,
  seq bigint not null,
  verdict text collate "C" not null,
  run_id bigint not null,
  digest text not null,
  added bigint not null,
  changed bigint not null,
  removed bigint not null,
  first_seq bigint not null,
  primary key (campaign_id, projection)
);

create index verifications_drifted on verifications (campaign_id, projection) where verdict = 'drift';
