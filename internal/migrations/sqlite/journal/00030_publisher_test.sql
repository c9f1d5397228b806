-- +goose Up

-- Whether a publisher's destination took the last test event that was sent while
-- its errors last: 1, or 0 if it refused it; null if none was sent.
alter table publisher_progress add column test_taken bigint;
