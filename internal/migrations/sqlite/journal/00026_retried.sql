-- +goose Up

-- Rows that failed and are being retried right now belong to their error like those
-- that wait for it.
create index outbox_retried on projection_apply_outbox (next_attempt_at, seq, campaign_id) where status = 'processing' and attempt_count > 0;
