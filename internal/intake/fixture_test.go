package intake_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// shop is a journal with a source named shop, and the service's own connection to it.
type shop struct {
	*storetest.Fixture
	tb     testing.TB
	url    string
	db     *sql.DB
	intake *intake.Intake
	worker *intake.Worker
}

func dialect() string {
	if dbtest.Server() != nil {
		return "postgres"
	}
	return "sqlite"
}

// serviceDatabase is the URL of an empty database of a service, with a connection to it.
func serviceDatabase(tb testing.TB) (url string, db *sql.DB) {
	tb.Helper()
	if dialect() == "sqlite" {
		url = "sqlite:" + filepath.Join(tb.TempDir(), "shop.db")
		db = dbtest.Open(tb, url)
		mustExec(tb, db, `pragma journal_mode = wal`)
		return url, db
	}
	url = dbtest.Fresh(tb).Journal
	db = dbtest.Open(tb, url)
	mustExec(tb, db, `create schema journal`)
	return url, db
}

func mustExec(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	_, err := db.Exec(query, args...)
	must.Need(tb, err == nil, "%s: %v", query, err)
}

func newShop(tb testing.TB) *shop {
	tb.Helper()
	url, db := serviceDatabase(tb)
	schema := must.Get(writers.Schema(dialect())).Or(tb)
	mustExec(tb, db, schema)
	return openShop(tb, url, db, intake.Definition{})
}

func openShop(tb testing.TB, url string, db *sql.DB, d intake.Definition) *shop {
	tb.Helper()
	s := &shop{Fixture: storetest.Open(tb), tb: tb, url: url, db: db}
	s.intake, s.worker = s.process(s.Fixture, "process-1", d)
	return s
}

// process is what another process with this source has.
func (s *shop) process(f *storetest.Fixture, id string, d intake.Definition) (*intake.Intake, *intake.Worker) {
	s.tb.Helper()
	d.URL = s.url
	source := must.Get(d.Source("shop")).Or(s.tb)
	in := intake.New(f.Store)
	in.Settings.Sources = []intake.Source{source}
	w := intake.NewWorker(intake.WorkerConfig{Intake: in, ID: id, MaxPayload: 1000, Lease: storetest.Lease})
	s.tb.Cleanup(w.Close)
	return in, w
}

func (s *shop) put(events ...writers.Event) {
	s.tb.Helper()
	tx, err := s.db.Begin()
	if err == nil {
		if err = writers.Append(s.Ctx, tx, events...); err == nil {
			err = tx.Commit()
		}
	}
	must.OK(s.tb, err)
}

func event(campaign, id string) writers.Event {
	return writers.Event{CampaignID: campaign, EventID: id, EventType: "order.paid", Payload: []byte(`{"id":"` + id + `"}`)}
}

// raw inserts a row past Append.
func (s *shop) raw(campaign, id, payload string) {
	s.tb.Helper()
	mustExec(s.tb, s.db, `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ($1, $2, 'order.paid', $3)`, campaign, id, payload)
}

func (s *shop) drain() {
	s.tb.Helper()
	must.OK(s.tb, s.worker.Step(s.Ctx))
}

func (s *shop) journal(campaign string) string {
	s.tb.Helper()
	return strings.Join(storetest.Texts(s.tb, s.JournalDB, `select event_id from events where campaign_id = $1 order by seq`, campaign), " ")
}

func (s *shop) rows() string {
	s.tb.Helper()
	return strings.Join(storetest.Texts(s.tb, s.db, `select event_id from outboxweb_intake order by id`), " ")
}

// holds compares what is named, in pairs: the rows left, the kept and the rejected ones, and a campaign's events.
func (s *shop) holds(tb testing.TB, pairs ...string) {
	tb.Helper()
	got, want := map[string]string{}, map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		want[pair[0]] = pair[1]
		switch pair[0] {
		case "rows":
			got["rows"] = s.rows()
		case "kept":
			got["kept"] = s.kept()
		case "rejected":
			got["rejected"] = s.rejections()
		default:
			got[pair[0]] = s.journal(pair[0])
		}
	}
	must.Equal(tb, got, want, "the shop")
}

// rejections are the rejected rows, oldest first, as EVENT STATUS.
func (s *shop) rejections() string {
	s.tb.Helper()
	return strings.Join(storetest.Texts(s.tb, s.JournalDB, `select event_id || ' ' || status from intake_rejections order by id`), ", ")
}

func (s *shop) rejected(id string) outbox.IntakeRejection {
	s.tb.Helper()
	page := must.Get(s.intake.Rejections(s.Ctx, "shop", "", 50)).Or(s.tb)
	for _, r := range page.Items {
		if r.EventID == id {
			return r
		}
	}
	s.tb.Fatalf("event %q is not rejected: %+v", id, page.Items)
	return outbox.IntakeRejection{}
}

// state is the source's state, without the snapshot that readers share.
func (s *shop) state() outbox.IntakeSource {
	s.tb.Helper()
	s.Changed()
	all, err := s.intake.States(context.Background())
	must.Need(s.tb, err == nil && len(all) == 1, "states: %+v, %v", all, err)
	return all[0]
}

func equal[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	must.Equal(tb, got, want, what, fmt.Sprint(got))
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestPostgres")) }
