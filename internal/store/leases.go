package store

import (
	"context"
	"errors"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// The leases that features take whose rows have no rules of their own.
var (
	SourceLeases = sqldb.Leases{Table: "intake_sources", Key: "source"}
	AlertLease   = sqldb.Leases{Table: "alert_evaluator", Key: "id"}
)

// leases are all those of the journal.
var leases = []sqldb.Leases{
	{Table: "campaigns", Key: "campaign_id", Due: true},
	{Table: "publisher_progress", Key: "topic, publisher"},
	{Table: "runs", Key: "id"},
	SourceLeases, AlertLease,
}

// EndLeases expires the leases of a process known to be gone, and of the runs it worked on; an
// empty owner means all. If it is still alive, its epochs prevent any further change.
func (s *Store) EndLeases(ctx context.Context, owner string) (err error) {
	for _, l := range leases {
		err = errors.Join(err, s.journal.Write(ctx, func(t *Tx) error { return l.End(t.Tx, owner, s.Now()) }))
	}
	return sqldb.Wrapf(err, "end leases")
}
