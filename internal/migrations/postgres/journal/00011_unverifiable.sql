-- +goose Up

-- Why a verification failed, for people; empty when it did not.
alter table verifications add column error text not null default '';

create index verifications_failed on verifications (campaign_id, projection) where verdict = 'failed';
