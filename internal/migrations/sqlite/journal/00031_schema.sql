-- The migrations that were applied.
create table goose_db_version (
  id integer primary key autoincrement,
  version_id integer not null,
  is_applied integer not null,
  tstamp timestamp default (datetime('now'))
);

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

create trigger events_refuse_update before update on events
begin
  select raise(abort, 'the journal is append-only: events are never updated');
end;

create trigger events_refuse_delete before delete on events
begin
  select raise(abort, 'the journal is append-only: events are never deleted');
end;

create trigger events_tag after insert on events when new.tags <> '{}'
begin
  insert or ignore into event_tags (name, value, position, event_type)
  select substr(key, 1, 100), substr(coalesce(value, ''), 1, 200), new.position, new.event_type
  from json_each(new.tags);
end;

create index events_by_type on events (event_type);
create index events_by_entity on events (entity_id) where entity_id <> '';
create index events_by_request on events (request_id) where request_id <> '';
create unique index events_by_event_id on events (event_id, campaign_id);

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

-- Rows that failed and are being retried right now belong to their error like those
-- that wait for it.
create index outbox_retried on projection_apply_outbox (next_attempt_at, seq, campaign_id) where status = 'processing' and attempt_count > 0;

-- Errors are told apart before rows of each are read.
create index outbox_causes on projection_apply_outbox (fingerprint, next_attempt_at, seq, campaign_id) where attempt_count > 0;

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
  updated_at bigint not null,
  -- How many of the campaign's skips stand.
  skips bigint not null default 0,
  -- FIRST MORE BEGAN TOOK WORKER BUILD, numbers to base 36; empty as long as nothing
  -- was applied.
  applied_span text not null default ''
) without rowid;

create index campaigns_due on campaigns (due_at, campaign_id) where due_at is not null;
create index campaigns_by_lag on campaigns (applied_seq - high_water_seq, campaign_id);
create index campaigns_by_age on campaigns (coalesce(oldest_enqueued_at, 4611686018427387904), campaign_id);
create index campaigns_in_trouble on campaigns (campaign_id) where failed > 0 or dead > 0 or diverged <> '';
create index campaigns_paused on campaigns (paused_at) where paused_at is not null;

-- Campaigns that processes have died with are tried one at a time.
create index campaigns_suspects on campaigns (due_at) where crashes >= 2;

-- Trouble first: the order of campaign.Campaign.Rank without what verifying found.
create index campaigns_by_trouble on campaigns (cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 when oldest_enqueued_at is not null then 4 else 5 end as bigint), campaign_id);

create table attempts (
  campaign_id text not null,
  seq bigint not null,
  at bigint not null,
  attempt bigint not null,
  worker text not null,
  build text not null,
  error text not null,
  fingerprint text not null,
  -- The projection that an attempt failed in, and the hash of its definition;
  -- empty where they are not known.
  projection text not null default '',
  projection_version text not null default '',
  -- Whether the attempt failed in a way that can never succeed with that version.
  permanent bigint not null default 0,
  -- Whether the event died of the attempt.
  died bigint not null default 0,
  primary key (campaign_id, seq, at, attempt)
) without rowid;

create index attempts_by_time on attempts (at);

create table rehearsals (
  campaign_id text not null primary key,
  rehearsed_seq bigint not null,
  failed_seq bigint,
  error text not null default '',
  fingerprint text not null default '',
  at bigint not null
) without rowid;

create index rehearsals_causes on rehearsals (fingerprint, campaign_id) where failed_seq is not null;

create table audit_log (
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
  result text not null,
  -- How it was known who acted, the actor's role, what the act was about besides a
  -- campaign or row, and whether it was refused.
  auth text not null default '',
  role text not null default '',
  target text not null default '',
  outcome text not null default 'done',
  refusal text not null default ''
);

create index audit_log_by_campaign on audit_log (campaign_id, id);
create unique index audit_log_once on audit_log (idempotency_key) where idempotency_key <> '';

create trigger audit_log_refuse_update before update on audit_log
begin
  select raise(abort, 'audit records are never updated');
end;

create index audit_log_by_target on audit_log (target, id) where target <> '';
create index audit_log_by_time on audit_log (at);

create trigger audit_log_refuse_delete before delete on audit_log
when old.at >= (select removed_before from audit_horizon)
begin
  select raise(abort, 'audit records are kept for as long as the configuration says');
end;

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
  failed_per_second double precision not null default 0,
  -- Microseconds; 0 means that the instance writes only when it has worked.
  beat_every bigint not null default 0,
  -- What keeps an instance from applying, for people; empty when nothing does. It
  -- is stalled when nothing at all is applied.
  trouble text not null default '',
  stalled bigint not null default 0,
  -- The campaigns that an instance serves, as a JSON array of patterns.
  campaigns text not null default '["*"]'
) without rowid;

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
) without rowid;

-- The campaigns that were the furthest behind at a minute.
create table campaign_samples (
  campaign_id text not null,
  minute bigint not null,
  lag_events bigint not null,
  oldest_enqueued_at bigint not null,
  primary key (campaign_id, minute)
) without rowid;

create index campaign_samples_by_minute on campaign_samples (minute);

-- What operators pinned to an error that many rows share.
create table group_notes (
  fingerprint text not null primary key,
  note text not null,
  noted_by text not null,
  noted_at bigint not null
) without rowid;

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
  acknowledged_by text not null default '',
  -- The rehearsal that an operation rests on; 0 without one.
  rehearsal bigint not null default 0
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

create table runs (
  id integer primary key autoincrement,
  kind text not null,
  status text not null,
  campaign_ids text not null,
  all_campaigns bigint not null,
  projections text not null,
  versions text not null,
  until_seq bigint not null default 0,
  rate bigint not null default 0,
  reason text not null,
  requested_by text not null,
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
  verdict text not null default '',
  error text not null default '',
  cancelled_by text not null default '',
  attempts bigint not null default 0,
  lease_owner text not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0
);

create index runs_active on runs (id) where finished_at is null;
create index runs_by_kind on runs (kind, id);

-- What a run is about: a row for each campaign and projection, the campaign
-- being empty where it is all of them.
create table run_scopes (
  run_id bigint not null,
  campaign_id text not null,
  projection text not null,
  active bigint not null,
  primary key (run_id, campaign_id, projection)
) without rowid;

-- A campaign's projection belongs to one active run at most.
create unique index run_scopes_active on run_scopes (projection, campaign_id) where active = 1;
create index run_scopes_by_campaign on run_scopes (campaign_id, run_id);

create table run_results (
  run_id bigint not null,
  campaign_id text not null,
  outcome text not null,
  seq bigint not null,
  events bigint not null,
  full_digest text not null,
  projections text not null,
  error text not null,
  at bigint not null,
  -- How far a rehearsal got in a campaign, as JSON; empty for other kinds of runs.
  rehearsed text not null default '',
  primary key (run_id, campaign_id)
) without rowid;

create index run_results_by_outcome on run_results (run_id, outcome, campaign_id);

create table run_log (
  id integer primary key autoincrement,
  run_id bigint not null,
  at bigint not null,
  campaign_id text not null,
  text text not null
);

create index run_log_of_run on run_log (run_id, id);

-- The last comparison of each projection of a campaign with its journal.
create table verifications (
  campaign_id text not null,
  projection text not null,
  at bigint not null,
  seq bigint not null,
  verdict text not null,
  run_id bigint not null,
  digest text not null,
  added bigint not null,
  changed bigint not null,
  removed bigint not null,
  first_seq bigint not null,
  -- Why a verification failed, for people; empty when it did not.
  error text not null default '',
  -- The version of the projection's definition that the live rows were compared
  -- with; empty where it is not known.
  version text not null default '',
  primary key (campaign_id, projection)
) without rowid;

create index verifications_drifted on verifications (campaign_id, projection) where verdict = 'drift';
create index verifications_failed on verifications (campaign_id, projection) where verdict = 'failed';

-- What a verify found wrong, for one look by campaign.
create index verifications_found on verifications (campaign_id, projection, verdict) where verdict in ('drift', 'failed');

-- Which journal this is, also after a restore: receivers of its events tell
-- them from those of others by it.
create table journal_identity (
  id text not null primary key
) without rowid;

insert into journal_identity (id) values (lower(hex(randomblob(16))));

-- A row for each pair of topic and publisher there ever was. position is how
-- far the journal was scanned; what was delivered stands beside it.
create table publisher_progress (
  topic text not null,
  publisher text not null,
  destination text not null,
  selects text not null,
  max_errors bigint not null,
  status text not null default 'active',
  position bigint not null,
  delivered_position bigint not null default 0,
  delivered bigint not null default 0,
  error_count bigint not null default 0,
  error_kind text not null default '',
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
  lease_owner text not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  wanted_by text not null default '',
  wanted_at bigint not null default 0,
  created_at bigint not null,
  updated_at bigint not null,
  -- The settings that a publisher delivers by, and what it says of its own health to
  -- the process that holds it.
  settings text not null default '{}',
  healthy bigint,
  health_message text not null default '',
  -- When a publisher said whether it is healthy, and since when a call of it has not
  -- returned, as the process that holds it reports.
  health_at bigint,
  hanging_since bigint,
  -- Whether a publisher's destination took the last test event that was sent while
  -- its errors last: 1, or 0 if it refused it; null if none was sent.
  test_taken bigint,
  primary key (topic, publisher)
) without rowid;

create table publisher_samples (
  topic text not null,
  publisher text not null,
  minute bigint not null,
  delivered bigint not null,
  lag_events bigint not null,
  oldest_recorded_at bigint,
  error_count bigint not null,
  primary key (topic, publisher, minute)
) without rowid;

create index publisher_samples_by_minute on publisher_samples (minute);

-- The events that have a tag, in the order of positions. Names and values are
-- cut off, since PostgreSQL bounds what fits into an index: a query that finds
-- an event here still has to look at its tags.
create table event_tags (
  name text not null,
  value text not null,
  position bigint not null,
  event_type text not null,
  primary key (name, value, position)
) without rowid;

-- Records from before this time were removed, as the configuration says how
-- long they are kept. Others are never deleted.
create table audit_horizon (
  id bigint not null primary key,
  removed_before bigint not null
) without rowid;

insert into audit_horizon (id, removed_before) values (1, 0);

create table tokens (
  id integer primary key autoincrement,
  hash text not null,
  role text not null,
  note text not null,
  created_at bigint not null,
  created_by text not null,
  expires_at bigint not null,
  revoked_at bigint,
  revoked_by text not null default '',
  last_used_at bigint
);

create unique index tokens_by_hash on tokens (hash);

-- Which rows an act on many rows touched, as ranges of consecutive events, and
-- when: an operation touches its rows long after the act that started it.
create table audit_log_rows (
  entry_id bigint not null,
  campaign_id text not null,
  first_seq bigint not null,
  last_seq bigint not null,
  at bigint not null,
  primary key (entry_id, campaign_id, first_seq)
) without rowid;

create index audit_log_rows_by_campaign on audit_log_rows (campaign_id, entry_id, first_seq);

-- When events were applied, and by whom: consecutive ones of a campaign that one
-- process applied without a pause, within a minute, are one span. The last span of
-- a campaign is still in its row, so that applying events costs no statement of its
-- own.
create table applied_spans (
  campaign_id text not null,
  first_seq bigint not null,
  last_seq bigint not null,
  began_at bigint not null,
  ended_at bigint not null,
  worker text not null,
  build text not null,
  primary key (campaign_id, first_seq, began_at)
) without rowid;

create index applied_spans_by_time on applied_spans (ended_at);

-- Appends that were asked for under an idempotency key, for as long as asking
-- again is answered alike. The outcome is where their events stand.
create table append_keys (
  auth text not null,
  actor text not null,
  idempotency_key text not null,
  request_hash text not null,
  campaign_id text not null,
  outcome text not null,
  at bigint not null,
  primary key (auth, actor, idempotency_key)
) without rowid;

create index append_keys_by_time on append_keys (at);

-- What was counted or stood in each minute and quarter of an hour, for charts.
create table series_samples (
  kind text not null,
  step bigint not null,
  at bigint not null,
  label text not null,
  source text not null,
  value bigint not null,
  primary key (kind, step, at, label, source)
) without rowid;

create index series_samples_by_time on series_samples (step, at);

-- When a process first loaded another version of a projection.
create table projection_loads (
  projection text not null,
  at bigint not null,
  version text not null,
  previous text not null,
  instance text not null,
  host text not null,
  -- The file from which the version was loaded, so that a deploy can be compared
  -- with the version before it, and that one be rehearsed.
  file text not null default '',
  definition text not null default '',
  primary key (projection, at)
) without rowid;

-- Filtered lists that operators named.
create table views (
  id integer primary key autoincrement,
  owner text not null,
  list text not null,
  name text not null,
  query text not null,
  created_at bigint not null
);

create unique index views_of_owner on views (owner, list, name);

-- The process that evaluates alert rules and sends messages. progress counts
-- what was applied, and tried and failed, as of the last evaluation.
create table alert_evaluator (
  id bigint not null primary key check (id = 1),
  lease_owner text not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  progress bigint not null default 0,
  evaluated_at bigint not null default 0
);

insert into alert_evaluator (id) values (1);

-- A row for each cause of a rule that was found lately. state is a document:
-- its history is what keeps messages from being repeated.
create table alert_states (
  rule text not null,
  cause text not null,
  state text not null,
  primary key (rule, cause)
) without rowid;

-- A row for each message and receiver, written in the transaction that changes
-- the state. It is sent after that, and again if its process dies before it has
-- recorded that.
create table alert_messages (
  id integer primary key autoincrement,
  receiver text not null,
  rule text not null,
  cause text not null,
  body text not null,
  created_at bigint not null,
  due_at bigint not null,
  held bigint not null,
  status text not null,
  sent_at bigint,
  last_error text not null default ''
);

create index alert_messages_waiting on alert_messages (receiver, id) where status = 'waiting';

-- How sending to each receiver goes.
create table alert_receivers (
  receiver text not null primary key,
  failures bigint not null default 0,
  sent_at bigint,
  error_at bigint,
  last_error text not null default '',
  retry_at bigint not null default 0
) without rowid;

-- rule is empty for a mute of all rules.
create table alert_mutes (
  rule text not null primary key,
  until bigint not null,
  muted_at bigint not null,
  muted_by text not null,
  reason text not null
) without rowid;

-- What a run of kind rehearse was asked: the changed projection files, the
-- blocked campaigns with the events that blocked them, and the healthy ones to
-- compare with. The files are emptied once the run is old.
create table run_rehearsals (
  run_id bigint not null primary key,
  fingerprint text not null,
  behind bigint not null,
  blocked text not null,
  more bigint not null,
  versions text not null,
  other_schema text not null,
  files text not null
) without rowid;

-- The databases of services whose rows become events. waiting, oldest_at and
-- error are as of the last look of the process that has the lease.
create table intake_sources (
  source text not null primary key,
  place text not null default '',
  lease_owner text not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  journalled bigint not null default 0,
  journalled_at bigint,
  looked_at bigint,
  waiting bigint not null default 0,
  oldest_at bigint,
  error text not null default '',
  error_at bigint,
  -- The journal that a source belongs to if that is another one, as last seen, and
  -- since when. An operator hands it over by copying owned_since to handed_over; a
  -- later owner has it since another time.
  owner text not null default '',
  owned_since bigint not null default 0,
  handed_over bigint not null default 0
) without rowid;

-- Rows that could not be journalled. Each holds back its campaign in its source,
-- unless it is discarded; row_key is its place in the source's order.
create table intake_rejections (
  id integer primary key autoincrement,
  source text not null,
  row_key text not null,
  campaign_id text not null,
  event_id text not null,
  event_type text not null,
  content text not null,
  content_bytes bigint not null,
  reason text not null,
  attempts bigint not null default 1,
  rejected_at bigint not null,
  status text not null default 'open',
  changed_at bigint,
  changed_by text not null default '',
  change_reason text not null default ''
);

create unique index intake_rejections_held on intake_rejections (source, row_key) where status <> 'discarded';
create index intake_rejections_list on intake_rejections (source, id);
