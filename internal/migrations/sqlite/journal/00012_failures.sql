-- +goose Up

-- The projection that an attempt failed in, and the hash of its definition;
-- empty where they are not known.
alter table attempts add column projection text not null default '';
alter table attempts add column projection_version text not null default '';

-- Whether the attempt failed in a way that can never succeed with that version.
alter table attempts add column permanent bigint not null default 0;
