-- +goose Up

-- One open failure for each event that a projection could not follow.
drop index failures_open;

create unique index failures_open on failures (campaign_id, projection, seq) where status = 'open';

create index failures_by_status on failures (status, id);

create index failures_by_campaign on failures (campaign_id, id);

-- How many open failures the campaign has.
alter table projection_watermarks add column open_failures bigint not null default 0;

-- Who set a projection aside for the campaign, and why; empty when a failure
-- did, or a pause for all campaigns.
alter table projection_cursors add column paused_by text collate "C" not null default '';

alter table projection_cursors add column paused_at bigint;

alter table projection_cursors add column reason text not null default '';

-- Whatever does not follow the watermark.
drop index projection_cursors_aside;

create index projection_cursors_aside on projection_cursors (projection, campaign_id) where state <> 'live';

-- A projection may be paused for all campaigns.
alter table projection_versions add column paused_at bigint;

alter table projection_versions add column paused_by text collate "C" not null default '';

alter table projection_versions add column reason text not null default '';

update projection_watermarks
set open_failures = (select count(*) from failures f where f.campaign_id = projection_watermarks.campaign_id and f.status = 'open')
where campaign_id in (select campaign_id from failures where status = 'open');
