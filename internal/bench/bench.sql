-- projection: bench
-- tables: bench_tokens

-- schema
create table bench_tokens (
  campaign_id text not null,
  token_id text not null,
  amount bigint not null,
  seq bigint not null,
  primary key (campaign_id, token_id)
);

-- on: bench.moved
insert into bench_tokens (campaign_id, token_id, amount, seq)
values (:campaign_id, :entity_id, :payload.amount!, :seq)
on conflict (campaign_id, token_id) do update
set amount = bench_tokens.amount + excluded.amount, seq = excluded.seq;
