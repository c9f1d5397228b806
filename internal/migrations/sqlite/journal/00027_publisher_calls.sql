-- +goose Up

-- When a publisher said whether it is healthy, and since when a call of it has not
-- returned, as the process that holds it reports.
alter table publisher_progress add column health_at bigint;
alter table publisher_progress add column hanging_since bigint;
