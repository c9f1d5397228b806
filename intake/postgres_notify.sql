-- Wakes outboxweb when rows of outboxweb_intake are committed. Commits that notify
-- wait for each other in PostgreSQL; the lock, which is tried and never waited for,
-- lets one transaction at a time notify. What the others insert is found by polling.
create or replace function outboxweb_intake_notify() returns trigger
language plpgsql
as $$
begin
  if pg_try_advisory_xact_lock(1869967465, tg_relid::int) then
    perform pg_notify('outboxweb_intake', '');
  end if;
  return null;
end
$$;

do $$
begin
  if not exists (select from pg_trigger where tgrelid = to_regclass('outboxweb_intake') and tgname = 'outboxweb_intake_notify') then
    create trigger outboxweb_intake_notify
    after insert on outboxweb_intake
    for each statement execute function outboxweb_intake_notify();
  end if;
end
$$;
