-- +goose Up

-- What was counted or stood in each minute and quarter of an hour, for charts.
create table series_samples (
  kind text not null,
  step bigint not null,
  at bigint not null,
  label text not null,
  source text not null,
  value bigint not null,
  primary key (kind, step, at, label, source)
) without rowid;

create index series_samples_by_time on series_samples (step, at);

-- When a process first loaded another version of a projection.
create table projection_loads (
  projection text not null,
  at bigint not null,
  version text not null,
  previous text not null,
  instance text not null,
  host text not null,
  primary key (projection, at)
) without rowid;
