-- +goose Up

-- The events that a watermark was advanced over without applying them.
create table watermark_skips (
  campaign_id text not null,
  seq bigint not null,
  skip_id bigint not null,
  at bigint not null,
  primary key (campaign_id, seq)
) without rowid;
