-- +goose Up

-- What was counted or stood in each minute and quarter of an hour, for charts.
create table series_samples (
  kind text collate "C" not null,
  step bigint not null,
  at bigint not null,
  label text collate "C" not null,
  source text collate "C" not null,
  value bigint not null,
  primary key (kind, step, at, label, source)
);

create index series_samples_by_time on series_samples (step, at);

-- When a process first loaded another version of a projection.
create table projection_loads (
  projection text collate "C" not null,
  at bigint not null,
  version text collate "C" not null,
  previous text collate "C" not null,
  instance text collate "C" not null,
  host text collate "C" not null,
  primary key (projection, at)
);
