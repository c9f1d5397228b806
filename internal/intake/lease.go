package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// lease is the right to move a source's rows, until it expires.
type lease struct {
	source, owner string
	epoch         int64 // the fencing number; 0 without the lease
	expires       int64 // microseconds

	journal    string // the id of the journal
	handedOver int64  // since when another journal has had the source that an operator hands over; 0 without
}

const (
	insertSource = `
insert into intake_sources (source, place)
values ($1, $2)
on conflict (source) do nothing`

	placeSource = `
update intake_sources
set place = $2
where source = $1
returning handed_over, (select id from journal_identity)`
)

// claim takes a free lease, or extends it, and reports whether the process has it.
func (in *Intake) claim(ctx context.Context, l *lease, place string, length time.Duration) (held bool, err error) {
	err = in.core.Journal().Write(ctx, func(t *store.Tx) error {
		now := in.core.Now()
		held = false
		if _, err := t.Exec(insertSource, l.source, place); err != nil {
			return err
		}
		l.expires = now + length.Microseconds()
		var err error
		if l.epoch, err = store.SourceLeases.Take(t.Tx, l.owner, now, length.Microseconds(), `source = $5`, l.source); err == nil && l.epoch != 0 {
			held, err = t.One([]any{&l.handedOver, &l.journal}, placeSource, l.source, place)
		}
		return err
	})
	if !held || err != nil {
		l.epoch = 0
	}
	return held && err == nil, sqldb.Wrapf(err, "claim source %s", l.source)
}

// release lets another process claim the source at once.
func (in *Intake) release(ctx context.Context, l *lease) error {
	epoch := l.epoch
	if l.epoch = 0; epoch == 0 {
		return nil
	}
	return in.core.Journal().Write(ctx, func(t *store.Tx) error {
		return store.SourceLeases.Release(t.Tx, l.owner, epoch, `source = $3`, l.source)
	})
}

// lost is the refusal of a process that no longer has the lease.
func lost() error {
	return &event.Refusal{Err: event.ErrLeaseLost, Detail: "another process has taken over the source"}
}

// held returns lost unless the process has the lease, and keeps others from taking it until the
// transaction ends. It counts rows that the transaction journals.
func (l *lease) held(t *store.Tx, rows, now int64) error {
	n, err := t.Exec(countRows, l.source, l.owner, l.epoch, rows, now)
	if err == nil && n == 0 {
		err = lost()
	}
	return err
}

const countRows = `
update intake_sources
set journalled = journalled + $4,
  journalled_at = case when $4 = 0 then journalled_at else cast($5 as bigint) end
where source = $1
  and lease_owner = $2
  and lease_epoch = $3`

// seen is what the holder found in the table, or why it could not read it.
type seen struct {
	waiting int64
	oldest  time.Time // zero without rows
	failure string
	owner   owner // of another journal; none with another failure
}

const recordSeen = `
update intake_sources
set looked_at = case when $6 = '' then cast($5 as bigint) else looked_at end,
  waiting = case when $6 = '' then cast($7 as bigint) else waiting end,
  oldest_at = case when $6 = '' then cast($8 as bigint) else oldest_at end,
  error = $6,
  error_at = case when $6 = '' then null else cast($5 as bigint) end,
  owner = case when $6 = '' or $9 <> '' then $9 else owner end,
  owned_since = case when $6 = '' or $9 <> '' then cast($10 as bigint) else owned_since end,
  lease_expires_at = $4
where source = $1
  and lease_owner = $2
  and lease_epoch = $3`

// record records what the holder saw, and extends its lease to expires.
func (in *Intake) record(ctx context.Context, l *lease, s seen, expires int64) error {
	err := in.core.Journal().Write(ctx, func(t *store.Tx) error {
		n, err := t.Exec(recordSeen, l.source, l.owner, l.epoch, expires, in.core.Now(), sqldb.Storable(s.failure), s.waiting, sqldb.MicrosOrNull(s.oldest), sqldb.Storable(s.owner.journal), s.owner.since)
		if err == nil && n == 0 {
			err = lost()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record the state of source %s: %w", l.source, err)
	}
	l.expires = expires
	in.states.Forget()
	return nil
}
