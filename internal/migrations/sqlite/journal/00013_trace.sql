-- +goose Up

-- Which rows an act on many rows touched, as ranges of consecutive events, and
-- when: an operation touches its rows long after the act that started it.
create table act_targets (
  act_id bigint not null,
  campaign_id text not null,
  first_seq bigint not null,
  last_seq bigint not null,
  at bigint not null,
  primary key (act_id, campaign_id, first_seq)
) without rowid;

create index act_targets_by_campaign on act_targets (campaign_id, act_id, first_seq);

-- Whether the event died of the attempt.
alter table attempts add column died bigint not null default 0;

create index attempts_by_time on attempts (at);

-- When events were applied, and by whom: consecutive ones of a campaign that one
-- process applied without a pause, within a minute, are one span. The last span of a campaign is
-- still in its row, so that applying events costs no statement of its own.
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

-- FIRST MORE BEGAN TOOK WORKER BUILD, numbers to base 36; empty as long as nothing
-- was applied.
alter table campaigns add column applied_span text not null default '';
