-- The events of which runs made the rows, and with which version: "AFTER SEQ VERSION" for each run since all
-- rows were replaced.
alter table projection_cursors add column built text not null default '';
