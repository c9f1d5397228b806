package outboxweb_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb"
	"github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// fromService is a transaction of a service in which it has written an event.
func fromService(t *testing.T, db *sql.DB, e intake.Event) *sql.Tx {
	t.Helper()
	tx := must.Get(db.Begin()).Or(t)
	must.OK(t, intake.Append(t.Context(), tx, e))
	return tx
}

// A service's events reach the read models from its own transaction, and none of one that it rolled
// back. Config.MaxPayload is the limit for them as well.
func TestEngine_movesWhatItsSourceHas(t *testing.T) {
	t.Parallel()
	url, dialect := "sqlite:"+filepath.Join(t.TempDir(), "shop.db"), "sqlite"
	if dbtest.Postgres() {
		url, dialect = dbtest.Fresh(t).Journal, "postgres"
	}
	db := dbtest.Open(t, url)
	schema := must.Get(intake.Schema(dialect)).Or(t)
	first := map[string]string{"sqlite": "pragma journal_mode = wal;", "postgres": "create schema journal;"}[dialect]
	must.Get(db.Exec(first + schema)).Or(t)
	write := func(campaign, payload string) *sql.Tx {
		return fromService(t, db, intake.Event{CampaignID: campaign, EventID: campaign + "-placed", EventType: "order.placed", Payload: []byte(payload)})
	}
	e := open(t, func(c *outboxweb.Config) {
		c.Sources = map[string]outboxweb.Source{"shop": {URL: url}}
		c.MaxPayload = 1 << 20
	})
	must.OK(t, e.Project(orders()))
	must.OK(t, write("o-1", `{"item":"tea"}`).Rollback())
	for campaign, item := range map[string]string{"o-2": "tea", "o-3": strings.Repeat("tea ", 100_000)} {
		must.OK(t, write(campaign, `{"item":"`+item+`"}`).Commit())
	}
	run(t, e)
	for _, campaign := range []string{"o-2", "o-3"} {
		must.Eventually(t, "the event is applied", func() bool {
			err := e.WaitApplied(wait(t), campaign, 1)
			must.Need(t, err == nil || errors.Is(err, outboxweb.ErrNotFound), "%v", err)
			return err == nil
		})
	}
	err := e.WaitApplied(context.Background(), "o-1", 1)
	must.Hold(t, errors.Is(err, outboxweb.ErrNotFound), "the event of a transaction that was rolled back: %v, want ErrNotFound", err)
}
