-- Events per second that an instance saw appended to the journal, by whomever, before its last heartbeat.
alter table instances add column appended_per_second double precision not null default 0;
