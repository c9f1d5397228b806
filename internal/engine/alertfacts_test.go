package engine

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestAlertFacts_haveTheSources(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`insert into intake_sources (source) values ('shop')`)
	facts, err := Wire(f.Store).alertFacts(f.Ctx)
	if err != nil || len(facts.Sources) != 1 || facts.Sources[0].Name != "shop" {
		t.Errorf("facts %+v, %v", facts.Sources, err)
	}
}
