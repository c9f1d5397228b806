-- +goose Up

-- The audit log has the name that pages, commands and the API give it.
alter table operator_acts rename to audit_log;
alter index operator_acts_pkey rename to audit_log_pkey;
alter index operator_acts_by_campaign rename to audit_log_by_campaign;
alter index operator_acts_once rename to audit_log_once;
alter index operator_acts_by_target rename to audit_log_by_target;
alter index operator_acts_by_time rename to audit_log_by_time;
alter sequence operator_acts_id_seq rename to audit_log_id_seq;
alter trigger operator_acts_refuse_update on audit_log rename to audit_log_refuse_update;
alter trigger operator_acts_refuse_delete on audit_log rename to audit_log_refuse_delete;
alter function operator_acts_refuse_change() rename to audit_log_refuse_change;
alter function operator_acts_refuse_loss() rename to audit_log_refuse_loss;

-- Which rows an action on many touched.
alter table act_targets rename to audit_log_rows;
alter table audit_log_rows rename column act_id to entry_id;
alter index act_targets_pkey rename to audit_log_rows_pkey;
alter index act_targets_by_campaign rename to audit_log_rows_by_campaign;

-- An instance of the version before, which runs until it is restarted, reads
-- and writes under the old names.
create view operator_acts as select * from audit_log;
create view act_targets as
select entry_id as act_id, campaign_id, first_seq, last_seq, at
from audit_log_rows;
