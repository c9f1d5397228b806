package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Migrations lists the steps of both databases, in order.
func (s *Store) Migrations(ctx context.Context) ([]sqldb.Migration, error) {
	var all []sqldb.Migration
	for _, d := range s.both() {
		steps, err := d.Migrations(ctx)
		if err != nil {
			return nil, fmt.Errorf("list migrations: %w", err)
		}
		all = append(all, steps...)
	}
	return all, nil
}

// Ready returns one sentence per reason why the store cannot serve, and none when it can.
func (s *Store) Ready(ctx context.Context) []string {
	var reasons []string
	for _, d := range s.both() {
		have, want, err := d.Version(ctx)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("the %s database cannot be read", d.Name))
		case have != want:
			reasons = append(reasons, fmt.Sprintf("the %s database has version %d and this program needs %d", d.Name, have, want))
		}
	}
	for _, f := range s.faults() {
		if f.Stops {
			reasons = append(reasons, f.Headline())
		}
	}
	if stalled := s.stalled.Load(); stalled != nil && *stalled != "" {
		reasons = append(reasons, "the worker is stalled: "+*stalled)
	}
	if len(reasons) > 0 {
		return reasons
	}
	sum, err := s.Summary(ctx)
	switch {
	case errors.Is(err, event.ErrDamaged): // damage blocks only the affected campaigns
	case err != nil:
		reasons = append(reasons, "the databases cannot be read")
	case sum.WrongJournal() || sum.OtherJournal && s.wrong.Load():
		s.wrong.Store(true)
		reasons = append(reasons, sum.OtherJournalText())
	}
	if err == nil && !sum.OtherJournal {
		s.wrong.Store(false)
	}
	return reasons
}

// InPlace returns an event.ErrBusy when a database is not at its path any more, so that nothing can
// be written for good.
func (s *Store) InPlace() error {
	for _, d := range s.both() {
		if err := d.InPlace(); err != nil {
			return err
		}
	}
	return nil
}

// LogBytes are the sizes of the logs of SQLite databases, by database.
func (s *Store) LogBytes() map[string]int64 {
	sizes := map[string]int64{}
	for _, d := range s.both() {
		if size := d.LogBytes(); size > 0 {
			sizes[d.Name] = size
		}
	}
	return sizes
}

// SetStalled sets the reason why the worker of this process applies nothing; empty when it
// works.
func (s *Store) SetStalled(reason string) { s.stalled.Store(&reason) }

// SetHere sets the instance that this process is or, until its first heartbeat, will be.
func (s *Store) SetHere(instance string) { s.instance.Store(&instance) }

func (s *Store) here() string {
	if id := s.instance.Load(); id != nil {
		return *id
	}
	return ""
}

// starting reports whether this process is not among the instances yet and, as far as is known, about
// to be.
func (s *Store) starting(all []campaign.InstanceState) bool {
	here, stalled := s.here(), s.stalled.Load()
	return here != "" && (stalled == nil || *stalled == "") && !slices.ContainsFunc(all, func(i campaign.InstanceState) bool { return i.ID == here })
}

// Probe reports why the two databases cannot be used for applying at all; nil when a campaign's
// failure is its own.
func (s *Store) Probe(ctx context.Context) error {
	for _, d := range s.both() {
		table := "campaigns"
		if d == s.readmodel.DB {
			table = "projection_watermarks"
		}
		err := d.Write(ctx, func(t *sqldb.Tx) error {
			_, err := t.Exec("delete from " + table + " where 1 = 0") // reads no page that may be damaged
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// faults are what is wrong with the two databases, the gravest first.
func (s *Store) faults() []database.DatabaseFault {
	all := []database.DatabaseFault{}
	for _, d := range s.both() {
		all = append(all, d.Faults()...)
	}
	database.SortFaults(all)
	return all
}
