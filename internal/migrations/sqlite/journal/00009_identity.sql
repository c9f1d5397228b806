-- +goose Up

-- How it was known who acted, what that one might do, what the act was about
-- besides a campaign or row, and whether it was refused.
alter table operator_acts add column auth text not null default '';
alter table operator_acts add column role text not null default '';
alter table operator_acts add column target text not null default '';
alter table operator_acts add column outcome text not null default 'done';
alter table operator_acts add column refusal text not null default '';

-- This once, records are written to: what they were about stands in them
-- already, and gets the column that it is found by.
drop trigger operator_acts_refuse_update;

update operator_acts
set target = coalesce('run ' || json_extract(before, '$.run_id'),
  'run ' || json_extract(after, '$.run_id'), '')
where action in ('run_start', 'run_cancel', 'run_resume');

update operator_acts
set target = coalesce('operation ' || json_extract(before, '$.operation_id'), 'operation ' || json_extract(after, '$.operation_id'), '')
where action in ('operation_start', 'operation_cancel', 'operation_acknowledge');

update operator_acts
set target = coalesce('projection ' || json_extract(before, '$.projection'), '')
where action in ('projection_pause', 'projection_resume');

update operator_acts
set target = coalesce('publisher ' || json_extract(before, '$.topic') || '/' || json_extract(before, '$.publisher'), '')
where action in ('publisher_pause', 'publisher_resume', 'publisher_reset', 'publisher_seek', 'publisher_skip', 'publisher_test');

-- +goose StatementBegin
create trigger operator_acts_refuse_update before update on operator_acts
begin
  select raise(abort, 'audit records are never updated');
end;
-- +goose StatementEnd

create index operator_acts_by_target on operator_acts (target, id) where target <> '';
create index operator_acts_by_time on operator_acts (at);

-- Records from before this time were removed, as the configuration says how
-- long they are kept. Others are never deleted.
create table audit_horizon (
  id bigint not null primary key,
  removed_before bigint not null
) without rowid;

insert into audit_horizon (id, removed_before) values (1, 0);

-- +goose StatementBegin
create trigger operator_acts_refuse_delete before delete on operator_acts
when old.at >= (select removed_before from audit_horizon)
begin
  select raise(abort, 'audit records are kept for as long as the configuration says');
end;
-- +goose StatementEnd

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
