-- projection: parcels
-- tables: parcels

-- schema
create table parcels (campaign_id text primary key, grams bigint not null);

-- on: order.placed
insert into parcels (campaign_id, grams)
values (:campaign_id, cast(:payload.quantity! as bigint) * case :payload.product!
  when 'tea' then 100
  when 'coffee' then 250
end);
