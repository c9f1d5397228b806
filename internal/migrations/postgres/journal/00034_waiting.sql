-- An append to a campaign that is up to date enters one sorted index, by age, and leaves it when all is applied.
drop index campaigns_by_trouble;

-- Trouble first: the order of campaign.Campaign.Rank without what verifying found.
create index campaigns_by_trouble on campaigns ((cast(case when head_status = 'dead' then 0 when head_status = 'failed' then 1 when diverged <> '' then 2 else 4 end as bigint)), campaign_id) where head_status in ('dead', 'failed') or diverged <> '';
