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
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// shop is a journal with a source named shop, and the service's own connection to it.
type shop struct {
	*storetest.Fixture
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
	_, err := db.Exec(query, args...)
	must.Need(tb, err == nil, "%s: %v", query, err)
}

func newShop(tb testing.TB) *shop {
	url, db := serviceDatabase(tb)
	schema := must.Get(writers.Schema(dialect())).Or(tb)
	mustExec(tb, db, schema)
	return openShop(tb, url, db, intake.Definition{})
}

// ownShop is newShop for a test that runs beside others.
func ownShop(t *testing.T) *shop {
	t.Parallel()
	return newShop(t)
}

// plain is a table of a service that is none of the schema's, and how it is read.
func plain(tb testing.TB, db *sql.DB) intake.Definition {
	mustExec(tb, db, `create table plain (n integer primary key, who text, what text, kind text, data text)`)
	return intake.Definition{Table: "plain", Columns: map[string][]string{"order": {"n"}, "campaign_id": {"who"}, "event_id": {"what"}, "event_type": {"kind"}, "payload": {"data"}}}
}

func openShop(tb testing.TB, url string, db *sql.DB, d intake.Definition) *shop {
	s := &shop{Fixture: storetest.Open(tb), url: url, db: db}
	s.intake, s.worker = s.process(s.Fixture, "process-1", d)
	return s
}

// process is what another process with this source has.
func (s *shop) process(f *storetest.Fixture, id string, d intake.Definition) (*intake.Intake, *intake.Worker) {
	d.URL = s.url
	source := must.Get(d.Source("shop")).Or(s.TB)
	in := intake.New(f.Store)
	in.Settings.Sources = []intake.Source{source}
	w := intake.NewWorker(intake.WorkerConfig{Intake: in, ID: id, MaxPayload: 1000, Lease: storetest.Lease})
	s.TB.Cleanup(w.Close)
	return in, w
}

func (s *shop) put(events ...writers.Event) {
	tx, err := s.db.Begin()
	if err == nil {
		if err = writers.Append(s.Ctx, tx, events...); err == nil {
			err = tx.Commit()
		}
	}
	must.OK(s.TB, err)
}

func anEvent(campaign, id string) writers.Event {
	return writers.Event{CampaignID: campaign, EventID: id, EventType: "order.paid", Payload: []byte(`{"id":"` + id + `"}`)}
}

// raw inserts a row past Append.
func (s *shop) raw(campaign, id, payload string) {
	mustExec(s.TB, s.db, `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ($1, $2, 'order.paid', $3)`, campaign, id, payload)
}

func (s *shop) drain() {
	must.OK(s.TB, s.worker.Step(s.Ctx))
}

func (s *shop) journal(campaign string) string {
	return strings.Join(storetest.Texts(s.TB, s.JournalDB, `select event_id from events where campaign_id = $1 order by seq`, campaign), " ")
}

func (s *shop) rows() string {
	return strings.Join(storetest.Texts(s.TB, s.db, `select event_id from outboxweb_intake order by id`), " ")
}

// holds compares what is named, in pairs: the rows left, the kept and the rejected ones, and a campaign's events.
func (s *shop) holds(tb testing.TB, pairs ...string) {
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
	return strings.Join(storetest.Texts(s.TB, s.JournalDB, `select event_id || ' ' || status from intake_rejections order by id`), ", ")
}

func (s *shop) rejected(id string) inbound.IntakeRejection {
	page := must.Get(s.intake.Rejections(s.Ctx, "shop", "", 50)).Or(s.TB)
	for _, r := range page.Items {
		if r.EventID == id {
			return r
		}
	}
	s.TB.Fatalf("event %q is not rejected: %+v", id, page.Items)
	return inbound.IntakeRejection{}
}

// state is the source's state, without the snapshot that readers share.
func (s *shop) state() inbound.IntakeSource {
	s.Changed()
	all, err := s.intake.States(context.Background())
	must.Need(s.TB, err == nil && len(all) == 1, "states: %+v, %v", all, err)
	return all[0]
}

func equal[T comparable](tb testing.TB, what string, got, want T) {
	must.Equal(tb, got, want, what, fmt.Sprint(got))
}

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestPostgres")) }
