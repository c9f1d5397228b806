package maintenance_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// kinds are all operator actions of this package. Repairing gaps is one transaction per
// campaign and one for the record.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.Beside() }, All: []storetest.Kind[*fixture]{
	{Action: "repair_gaps", Scene: (*fixture).Gap,
		Do: func(f *fixture, o outbox.Command) (any, error) { return f.RepairGaps(f.Ctx, o) }},
}}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}
