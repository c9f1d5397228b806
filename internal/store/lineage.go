package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// lineage is what this process remembers of the journal's end. After a fail-over the server may lack
// commits that the process has seen; whatever it keeps by position, seq or epoch is then void.
type lineage struct {
	number    atomic.Int64 // see Lineage
	comparing sync.Mutex   // held while a connection's journal is compared

	mu   sync.Mutex
	last int64                // the highest position seen; 0 when none was
	at   int64                // when events were seen last, in microseconds
	seen [lineageSpan]sighted // the events at the positions up to last, by position modulo lineageSpan
}

// lineageSpan is how many positions are compared. Appends that draw positions at the same time commit
// in another order, so an event may be lost while one at a higher position is not.
const lineageSpan = 1024

type sighted struct {
	position int64
	hash     [64]byte // chain hash
}

// Lineage is a number that changes when the journal turns out to be an earlier one: what was read or
// claimed under another number does not count any more. It is compared after use of the database,
// which notices the change first.
func (s *Store) Lineage() int64 { return s.lineage.number.Load() }

// see remembers events that were read or appended, committed, under a lineage.
func (l *lineage) see(under, now int64, events []event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if under != l.number.Load() || len(events) == 0 {
		return
	}
	l.at = now
	for i := range events {
		e := &events[i]
		one := &l.seen[e.Position%lineageSpan]
		if e.Position > l.last-lineageSpan && len(e.ChainHash) == len(one.hash) {
			one.position, l.last = e.Position, max(l.last, e.Position)
			copy(one.hash[:], e.ChainHash)
		}
	}
}

// remembered are the hashes by position, the last position, and when events were last seen.
func (l *lineage) remembered() (hashes map[int64]string, last, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hashes = make(map[int64]string)
	for _, one := range l.seen {
		if one.position > max(0, l.last-lineageSpan) {
			hashes[one.position] = string(one.hash[:])
		}
	}
	return hashes, l.last, l.at
}

// turn forgets everything and changes the number.
func (l *lineage) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number.Add(1)
	l.last, l.seen = 0, [lineageSpan]sighted{}
}

// OnWentBack registers a function that is called when the journal turned out to be an earlier one, and
// adds what it knows. What it returns is called once that is recorded. Neither may use the store. It
// must not be called once the store is in use.
func (s *Store) OnWentBack(tell func(*campaign.WentBack) (recorded func())) {
	s.onWentBack = append(s.onWentBack, tell)
}

const selectChain = `
select position, chain_hash
from events
where position between $1 and $2
order by position`

// compareJournal compares what the process remembers with the journal that a new connection leads to,
// before it is used. A journal that lacks some of it went back.
func (s *Store) compareJournal(within sqldb.Within) error {
	l := &s.lineage
	l.comparing.Lock()
	defer l.comparing.Unlock()
	hashes, last, at := l.remembered()
	if len(hashes) == 0 {
		return nil
	}
	err := within(sqldb.BeginRead, func(t *sqldb.Tx) error {
		return t.Each(func(row sqldb.Row) error {
			var position int64
			var hash string
			err := row.Scan(&position, &hash)
			if hashes[position] == hash {
				delete(hashes, position)
			}
			return err
		}, selectChain, max(0, last-lineageSpan), last)
	})
	if err != nil || len(hashes) == 0 {
		return err
	}
	w := campaign.WentBack{Remembered: last, Gone: last, Publishers: []campaign.LostDelivery{}}
	for position := range hashes {
		w.Gone = min(w.Gone, position)
	}
	var recorded []func()
	for _, tell := range s.onWentBack {
		recorded = append(recorded, tell(&w))
	}
	if err := within(sqldb.BeginAppendAlone, func(t *sqldb.Tx) error { return s.recordWentBack(&Tx{t}, &w, at) }); err != nil {
		return err
	}
	l.turn()
	s.fits.Store(false)
	s.journal.ClearFault(database.FaultWentBack) // an earlier time
	s.journal.SetFault(database.FaultWentBack, w.Says())
	for _, then := range recorded {
		then()
	}
	s.Changed()
	s.WakeUp()
	return nil
}

// recordWentBack makes sure that nothing of the lost time can be taken for what follows: leases are
// void, and positions are not used again. at is when the journal was last known to be the old one.
func (s *Store) recordWentBack(t *Tx, w *campaign.WentBack, at int64) (err error) {
	now := s.Now()
	if w.Head, err = t.HeadPosition(); err != nil || s.options.ReadOnly {
		return err
	}
	// Epochs of the lost time would be given out again, to the same owners.
	for _, l := range leases {
		if err := l.Void(t.Tx, now, at); err != nil {
			return fmt.Errorf("end the leases of a journal that went back: %w", err)
		}
	}
	if _, err := t.Exec(voidClaims, now, at); err != nil {
		return fmt.Errorf("end the claims of a journal that went back: %w", err)
	}
	if _, err := t.Exec(passPosition, w.Remembered); err != nil {
		return fmt.Errorf("pass the positions of a journal that went back: %w", err)
	}
	return t.Record(&Change{Command: operator.ByItself(""), Action: operator.ActionJournalWentBack, Target: operator.JournalTarget(), After: w}, nil, now)
}

// passPosition lets positions begin above one. Receivers tell events apart by them.
const passPosition = `
select setval(s.name, greatest($1, coalesce(pg_sequence_last_value(s.name), 1)))
from (select cast(pg_get_serial_sequence('events', 'position') as regclass) as name) as s`

// voidClaims gives rows that are being applied the epoch of their campaigns.
const voidClaims = `
update projection_apply_outbox
set claim_epoch = $1
where status = 'processing'
  and claim_epoch < $2
  and campaign_id in (
    select campaign_id
    from campaigns
    where processing > 0
      and lease_epoch = $1)`

const selectWentBack = `
select at, after
from audit_log
where target = $1
  and action = $2
  and at > $3
order by id desc
limit 1`

// addWentBack adds the fault that another process recorded, or this one before it was started again.
func (t *Tx) addWentBack(sum *campaign.Summary, now int64) error {
	known := func(f database.DatabaseFault) bool {
		return f.Kind == database.FaultWentBack && f.Database == "journal"
	}
	if t.Dialect().OneWriter || slices.ContainsFunc(sum.Faults, known) {
		return nil
	}
	var at time.Time
	var w campaign.WentBack
	found, err := t.One([]any{sqldb.ScanTime(&at), sqldb.ScanJSON(&w)}, selectWentBack, operator.JournalTarget(), operator.ActionJournalWentBack, now-database.FaultTold.Microseconds())
	if !found || err != nil {
		return err
	}
	sum.Faults = append(sum.Faults, database.NewDatabaseFault("journal", database.FaultWentBack, at, w.Says()))
	database.SortFaults(sum.Faults)
	return nil
}

// errWentBack is the refusal of a call that waited for an event while the journal went back.
func errWentBack(campaign string, seq int64) error {
	return &event.Refusal{Err: event.ErrNotYet, Detail: fmt.Sprintf("the journal went back during this call: event %d of campaign %q may be lost, or may be another one now; read it, and append it again if it is missing", seq, campaign)}
}

// strangeProbes is how many watermarks at either end of the table are compared with the
// journal.
const strangeProbes = 3

var probedMarks = sqldb.BothWays(`
select campaign_id, applied_seq, applied_hash
from projection_watermarks
where campaign_id {>} $1
order by campaign_id{desc}
limit $2`)

// foreignProjections reports whether the projections belong to another journal, judged by the
// first and last campaigns: the journal has the last applied event of none of them. It is used
// until a worker has compared every campaign.
func (s *Store) foreignProjections(ctx context.Context) (bool, error) {
	type mark struct {
		id, hash string
		seq      int64
	}
	var marks []mark
	err := s.readmodel.Read(ctx, func(t *sqldb.Tx) error {
		var b sqldb.Batch
		note := func(row sqldb.Row) error {
			var m mark
			err := row.Scan(&m.id, &m.seq, &m.hash)
			if m.seq > 0 {
				marks = append(marks, m)
			}
			return err
		}
		b.Each(note, probedMarks.Up, "", strangeProbes)
		b.Each(note, probedMarks.Down, sqldb.BeyondTexts, strangeProbes)
		return t.RunAll(&b)
	})
	if err != nil || len(marks) == 0 {
		return false, err
	}
	fits := false
	err = s.journal.Read(ctx, func(t *Tx) error {
		for _, m := range marks {
			var hash string
			if _, err := t.One([]any{&hash}, SelectChainHash, m.id, m.seq); err != nil {
				return err
			}
			fits = fits || hash == m.hash
		}
		return nil
	})
	return !fits, err
}
