-- The pauses that end by themselves, by the action that ends them.
create table pause_ends (
  resume text collate "C" not null,
  campaign_id text collate "C" not null,
  target text collate "C" not null,
  paused_by text not null,
  ends_at bigint not null,
  primary key (resume, campaign_id, target)
);

create index pause_ends_by_end on pause_ends (ends_at, campaign_id, target, resume);
