package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/store"
)

// overdrawn is a kind of lease or wait outside campaigns: a query that finds one ending after
// $1, and the statement that shortens all of those to $2.
type overdrawn struct {
	query, shorten string
	longest        time.Duration // longest allowed time from now
}

func (q *Queue) allOverdrawn() []overdrawn {
	return []overdrawn{
		{`select topic from publisher_progress where lease_owner <> '' and lease_expires_at > $1 limit 1`,
			`update publisher_progress set lease_expires_at = $2 where lease_owner <> '' and lease_expires_at > $1`, q.Lease()},
		{`select kind from runs where finished_at is null and lease_owner <> '' and lease_expires_at > $1 limit 1`,
			`update runs set lease_expires_at = $2 where finished_at is null and lease_owner <> '' and lease_expires_at > $1`, q.Lease()},
		// retry_at minus last_error_at includes the publisher's settings and the wait that its
		// destination asked for. The lease holder reads the row again when acts has changed.
		{`select topic from publisher_progress where retry_at is not null and last_error_at > $1 limit 1`,
			`update publisher_progress set retry_at = $2 + (retry_at - last_error_at), last_error_at = $2, acts = acts + 1 where retry_at is not null and last_error_at > $1`, 0},
	}
}

// ShortenWaits is shorten for publishers and runs.
func (q *Queue) ShortenWaits(ctx context.Context) error {
	now := q.Now()
	for _, of := range q.allOverdrawn() {
		ends := now + of.longest.Microseconds()
		found, err := store.Reading(ctx, q.Store, "", func(t *store.Tx) (bool, error) { return t.One([]any{new(string)}, of.query, ends+store.ClockTolerance) })
		if err == nil && found {
			err = q.Journal().Write(ctx, func(t *store.Tx) error {
				_, err := t.Exec(of.shorten, ends+store.ClockTolerance, ends)
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("shorten leases and waits: %w", err)
		}
	}
	return nil
}
