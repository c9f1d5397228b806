-- projection: campaigns
-- tables: campaigns, participants, characters
-- on-failure: block

-- The campaigns of a tabletop game server, with the people in them and the
-- characters they play.
--
-- The three tables are one projection because they are kept true together: a
-- campaign's row counts its participants and characters, and whatever happens
-- to either is a change of the campaign. What stands alone is a projection of
-- its own, as in sessions.sql beside this file.
--
-- Times are microseconds since 1970. Enumerations are stored in capitals,
-- whatever the event writes: collate "C" is for changing A to Z and nothing
-- else, whatever the language of the database.

-- schema
create table campaigns (
  campaign_id text primary key,
  name text not null,
  locale text not null,
  game_system text not null,
  status text not null,
  gm_mode text not null,
  intent text not null,
  access_policy text not null,
  participant_count bigint not null default 0,
  character_count bigint not null default 0,
  theme_prompt text not null,
  parent_campaign_id text,
  fork_event_seq bigint,
  origin_campaign_id text,
  created_at bigint not null,
  updated_at bigint not null,
  completed_at bigint,
  archived_at bigint
);

create table participants (
  campaign_id text not null,
  id text not null check (id <> ''),
  user_id text not null,
  display_name text not null,
  role text not null,
  controller text not null,
  campaign_access text not null,
  pronouns text not null,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (campaign_id, id)
);

-- A user has one seat in a campaign. Seats without a user may be many. An event
-- that gives a user a second seat fails here.
create unique index participants_user on participants (campaign_id, user_id) where user_id <> '';

create table characters (
  campaign_id text not null,
  id text not null check (id <> ''),
  owner_participant_id text not null,
  name text not null,
  kind text not null,
  notes text not null,
  pronouns text not null,
  aliases_json text not null,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (campaign_id, id)
);

-- ---------------------------------------------------------------- campaigns

-- A campaign begins as a draft. The name is required: an event without one
-- fails and says so. Everything else has a default.

-- on: campaign.created
insert into campaigns (
  campaign_id, name, locale, game_system, status, gm_mode, intent, access_policy,
  theme_prompt, created_at, updated_at
) values (
  :campaign_id,
  trim(:payload.name!),
  -- Two locales are offered, whatever their spelling; any other becomes the default.
  case when lower(:payload.locale collate "C") in ('pt-br', 'pt_br') then 'pt-BR' else 'en-US' end,
  upper(trim(coalesce(:payload.game_system, '')) collate "C"),
  'DRAFT',
  upper(trim(coalesce(:payload.gm_mode, 'human')) collate "C"),
  upper(trim(coalesce(:payload.intent, 'standard')) collate "C"),
  upper(trim(coalesce(:payload.access_policy, 'private')) collate "C"),
  trim(coalesce(:payload.theme_prompt, '')),
  :occurred_at,
  :occurred_at
)
on conflict (campaign_id) do update set
  name = excluded.name,
  locale = excluded.locale,
  game_system = excluded.game_system,
  status = excluded.status,
  gm_mode = excluded.gm_mode,
  intent = excluded.intent,
  access_policy = excluded.access_policy,
  theme_prompt = excluded.theme_prompt,
  created_at = excluded.created_at,
  updated_at = excluded.updated_at;

-- An update carries the fields that change; an absent one binds NULL and
-- coalesce keeps what is there. Without any field nothing happens, not even
-- to updated_at. Every expression sees the row as it was before, so the order of
-- the assignments does not matter.

-- on: campaign.updated
update campaigns set
  name = coalesce(nullif(trim(:payload.fields.name), ''), name),
  theme_prompt = coalesce(trim(:payload.fields.theme_prompt), theme_prompt),
  locale = case
    when lower(:payload.fields.locale collate "C") in ('pt-br', 'pt_br') then 'pt-BR'
    when lower(:payload.fields.locale collate "C") in ('en-us', 'en_us') then 'en-US'
    else locale
  end,
  status = coalesce(upper(trim(:payload.fields.status) collate "C"), status),
  -- The first time counts. Bringing an archived campaign back to draft forgets both.
  completed_at = case
    when upper(trim(:payload.fields.status) collate "C") = 'COMPLETED' then coalesce(completed_at, :occurred_at)
    when upper(trim(:payload.fields.status) collate "C") = 'DRAFT' and status = 'ARCHIVED' then null
    else completed_at
  end,
  archived_at = case
    when upper(trim(:payload.fields.status) collate "C") = 'ARCHIVED' then coalesce(archived_at, :occurred_at)
    when upper(trim(:payload.fields.status) collate "C") = 'DRAFT' and status = 'ARCHIVED' then null
    else archived_at
  end,
  updated_at = :occurred_at
where campaign_id = :campaign_id
  and coalesce(:payload.fields, '{}') <> '{}';

-- A fork says where it comes from, which is no change of the campaign itself:
-- updated_at stays. The events copied from the parent follow with the times
-- they had there, so that a fork may be older than it was created.

-- on: campaign.forked
update campaigns set
  parent_campaign_id = :payload.parent_campaign_id,
  fork_event_seq = :payload.fork_event_seq,
  origin_campaign_id = :payload.origin_campaign_id
where campaign_id = :campaign_id;

-- ------------------------------------------------------------- participants

-- Statements run in order. The count comes first, since it has to know whether
-- this participant is there already: joining again replaces the seat.

-- on: participant.joined
update campaigns set
  participant_count = participant_count + case
    when exists (select 1 from participants p where p.campaign_id = :campaign_id and p.id = :entity_id) then 0
    else 1
  end,
  updated_at = :occurred_at
where campaign_id = :campaign_id;

insert into participants (
  campaign_id, id, user_id, display_name, role, controller, campaign_access, pronouns, created_at, updated_at
) values (
  :campaign_id,
  :entity_id,
  trim(coalesce(:payload.user_id, '')),
  trim(:payload.name!),
  upper(trim(coalesce(:payload.role, 'player')) collate "C"),
  upper(trim(coalesce(:payload.controller, 'human')) collate "C"),
  upper(trim(coalesce(:payload.campaign_access, 'member')) collate "C"),
  trim(coalesce(:payload.pronouns, '')),
  :occurred_at,
  :occurred_at
)
on conflict (campaign_id, id) do update set
  user_id = excluded.user_id,
  display_name = excluded.display_name,
  role = excluded.role,
  controller = excluded.controller,
  campaign_access = excluded.campaign_access,
  pronouns = excluded.pronouns,
  created_at = excluded.created_at,
  updated_at = excluded.updated_at;

-- on: participant.updated
update participants set
  user_id = coalesce(trim(:payload.fields.user_id), user_id),
  display_name = coalesce(nullif(trim(:payload.fields.name), ''), display_name),
  role = coalesce(upper(trim(:payload.fields.role) collate "C"), role),
  controller = coalesce(upper(trim(:payload.fields.controller) collate "C"), controller),
  campaign_access = coalesce(upper(trim(:payload.fields.campaign_access) collate "C"), campaign_access),
  pronouns = coalesce(trim(:payload.fields.pronouns), pronouns),
  updated_at = :occurred_at
where campaign_id = :campaign_id
  and id = :entity_id
  and coalesce(:payload.fields, '{}') <> '{}';

-- A change of any field, also of one that is not stored here, such as the
-- avatar, is a change of the campaign.

-- on: participant.updated, character.updated
update campaigns set updated_at = :occurred_at
where campaign_id = :campaign_id
  and coalesce(:payload.fields, '{}') <> '{}';

-- A seat gets its user, or another one.

-- on: participant.bound, participant.seat_reassigned
update participants set user_id = trim(:payload.user_id!), updated_at = :occurred_at
where campaign_id = :campaign_id
  and id = :entity_id;

-- on: participant.unbound
update participants set user_id = '', updated_at = :occurred_at
where campaign_id = :campaign_id
  and id = :entity_id;

-- on: participant.bound, participant.seat_reassigned, participant.unbound
update campaigns set updated_at = :occurred_at
where campaign_id = :campaign_id;

-- on: participant.left
update campaigns set
  participant_count = participant_count - case
    when exists (select 1 from participants p where p.campaign_id = :campaign_id and p.id = :entity_id) then 1
    else 0
  end,
  updated_at = :occurred_at
where campaign_id = :campaign_id;

delete from participants
where campaign_id = :campaign_id
  and id = :entity_id;

-- --------------------------------------------------------------- characters

-- on: character.created
update campaigns set
  character_count = character_count + case
    when exists (select 1 from characters c where c.campaign_id = :campaign_id and c.id = :entity_id) then 0
    else 1
  end,
  updated_at = :occurred_at
where campaign_id = :campaign_id;

insert into characters (
  campaign_id, id, owner_participant_id, name, kind, notes, pronouns, aliases_json, created_at, updated_at
) values (
  :campaign_id,
  :entity_id,
  -- Whoever creates a character owns it, unless the event names somebody else.
  coalesce(nullif(trim(:payload.owner_participant_id), ''), :actor_id),
  trim(:payload.name!),
  upper(trim(coalesce(:payload.kind, 'pc')) collate "C"),
  trim(coalesce(:payload.notes, '')),
  trim(coalesce(:payload.pronouns, '')),
  -- An array binds as its JSON text.
  coalesce(:payload.aliases, '[]'),
  :occurred_at,
  :occurred_at
)
on conflict (campaign_id, id) do update set
  owner_participant_id = excluded.owner_participant_id,
  name = excluded.name,
  kind = excluded.kind,
  notes = excluded.notes,
  pronouns = excluded.pronouns,
  aliases_json = excluded.aliases_json,
  created_at = excluded.created_at,
  updated_at = excluded.updated_at;

-- on: character.updated
update characters set
  owner_participant_id = coalesce(trim(:payload.fields.owner_participant_id), owner_participant_id),
  name = coalesce(nullif(trim(:payload.fields.name), ''), name),
  kind = coalesce(upper(trim(:payload.fields.kind) collate "C"), kind),
  notes = coalesce(trim(:payload.fields.notes), notes),
  pronouns = coalesce(trim(:payload.fields.pronouns), pronouns),
  -- Here the event writes the array as a string that holds JSON.
  aliases_json = coalesce(nullif(trim(:payload.fields.aliases), ''), aliases_json),
  updated_at = :occurred_at
where campaign_id = :campaign_id
  and id = :entity_id
  and coalesce(:payload.fields, '{}') <> '{}';

-- on: character.deleted
update campaigns set
  character_count = character_count - case
    when exists (select 1 from characters c where c.campaign_id = :campaign_id and c.id = :entity_id) then 1
    else 0
  end,
  updated_at = :occurred_at
where campaign_id = :campaign_id;

delete from characters
where campaign_id = :campaign_id
  and id = :entity_id;
