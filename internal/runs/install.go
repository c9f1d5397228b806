package runs

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Install creates missing tables of the set's projections and prepares every statement once. A
// definition that does not fit the database is an outbox.ErrSetup refusal that names file and line.
func Install(ctx context.Context, s *store.Store, set *projection.Set) error {
	loaded := set.Projections()
	all := make([]readmodel.Projection, len(loaded))
	for i, p := range loaded {
		all[i] = readmodel.Projection{Name: p.Name, Version: p.Version, Tables: p.Tables}
		for _, statement := range p.SchemaStatements {
			all[i].Schema = append(all[i].Schema, statement.SQL)
		}
	}
	if err := s.ReadModel().Install(ctx, all); err != nil {
		return refuseSchema(set, err)
	}
	return projection.CheckPrepared(ctx, set, func(query string) error { return s.ReadModel().CheckStatement(ctx, query) })
}
