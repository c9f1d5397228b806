package store

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Databases describes the current state of both databases.
func (s *Store) Databases(ctx context.Context) ([]database.DatabaseInfo, error) {
	steps, err := s.Migrations(ctx)
	if err != nil {
		return nil, err
	}
	var all []database.DatabaseInfo
	for _, d := range s.both() {
		info, err := d.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("describe the %s database: %w", d.Name, err)
		}
		for _, m := range steps {
			if m.Database == d.Name {
				info.Migrations = append(info.Migrations, database.Migration{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt})
			}
		}
		all = append(all, info)
	}
	return all, nil
}

// Plan lists, in order, the migrations that Open would apply to missing or older databases. It
// changes nothing.
func Plan(ctx context.Context, o Options) ([]sqldb.Migration, error) {
	journal, projections, err := o.locations()
	if err != nil {
		return nil, err
	}
	steps := []sqldb.Migration{}
	for _, part := range []struct {
		name string
		at   sqldb.Location
	}{{"journal", journal}, {"projections", projections}} {
		lacking, err := part.at.Plan(ctx, part.name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, lacking...)
	}
	return steps, nil
}
