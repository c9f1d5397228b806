-- The share of the seconds before its last heartbeat in which an instance ran waves, and what its waves and their
-- statements took in its last busy minutes, in JSON.
alter table instances add column busy_share double precision not null default 0;
alter table instances add column spent text not null default '';
