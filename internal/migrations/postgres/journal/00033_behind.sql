-- Only campaigns that are behind are in the indexes that lists of them are sorted by: one that has applied all
-- of its events leaves them instead of moving to their other end, which is a page more of each to write.
drop index campaigns_by_age;
drop index campaigns_by_trouble;
create index campaigns_by_age on campaigns (oldest_enqueued_at, campaign_id) where oldest_enqueued_at is not null;

-- Trouble first: the order of campaign.Campaign.Rank without what verifying found.
create index campaigns_by_trouble on campaigns ((cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 when oldest_enqueued_at is not null then 4 else 5 end as bigint)), campaign_id) where oldest_enqueued_at is not null or diverged <> '';
