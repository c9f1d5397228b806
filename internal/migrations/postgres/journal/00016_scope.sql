-- +goose Up

-- The campaigns that an instance serves, as a JSON array of patterns.
alter table instances add column campaigns text not null default '["*"]';
