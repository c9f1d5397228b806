-- +goose Up

-- The errors by which projections are quarantined are told apart before failures of each are read.
create index failures_causes on failures (projection, fingerprint, id) where status = 'open';
