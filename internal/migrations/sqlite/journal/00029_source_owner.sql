-- +goose Up

-- The journal that a source belongs to if that is another one, as last seen, and
-- since when. An operator hands it over by copying owned_since to handed_over; a
-- later owner has it since another time.
alter table intake_sources add column owner text not null default '';
alter table intake_sources add column owned_since bigint not null default 0;
alter table intake_sources add column handed_over bigint not null default 0;
