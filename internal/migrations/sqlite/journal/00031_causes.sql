-- +goose Up

-- Errors are told apart before rows of each are read.
create index outbox_causes on projection_apply_outbox (fingerprint, next_attempt_at, seq, campaign_id) where attempt_count > 0;

create index rehearsals_causes on rehearsals (fingerprint, campaign_id) where failed_seq is not null;
