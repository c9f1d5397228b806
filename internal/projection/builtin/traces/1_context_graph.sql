-- projection: context_graph
-- tables: context_nodes, context_edges
-- on-failure: block
-- graph: nodes=context_nodes(node_id,node_id) edges=context_edges(from_node_id,to_node_id)

-- What decision traces touched, as a graph: traces, their actors, entities,
-- inputs, policies, exceptions and actions are nodes; what an event says about
-- two of them is an edge.
--
-- A trace is the entity of its events' envelopes (:entity_id); one campaign may
-- hold several. A node's id is its type and the id the events give it, joined by
-- colons; an edge's id is its type, its ends and its event, joined likewise.
-- The first event that names a node writes it and no later one changes it. An
-- end that no event has introduced gets its node from the edge.
--
-- The same text runs on SQLite and PostgreSQL: cast tells PostgreSQL the type
-- where it cannot see one. A select stands in place of values where a condition
-- decides whether there is a row at all.
--
-- Times are RFC 3339 text, as the digest wants them. attrs is a JSON object that
-- no event fills so far.

-- schema
create table context_nodes (
  campaign_id text not null,
  node_id text not null,
  node_type text not null,
  trace_id text not null,
  attrs text not null default '{}',
  created_at text not null,
  log_seq bigint not null,
  primary key (campaign_id, node_id)
);

create table context_edges (
  campaign_id text not null,
  edge_id text not null,
  edge_type text not null,
  from_node_id text not null,
  to_node_id text not null,
  trace_id text not null,
  attrs text not null default '{}',
  created_at text not null,
  log_seq bigint not null,
  primary key (campaign_id, edge_id)
);

create index context_edges_from on context_edges (campaign_id, from_node_id);
create index context_edges_to on context_edges (campaign_id, to_node_id);

-- -------------------------------------------------------------------- traces

-- Every edge that begins at the trace needs the trace's node, also when the
-- trace's start is not in the journal.

-- on: TraceStarted, EntityObserved, InputObserved, PolicyEvaluated, ExceptionRequested, PrecedentCited, ActionProposed, ActionCommitted
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (:campaign_id, 'trace:' || cast(:entity_id! as text), 'trace', :entity_id, :occurred_at_text, :seq)
on conflict (campaign_id, node_id) do nothing;

-- on: TraceStarted
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'actor:' || cast(:actor_type! as text) || ':' || cast(:actor_id! as text),
  'actor', :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, node_id) do nothing;

-- A trace may be about no entity. One that is named only in part makes the node's
-- id NULL, and the event fails.

insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'entity:' || cast(:payload.primary_entity.entity_type as text) || ':' || cast(:payload.primary_entity.entity_id as text),
  'entity', cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.primary_entity as text) is not null
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'trace_involves_entity:trace:' || cast(:entity_id as text)
    || ':entity:' || cast(:payload.primary_entity.entity_type as text) || ':' || cast(:payload.primary_entity.entity_id as text)
    || ':' || cast(:event_id as text),
  'trace_involves_entity',
  'trace:' || cast(:entity_id as text),
  'entity:' || cast(:payload.primary_entity.entity_type as text) || ':' || cast(:payload.primary_entity.entity_id as text),
  cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.primary_entity as text) is not null
on conflict (campaign_id, edge_id) do nothing;

-- -------------------------------------------------------------- observations

-- on: EntityObserved
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'entity:' || cast(:payload.entity.entity_type! as text) || ':' || cast(:payload.entity.entity_id! as text),
  'entity', :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_involves_entity:trace:' || cast(:entity_id as text)
    || ':entity:' || cast(:payload.entity.entity_type as text) || ':' || cast(:payload.entity.entity_id as text)
    || ':' || cast(:event_id as text),
  'trace_involves_entity',
  'trace:' || cast(:entity_id as text),
  'entity:' || cast(:payload.entity.entity_type as text) || ':' || cast(:payload.entity.entity_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- on: InputObserved
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (:campaign_id, 'input:' || cast(:payload.input_id! as text), 'input', :entity_id, :occurred_at_text, :seq)
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_observed_input:trace:' || cast(:entity_id as text)
    || ':input:' || cast(:payload.input_id as text)
    || ':' || cast(:event_id as text),
  'trace_observed_input',
  'trace:' || cast(:entity_id as text),
  'input:' || cast(:payload.input_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- ---------------------------------------------------- policies and exceptions

-- on: PolicyEvaluated
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'policy:' || cast(:payload.policy.policy_id! as text) || ':' || cast(:payload.policy.policy_version! as text),
  'policy', :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_evaluated_policy:trace:' || cast(:entity_id as text)
    || ':policy:' || cast(:payload.policy.policy_id as text) || ':' || cast(:payload.policy.policy_version as text)
    || ':' || cast(:event_id as text),
  'trace_evaluated_policy',
  'trace:' || cast(:entity_id as text),
  'policy:' || cast(:payload.policy.policy_id as text) || ':' || cast(:payload.policy.policy_version as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- on: ExceptionRequested
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (:campaign_id, 'exception:' || cast(:payload.exception_id! as text), 'exception', :entity_id, :occurred_at_text, :seq)
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_requested_exception:trace:' || cast(:entity_id as text)
    || ':exception:' || cast(:payload.exception_id as text)
    || ':' || cast(:event_id as text),
  'trace_requested_exception',
  'trace:' || cast(:entity_id as text),
  'exception:' || cast(:payload.exception_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- An approval is recorded for an exception or for an action. Both name the
-- approver, only the first is an edge, and the edge says who decided, not how.

-- on: ApprovalRecorded
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'actor:' || cast(:payload.approver.actor_type! as text) || ':' || cast(:payload.approver.actor_id! as text),
  'actor', :entity_id!, :occurred_at_text, :seq
)
on conflict (campaign_id, node_id) do nothing;

insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'exception:' || cast(:payload.subject.subject_id as text),
  'exception', cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.subject.subject_type as text) = 'exception'
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'exception_approved_by:exception:' || cast(:payload.subject.subject_id as text)
    || ':actor:' || cast(:payload.approver.actor_type as text) || ':' || cast(:payload.approver.actor_id as text)
    || ':' || cast(:event_id as text),
  'exception_approved_by',
  'exception:' || cast(:payload.subject.subject_id as text),
  'actor:' || cast(:payload.approver.actor_type as text) || ':' || cast(:payload.approver.actor_id as text),
  cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.subject.subject_type as text) = 'exception'
on conflict (campaign_id, edge_id) do nothing;

-- ---------------------------------------------------------------- precedents

-- The node of a trace belongs to that trace, whoever cites it.

-- on: PrecedentCited
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace:' || cast(:payload.cited_trace_id! as text),
  'trace', :payload.cited_trace_id, :occurred_at_text, :seq
)
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_cited_precedent:trace:' || cast(:entity_id as text)
    || ':trace:' || cast(:payload.cited_trace_id as text)
    || ':' || cast(:event_id as text),
  'trace_cited_precedent',
  'trace:' || cast(:entity_id as text),
  'trace:' || cast(:payload.cited_trace_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- ------------------------------------------------------------------- actions

-- An action may be committed that nobody proposed.

-- on: ActionProposed, ActionCommitted
insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
values (:campaign_id, 'action:' || cast(:payload.action_id! as text), 'action', :entity_id, :occurred_at_text, :seq)
on conflict (campaign_id, node_id) do nothing;

-- on: ActionProposed
insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_proposed_action:trace:' || cast(:entity_id as text)
    || ':action:' || cast(:payload.action_id as text)
    || ':' || cast(:event_id as text),
  'trace_proposed_action',
  'trace:' || cast(:entity_id as text),
  'action:' || cast(:payload.action_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- An action may have no target.

insert into context_nodes (campaign_id, node_id, node_type, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'entity:' || cast(:payload.target_entity.entity_type as text) || ':' || cast(:payload.target_entity.entity_id as text),
  'entity', cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.target_entity as text) is not null
on conflict (campaign_id, node_id) do nothing;

insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
select
  cast(:campaign_id as text),
  'action_targets_entity:action:' || cast(:payload.action_id as text)
    || ':entity:' || cast(:payload.target_entity.entity_type as text) || ':' || cast(:payload.target_entity.entity_id as text)
    || ':' || cast(:event_id as text),
  'action_targets_entity',
  'action:' || cast(:payload.action_id as text),
  'entity:' || cast(:payload.target_entity.entity_type as text) || ':' || cast(:payload.target_entity.entity_id as text),
  cast(:entity_id as text), cast(:occurred_at_text as text), cast(:seq as bigint)
where cast(:payload.target_entity as text) is not null
on conflict (campaign_id, edge_id) do nothing;

-- on: ActionCommitted
insert into context_edges (campaign_id, edge_id, edge_type, from_node_id, to_node_id, trace_id, created_at, log_seq)
values (
  :campaign_id,
  'trace_committed_action:trace:' || cast(:entity_id as text)
    || ':action:' || cast(:payload.action_id as text)
    || ':' || cast(:event_id as text),
  'trace_committed_action',
  'trace:' || cast(:entity_id as text),
  'action:' || cast(:payload.action_id as text),
  :entity_id, :occurred_at_text, :seq
)
on conflict (campaign_id, edge_id) do nothing;

-- ------------------------------------------------------------------- digests

-- digest nodes (json: attrs):
select attrs, created_at, log_seq, node_id, node_type, trace_id
from context_nodes
where campaign_id = :campaign_id
order by node_id collate "C";

-- digest edges (json: attrs):
select attrs, created_at, edge_id, edge_type, from_node_id, log_seq, to_node_id, trace_id
from context_edges
where campaign_id = :campaign_id
order by edge_id collate "C";
