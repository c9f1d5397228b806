-- projection: sessions
-- tables: sessions

-- The sessions played in each campaign. They change nothing in the campaign's
-- own row, so they are a projection of their own: it can be rebuilt alone.
--
-- Session events name their session in the payload, and in the envelope as the
-- entity where the payload does not.

-- schema
create table sessions (
  campaign_id text not null,
  id text not null check (id <> ''),
  name text not null,
  status text not null,
  started_at bigint not null,
  updated_at bigint not null,
  ended_at bigint,
  primary key (campaign_id, id)
);

-- on: session.started
insert into sessions (campaign_id, id, name, status, started_at, updated_at)
values (
  :campaign_id,
  coalesce(nullif(trim(:payload.session_id), ''), :entity_id),
  trim(coalesce(:payload.session_name, '')),
  'ACTIVE',
  :occurred_at,
  :occurred_at
)
on conflict (campaign_id, id) do update set
  name = excluded.name,
  status = excluded.status,
  started_at = excluded.started_at,
  updated_at = excluded.updated_at,
  ended_at = null;

-- Ending a session that has ended already changes nothing.

-- on: session.ended
update sessions set status = 'ENDED', ended_at = :occurred_at, updated_at = :occurred_at
where campaign_id = :campaign_id
  and id = coalesce(nullif(trim(:payload.session_id), ''), :entity_id)
  and status = 'ACTIVE';
