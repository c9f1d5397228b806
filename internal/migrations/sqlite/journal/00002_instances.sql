-- +goose Up

-- Microseconds; 0 means that the instance writes only when it has worked.
alter table instances add column beat_every bigint not null default 0;
