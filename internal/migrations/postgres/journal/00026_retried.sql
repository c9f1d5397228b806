-- +goose Up

-- Rows that are being retried right now are found by outbox_tried.
