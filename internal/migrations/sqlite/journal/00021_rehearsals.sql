-- +goose Up

-- What a run of kind rehearse was asked: the changed projection files, the
-- blocked campaigns with the events that blocked them, and the healthy ones to
-- compare with. The files are emptied once the run is old.
create table run_rehearsals (
  run_id bigint not null primary key,
  fingerprint text not null,
  behind bigint not null,
  blocked text not null,
  more bigint not null,
  versions text not null,
  other_schema text not null,
  files text not null
) without rowid;

-- How far a rehearsal got in a campaign, as JSON; empty for other kinds of runs.
alter table run_results add column rehearsed text not null default '';

-- The rehearsal that an operation rests on; 0 without one.
alter table operations add column rehearsal bigint not null default 0;
