-- +goose Up

-- How it was known who acted, what that one might do, what the act was about
-- besides a campaign or row, and whether it was refused.
alter table operator_acts add column auth text collate "C" not null default '';
alter table operator_acts add column role text collate "C" not null default '';
alter table operator_acts add column target text collate "C" not null default '';
alter table operator_acts add column outcome text collate "C" not null default 'done';
alter table operator_acts add column refusal text not null default '';

-- This once, records are written to: what they were about stands in them
-- already, and gets the column that it is found by.
alter table operator_acts disable trigger operator_acts_refuse_update;

update operator_acts
set target = coalesce('run ' || (before::jsonb ->> 'run_id'), 'run ' || (after::jsonb ->> 'run_id'), '')
where action in ('run_start', 'run_cancel', 'run_resume');

update operator_acts
set target = coalesce('operation ' || (before::jsonb ->> 'operation_id'), 'operation ' || (after::jsonb ->> 'operation_id'), '')
where action in ('operation_start', 'operation_cancel', 'operation_acknowledge');

update operator_acts
set target = coalesce('projection ' || (before::jsonb ->> 'projection'), '')
where action in ('projection_pause', 'projection_resume');

update operator_acts
set target = coalesce('publisher ' || (before::jsonb ->> 'topic') || '/' || (before::jsonb ->> 'publisher'), '')
where action in ('publisher_pause', 'publisher_resume', 'publisher_reset', 'publisher_seek', 'publisher_skip', 'publisher_test');

alter table operator_acts enable trigger operator_acts_refuse_update;

create index operator_acts_by_target on operator_acts (target, id) where target <> '';
create index operator_acts_by_time on operator_acts (at);

-- Records from before this time were removed, as the configuration says how
-- long they are kept. Others are never deleted.
create table audit_horizon (
  id bigint not null primary key,
  removed_before bigint not null
);

insert into audit_horizon (id, removed_before) values (1, 0);

-- +goose StatementBegin
create function operator_acts_refuse_loss() returns trigger language plpgsql as $$
begin
  if old.at >= (select removed_before from audit_horizon) then
    raise exception 'audit records are kept for as long as the configuration says';
  end if;
  return old;
end
$$;
-- +goose StatementEnd

create trigger operator_acts_refuse_delete before delete on operator_acts for each row execute function operator_acts_refuse_loss();

create table tokens (
  id bigint generated always as identity primary key,
  hash text collate "C" not null,
  role text collate "C" not null,
  note text not null,
  created_at bigint not null,
  created_by text not null,
  expires_at bigint not null,
  revoked_at bigint,
  revoked_by text not null default '',
  last_used_at bigint
);

create unique index tokens_by_hash on tokens (hash);
