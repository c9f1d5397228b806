-- projection: precedent_index
-- tables: precedents, precedent_candidates, precedent_traces
-- on-failure: block

-- Finished traces, to be found by the policies they evaluated and the exceptions
-- they requested. Only a trace that has ended is a precedent: until then its
-- policies and exceptions wait as candidates, and the end moves them over. What
-- follows an end waits for the next one.
--
-- The primary entity is the one the trace's first start names; without a start
-- it is NULL.

-- schema
create table precedents (
  campaign_id text not null,
  source_event_id text not null,
  log_seq bigint not null,
  trace_id text not null,
  policy_id text not null,
  policy_version text not null,
  exception_id text,
  primary_entity_type text,
  primary_entity_system text,
  primary_entity_id text,
  primary key (campaign_id, source_event_id)
);

create index precedents_policy on precedents (policy_id, policy_version);

create table precedent_candidates (
  campaign_id text not null,
  trace_id text not null,
  source_event_id text not null,
  log_seq bigint not null,
  policy_id text not null,
  policy_version text not null,
  exception_id text,
  primary key (campaign_id, trace_id, source_event_id)
);

create table precedent_traces (
  campaign_id text not null,
  trace_id text not null,
  primary_entity_type text,
  primary_entity_system text,
  primary_entity_id text,
  primary key (campaign_id, trace_id)
);

-- on: TraceStarted
insert into precedent_traces (campaign_id, trace_id, primary_entity_type, primary_entity_system, primary_entity_id)
values (
  :campaign_id,
  :entity_id!,
  :payload.primary_entity.entity_type,
  :payload.primary_entity.system,
  :payload.primary_entity.entity_id
)
on conflict (campaign_id, trace_id) do nothing;

-- on: PolicyEvaluated
insert into precedent_candidates (campaign_id, trace_id, source_event_id, log_seq, policy_id, policy_version)
values (:campaign_id, :entity_id!, :event_id, :seq, :payload.policy.policy_id!, :payload.policy.policy_version!)
on conflict (campaign_id, trace_id, source_event_id) do nothing;

-- on: ExceptionRequested
insert into precedent_candidates (campaign_id, trace_id, source_event_id, log_seq, policy_id, policy_version, exception_id)
values (
  :campaign_id, :entity_id!, :event_id, :seq,
  :payload.policy.policy_id!, :payload.policy.policy_version!, :payload.exception_id!
)
on conflict (campaign_id, trace_id, source_event_id) do nothing;

-- on: TraceFinished
insert into precedents (
  campaign_id, source_event_id, log_seq, trace_id, policy_id, policy_version, exception_id,
  primary_entity_type, primary_entity_system, primary_entity_id
)
select
  c.campaign_id, c.source_event_id, c.log_seq, c.trace_id, c.policy_id, c.policy_version, c.exception_id,
  t.primary_entity_type, t.primary_entity_system, t.primary_entity_id
from precedent_candidates c
left join precedent_traces t on t.campaign_id = c.campaign_id and t.trace_id = c.trace_id
where c.campaign_id = :campaign_id
  and c.trace_id = :entity_id!
on conflict (campaign_id, source_event_id) do nothing;

delete from precedent_candidates
where campaign_id = :campaign_id
  and trace_id = :entity_id;

-- digest:
select exception_id, log_seq, policy_id, policy_version, primary_entity_id, primary_entity_system, primary_entity_type, source_event_id, trace_id
from precedents
where campaign_id = :campaign_id
order by source_event_id collate "C";
