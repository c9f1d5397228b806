package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"outboxweb/internal/outbox"
)

// Load reads the events of each claim, in one snapshot, together with the
// event types that are only journalled. Events are in the order of seq; a
// missing one leaves a hole for the caller to notice.
func (s *Store) Load(ctx context.Context, claims []Claim) (events [][]outbox.Event, auditOnly map[string]bool, err error) {
	events = make([][]outbox.Event, len(claims))
	err = s.journal.read(ctx, func(t *tx) error {
		if auditOnly, err = t.auditOnly(); err != nil {
			return err
		}
		for i, c := range claims {
			if events[i], err = t.events(c.CampaignID, c.First, c.Last); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("load events: %w", err)
	}
	return events, auditOnly, nil
}

func (t *tx) auditOnly() (map[string]bool, error) {
	types, err := t.eventTypes()
	if err != nil {
		return nil, err
	}
	only := make(map[string]bool)
	for name, intent := range types {
		if intent == outbox.IntentAuditOnly {
			only[name] = true
		}
	}
	return only, nil
}

// Watermark is how far the projections of a campaign are.
type Watermark struct {
	AppliedSeq  int64
	AppliedHash string // chain hash of the event at AppliedSeq; empty at 0
	FenceEpoch  int64  // the highest epoch that has applied here
	SetAside    int64  // projections that do not follow any more
}

// ApplyTx is a transaction on the projections database through which events
// are applied. After a fatal error every further call fails, and the
// transaction is rolled back. It belongs to one goroutine.
type ApplyTx struct {
	t       *tx
	now     int64
	reached map[string]int64 // watermarks to announce after the commit
}

// Apply runs fn in one transaction on the projections database and commits
// when fn returns nil. ctx bounds the wait for the lock only.
func (s *Store) Apply(ctx context.Context, fn func(*ApplyTx) error) error {
	a := &ApplyTx{now: s.now(), reached: make(map[string]int64)}
	err := s.projections.write(ctx, func(t *tx) error {
		a.t = t
		return fn(a)
	})
	if err != nil {
		return err
	}
	s.applied.announce(a.reached)
	return nil
}

var errRehearsed = errors.New("rehearsed")

// Rehearse is Apply that is always rolled back.
func (s *Store) Rehearse(ctx context.Context, fn func(*ApplyTx) error) error {
	err := s.projections.write(ctx, func(t *tx) error {
		if err := fn(&ApplyTx{t: t, now: s.now(), reached: make(map[string]int64)}); err != nil {
			return err
		}
		return errRehearsed
	})
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

const selectWatermark = `
select applied_seq, applied_hash, fence_epoch, set_aside
from projection_watermarks
where campaign_id = $1`

// Watermark reads a campaign's watermark, locked for this transaction,
// starting one at 0 if there is none.
func (a *ApplyTx) Watermark(campaign string) (Watermark, error) {
	w, found, err := a.t.watermark(campaign)
	if err == nil && !found {
		_, err = a.t.exec(`insert into projection_watermarks (campaign_id, updated_at) values ($1, $2)`, campaign, a.now)
	}
	return w, err
}

func (t *tx) watermark(campaign string) (Watermark, bool, error) {
	var w Watermark
	found, err := t.one([]any{&w.AppliedSeq, &w.AppliedHash, &w.FenceEpoch, &w.SetAside}, selectWatermark+t.database.dialect.forUpdate, campaign)
	if err != nil {
		return w, false, fmt.Errorf("read the watermark of campaign %q: %w", campaign, err)
	}
	return w, found, nil
}

// Fence raises the campaign's fence to epoch, so that whoever holds a lower
// one can no longer change its projections. A higher fence is outbox.ErrLeaseLost.
func (a *ApplyTx) Fence(campaign string, epoch int64) error {
	n, err := a.t.exec(`update projection_watermarks set fence_epoch = $2 where campaign_id = $1 and fence_epoch <= $2`, campaign, epoch)
	if err == nil && n == 0 {
		err = outbox.ErrLeaseLost
	}
	return err
}

const advanceWatermark = `
update projection_watermarks
set applied_seq = $4, applied_hash = $5, fence_epoch = $2, updated_at = $6
where campaign_id = $1
  and fence_epoch <= $2
  and applied_seq = $3`

// Advance moves the watermark from seq from to seq to, whose chain hash is
// hash, under epoch. When the watermark is elsewhere or the fence is higher it
// changes nothing and returns outbox.ErrLeaseLost.
func (a *ApplyTx) Advance(campaign string, epoch, from, to int64, hash string) error {
	n, err := a.t.exec(advanceWatermark, campaign, epoch, from, to, hash, a.now)
	if err != nil {
		return err
	}
	if n == 0 {
		return outbox.ErrLeaseLost
	}
	a.reached[campaign] = to
	return nil
}

// Exec runs one statement of a projection.
func (a *ApplyTx) Exec(ctx context.Context, query string, args []any) error {
	_, err := a.t.execContext(ctx, query, args...)
	return err
}

// Savepoint marks where RollbackTo returns to; Release forgets the mark. They
// nest.
func (a *ApplyTx) Savepoint() error {
	_, err := a.t.exec("savepoint campaign")
	return err
}

// RollbackTo undoes everything since the innermost Savepoint, which stays. It
// fails when the statement that failed took the transaction with it.
func (a *ApplyTx) RollbackTo() error {
	_, err := a.t.exec("rollback to savepoint campaign")
	if err != nil && a.t.err == nil {
		a.t.err = err
	}
	return err
}

// Release forgets the innermost savepoint and keeps what was done since.
func (a *ApplyTx) Release() error {
	_, err := a.t.exec("release savepoint campaign")
	return err
}

// Lost reports whether the transaction can no longer be used.
func (a *ApplyTx) Lost() bool { return a.t.err != nil }

// SetAside lists the projections that do not follow the campaign any more.
func (a *ApplyTx) SetAside(campaign string) (map[string]bool, error) {
	cursors, err := a.t.setAside(campaign)
	names := make(map[string]bool, len(cursors))
	for name := range cursors {
		names[name] = true
	}
	return names, err
}

// SetAside lists the projections that do not follow the campaign any more, each
// with the seq it stands at.
func (s *Store) SetAside(ctx context.Context, campaign string) (map[string]int64, error) {
	var cursors map[string]int64
	err := s.projections.read(ctx, func(t *tx) (err error) {
		cursors, err = t.setAside(campaign)
		return err
	})
	return cursors, err
}

func (t *tx) setAside(campaign string) (map[string]int64, error) {
	cursors := make(map[string]int64)
	err := t.each(func(rows *sql.Rows) error {
		var name string
		var seq int64
		err := rows.Scan(&name, &seq)
		cursors[name] = seq
		return err
	}, `select projection, applied_seq from projection_cursors where campaign_id = $1 and state = 'quarantined'`, campaign)
	if err != nil {
		return nil, fmt.Errorf("read what is set aside for campaign %q: %w", campaign, err)
	}
	return cursors, nil
}

const (
	insertCursor = `
insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at)
values ($1, $2, $3, 'quarantined', $4)
on conflict (campaign_id, projection) do update
set applied_seq = excluded.applied_seq, state = excluded.state, updated_at = excluded.updated_at`

	insertFailure = `
insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $8)
on conflict do nothing`
)

// Quarantine sets a projection aside for the campaign of e, at the seq before
// e, and records an open failure. The other projections go on.
func (a *ApplyTx) Quarantine(projection string, e *outbox.Event, f Failure, attempts int) error {
	if _, err := a.t.exec(insertCursor, e.CampaignID, projection, e.Seq-1, a.now); err != nil {
		return fmt.Errorf("set projection %q aside: %w", projection, err)
	}
	if _, err := a.t.exec(insertFailure, e.CampaignID, projection, e.Seq, e.EventType, f.Fingerprint, clip(f.Message, errorLimit), attempts, a.now); err != nil {
		return fmt.Errorf("record the failure of projection %q: %w", projection, err)
	}
	_, err := a.t.exec(`update projection_watermarks set set_aside = set_aside + 1 where campaign_id = $1`, e.CampaignID)
	return err
}

// Watermarks reads the watermarks of several campaigns, in one snapshot.
// Campaigns without one are left out.
func (s *Store) Watermarks(ctx context.Context, campaigns []string) (map[string]Watermark, error) {
	marks := make(map[string]Watermark, len(campaigns))
	err := s.projections.read(ctx, func(t *tx) error {
		for _, id := range campaigns {
			w, found, err := t.watermark(id)
			if err != nil {
				return err
			}
			if found {
				marks[id] = w
			}
		}
		return nil
	})
	return marks, err
}
