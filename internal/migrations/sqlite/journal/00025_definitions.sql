-- +goose Up

-- The file from which a version of a projection was loaded, so that a deploy can
-- be compared with the version before it, and that one be rehearsed.
alter table projection_loads add column file text not null default '';
alter table projection_loads add column definition text not null default '';
