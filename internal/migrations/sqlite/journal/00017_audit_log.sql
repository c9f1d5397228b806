-- +goose Up

-- The audit log has the name that pages, commands and the API give it. SQLite
-- renames no index and no trigger, so they are made again.
drop trigger operator_acts_refuse_update;
drop trigger operator_acts_refuse_delete;
drop index operator_acts_by_campaign;
drop index operator_acts_once;
drop index operator_acts_by_target;
drop index operator_acts_by_time;

alter table operator_acts rename to audit_log;

create index audit_log_by_campaign on audit_log (campaign_id, id);
create unique index audit_log_once on audit_log (idempotency_key) where idempotency_key <> '';
create index audit_log_by_target on audit_log (target, id) where target <> '';
create index audit_log_by_time on audit_log (at);

-- +goose StatementBegin
create trigger audit_log_refuse_update before update on audit_log
begin
  select raise(abort, 'audit records are never updated');
end;
-- +goose StatementEnd

-- +goose StatementBegin
create trigger audit_log_refuse_delete before delete on audit_log
when old.at >= (select removed_before from audit_horizon)
begin
  select raise(abort, 'audit records are kept for as long as the configuration says');
end;
-- +goose StatementEnd

-- Which rows an action on many touched.
drop index act_targets_by_campaign;
alter table act_targets rename to audit_log_rows;
alter table audit_log_rows rename column act_id to entry_id;
create index audit_log_rows_by_campaign on audit_log_rows (campaign_id, entry_id, first_seq);
