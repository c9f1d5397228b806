-- An append to a campaign that is up to date enters one sorted index, by age, and leaves it when all is applied.
-- The others have campaigns that are more than one event behind, and those that need attention.
drop index campaigns_by_lag;
drop index campaigns_by_trouble;
create index campaigns_by_lag on campaigns (applied_seq - high_water_seq, campaign_id) where applied_seq < high_water_seq - 1;

-- Trouble first: the order of campaign.Campaign.Rank without what verifying found.
create index campaigns_by_trouble on campaigns (cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 else 4 end as bigint), campaign_id) where head_status in ('dead', 'failed') or diverged <> '';
