package sqldb

import (
	"context"
	"os"

	"github.com/outboxweb/outboxweb/internal/database"
)

// described is one property of a database: its display name and the query for its value.
type described struct{ name, query string }

// Describe returns the database's kind, size and settings.
func (d *DB) Describe(ctx context.Context) (database.DatabaseInfo, error) {
	info := database.DatabaseInfo{Name: d.Name, Place: d.place, Settings: []database.Setting{}}
	err := d.Read(ctx, func(t *Tx) error {
		var version string
		if _, err := t.One([]any{&version}, d.Dialect.version); err != nil {
			return err
		}
		info.Engine = d.Dialect.name + " " + version
		if _, err := t.One([]any{&info.Bytes}, d.Dialect.size); err != nil {
			return err
		}
		for _, q := range d.Dialect.settings {
			s := database.Setting{Name: q.name}
			if _, err := t.One([]any{&s.Value}, q.query); err != nil {
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
