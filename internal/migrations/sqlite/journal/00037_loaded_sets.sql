-- The versions that processes had loaded together, by a digest of them.
create table loaded_sets (
  loaded text not null,
  projection text not null,
  version text not null,
  primary key (loaded, projection)
);

-- What the process that applied the events had loaded; empty where it is not known.
alter table applied_spans add column loaded text not null default '';

create index applied_spans_by_set on applied_spans (campaign_id, loaded, first_seq);

-- The versions of a projection are numbered in the order in which they were loaded first.
alter table projection_loads add column number bigint not null default 0;

update projection_loads
set number = (
  select count(distinct earlier.version)
  from projection_loads as earlier
  where earlier.projection = projection_loads.projection
    and earlier.at <= (
      select min(same.at)
      from projection_loads as same
      where same.projection = projection_loads.projection
        and same.version = projection_loads.version));

-- The versions that had made the rows of a verification that found drift, separated by spaces.
alter table verifications add column built text not null default '';
