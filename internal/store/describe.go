package store

import (
	"context"
	"fmt"
	"os"

	"outboxweb/internal/outbox"
)

// Databases describes both databases as they are now.
func (s *Store) Databases(ctx context.Context) ([]outbox.DatabaseInfo, error) {
	steps, err := s.Migrations(ctx)
	if err != nil {
		return nil, err
	}
	var all []outbox.DatabaseInfo
	for _, d := range []*database{s.journal, s.projections} {
		info, err := d.describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe the %s database: %w", d.name, err)
		}
		for _, m := range steps {
			if m.Database == d.name {
				info.Migrations = append(info.Migrations, outbox.Migration{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt})
			}
		}
		all = append(all, info)
	}
	return all, nil
}

// described is something a database tells of itself: its name for people, and
// the query for its value.
type described struct{ name, query string }

func (d *database) describe(ctx context.Context) (outbox.DatabaseInfo, error) {
	info := outbox.DatabaseInfo{Name: d.name, Place: d.place, Settings: []outbox.Setting{}}
	err := d.read(ctx, func(t *tx) error {
		var version string
		if _, err := t.one([]any{&version}, d.dialect.version); err != nil {
			return err
		}
		info.Engine = d.dialect.name + " " + version
		if _, err := t.one([]any{&info.Bytes}, d.dialect.size); err != nil {
			return err
		}
		for _, q := range d.dialect.settings {
			s := outbox.Setting{Name: q.name}
			if _, err := t.one([]any{&s.Value}, q.query); err != nil {
				return err
			}
			info.Settings = append(info.Settings, s)
		}
		return nil
	})
	if log, missing := os.Stat(d.place + "-wal"); missing == nil && d.url == nil {
		info.Bytes += log.Size()
	}
	return info, err
}
