-- +goose Up

-- One index finds an event by its id in all campaigns and keeps the id unique in
-- its own: every append wrote two.
drop index events_by_id;
drop index events_by_event_id;
create unique index events_by_event_id on events (event_id, campaign_id);
