-- +goose Up

-- Campaigns that processes have died with are tried one at a time.
create index campaigns_suspects on campaigns (due_at) where crashes >= 2;

-- What keeps an instance from applying, for people; empty when nothing does. It
-- is stalled when nothing at all is applied.
alter table instances add column trouble text not null default '';
alter table instances add column stalled bigint not null default 0;
