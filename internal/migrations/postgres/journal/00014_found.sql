-- +goose Up

-- What a verify found wrong, for one look by campaign.
create index verifications_found on verifications (campaign_id, projection, verdict) where verdict in ('drift', 'failed');
