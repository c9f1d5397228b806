-- +goose Up

-- The version of the projection's definition that the live rows were compared
-- with; empty where that was before this column.
alter table verifications add column version text not null default '';
