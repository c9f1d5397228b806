-- +goose Up

-- When a projection that is set aside was last told an event; null where that
-- was before this column, or never. Of one that follows, the watermark tells.
alter table projection_cursors add column applied_at bigint;
