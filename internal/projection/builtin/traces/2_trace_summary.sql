-- projection: trace_summary
-- tables: trace_summaries
-- on-failure: block

-- One row for each decision trace: what it is about, when it began, and how it
-- ended. event_count counts the starts and ends only, and last_log_seq is the
-- seq of the last of these; what happens between them is in the context graph.
--
-- A trace that starts again keeps what its first start said. The end of a trace
-- whose start is not in the journal leaves nothing here.

-- schema
create table trace_summaries (
  campaign_id text not null,
  trace_id text not null,
  workflow text not null,
  title text not null,
  primary_entity_type text,
  primary_entity_id text,
  outcome text,
  started_at text not null,
  finished_at text,
  event_count bigint not null,
  last_log_seq bigint not null,
  primary key (campaign_id, trace_id)
);

-- on: TraceStarted
insert into trace_summaries (
  campaign_id, trace_id, workflow, title, primary_entity_type, primary_entity_id, started_at, event_count, last_log_seq
) values (
  :campaign_id,
  :entity_id!,
  coalesce(:payload.workflow, ''),
  coalesce(:payload.title, ''),
  :payload.primary_entity.entity_type,
  :payload.primary_entity.entity_id,
  :occurred_at_text,
  1,
  :seq
)
on conflict (campaign_id, trace_id) do update set
  event_count = trace_summaries.event_count + 1,
  last_log_seq = excluded.last_log_seq;

-- on: TraceFinished
update trace_summaries set
  outcome = :payload.outcome!,
  finished_at = :occurred_at_text,
  event_count = event_count + 1,
  last_log_seq = :seq
where campaign_id = :campaign_id
  and trace_id = :entity_id!;

-- digest:
select event_count, finished_at, last_log_seq, outcome, primary_entity_id, primary_entity_type, started_at, title, trace_id, workflow
from trace_summaries
where campaign_id = :campaign_id
order by trace_id collate "C";
