package maintenance

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Backup writes a consistent copy of each database into dir, which must not exist or be empty.
// The projections are copied first: the copy of the journal then has every event they were
// built from, and a restore may have to insert rows but never misses events. PostgreSQL is
// copied by pg_dump, which must be installed.
func (m *Maintenance) Backup(ctx context.Context, dir string, progress func(done, total int64)) error {
	if err := sqldb.MakeBackupDir(dir); err != nil {
		return err
	}
	for i, d := range []*sqldb.DB{m.core.ReadModel().DB, m.core.Journal().DB} {
		progress(int64(i), 2)
		if err := d.BackUp(ctx, dir); err != nil {
			return fmt.Errorf("back up the %s database: %w", d.Name, err)
		}
	}
	progress(2, 2)
	return nil
}

// Restore copies a backup to the databases of o, which must not exist, or be schemas without a
// table, and then inserts rows for events applied after the projections were copied. It first
// calls arrange with the restored store, which is not in use yet, to register the hooks that
// end leases and repair, and repairs with what it returns.
func Restore(ctx context.Context, dir string, o store.Options, arrange func(*store.Store) *Maintenance) error {
	var parts []*sqldb.Restoration
	for _, p := range []struct{ name, url string }{{"journal", o.Journal}, {"projections", o.Projections}} {
		part, err := sqldb.FindBackup(ctx, dir, p.name, p.url, o.Config())
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	for _, p := range parts {
		if err := p.Run(ctx); err != nil {
			return err
		}
	}
	s, err := store.Open(ctx, o)
	if err != nil {
		return err
	}
	// The owners of the copied leases work on the original databases, not on these.
	m := arrange(s)
	if err = s.EndLeases(ctx, ""); err == nil {
		_, err = m.Reconcile(ctx)
	}
	return errors.Join(err, s.Close())
}
