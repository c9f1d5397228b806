-- +goose Up

-- Appends that were asked for under an idempotency key, for as long as asking
-- again is answered alike. The outcome is where their events stand.
create table append_keys (
  auth text collate "C" not null,
  actor text collate "C" not null,
  idempotency_key text collate "C" not null,
  request_hash text not null,
  campaign_id text collate "C" not null,
  outcome text not null,
  at bigint not null,
  primary key (auth, actor, idempotency_key)
);

create index append_keys_by_time on append_keys (at);
