-- +goose Up

-- The process that evaluates alert rules and sends messages. progress counts
-- what was applied, and tried and failed, as of the last evaluation.
create table alert_evaluator (
  id bigint not null primary key check (id = 1),
  lease_owner text collate "C" not null default '',
  lease_epoch bigint not null default 0,
  lease_expires_at bigint not null default 0,
  progress bigint not null default 0,
  evaluated_at bigint not null default 0
);

insert into alert_evaluator (id) values (1);

-- A row for each cause of a rule that was found lately. state is a document:
-- its history is what keeps messages from being repeated.
create table alert_states (
  rule text collate "C" not null,
  cause text collate "C" not null,
  state text not null,
  primary key (rule, cause)
);

-- A row for each message and receiver, written in the transaction that changes
-- the state. It is sent after that, and again if its process dies meanwhile.
create table alert_messages (
  id bigint generated always as identity primary key,
  receiver text collate "C" not null,
  rule text collate "C" not null,
  cause text collate "C" not null,
  body text not null,
  created_at bigint not null,
  due_at bigint not null,
  held bigint not null,
  status text collate "C" not null,
  sent_at bigint,
  last_error text not null default ''
);

create index alert_messages_waiting on alert_messages (receiver, id) where status = 'waiting';

-- How sending to each receiver goes.
create table alert_receivers (
  receiver text collate "C" not null primary key,
  failures bigint not null default 0,
  sent_at bigint,
  error_at bigint,
  last_error text not null default '',
  retry_at bigint not null default 0
);

-- rule is empty for a mute of all rules.
create table alert_mutes (
  rule text collate "C" not null primary key,
  until bigint not null,
  muted_at bigint not null,
  muted_by text not null,
  reason text not null
);
