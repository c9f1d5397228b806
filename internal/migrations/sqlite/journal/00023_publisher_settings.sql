-- +goose Up

-- The settings that a publisher delivers by, and what it says of its own health to
-- the process that holds it.
alter table publisher_progress add column settings text not null default '{}';
alter table publisher_progress add column healthy bigint;
alter table publisher_progress add column health_message text not null default '';
