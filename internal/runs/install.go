package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Install creates missing tables of the set's projections and prepares every statement once. A
// definition that does not fit the database is an event.ErrSetup refusal that names file and line.
func Install(ctx context.Context, s *store.Store, set *projection.Set) error {
	if err := s.ReadModel().Install(ctx, definitions(set)); err != nil {
		return refuseSchema(set, err)
	}
	return projection.CheckPrepared(ctx, set, func(query string) error { return s.ReadModel().CheckStatement(ctx, query) })
}

func definitions(set *projection.Set) []readmodel.Projection {
	loaded := set.Projections()
	all := make([]readmodel.Projection, len(loaded))
	for i, p := range loaded {
		all[i] = readmodel.Projection{Name: p.Name, Version: p.Version, Tables: p.Tables, Drawn: p.Drawn()}
		for _, statement := range p.SchemaStatements {
			all[i].Schema = append(all[i].Schema, statement.SQL)
		}
	}
	return all
}

// restoreTables makes tables of read models again that were dropped while the server runs, and starts
// what fills them.
func (w *Worker) restoreTables(ctx context.Context) (bool, error) {
	model := w.Runs.core.ReadModel()
	restored, err := model.Restore(ctx, definitions(w.Set))
	if len(restored) == 0 {
		if err == nil {
			model.ClearFault(database.FaultTable)
		}
		return false, err
	}
	then := "Its projection's tables are made again, and a replay fills them."
	if err != nil {
		then = "Making its projection's tables again failed, and is retried; the log says why."
	}
	model.SetFault(database.FaultTable, fmt.Sprintf("A table of a read model was missing: %s. %s", strings.Join(restored, ", "), then))
	w.Logger.Error("a table of a read model was missing", "tables", restored, "error", err)
	return false, errors.Join(err, w.Runs.startOwed(ctx))
}
