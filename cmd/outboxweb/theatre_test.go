package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
)

// seats is a projection that fails at some events: a lost one can never be applied, a full one may be
// later. What it has in a field named password is a secret.
const seats = `-- projection: seats
-- tables: seats
-- schema
create table seats (campaign_id text not null, seq bigint not null, free bigint not null check (free > 0), primary key (campaign_id, seq));
-- on: taken
insert into seats (campaign_id, seq, free) values (:campaign_id, :seq, 1);
-- on: full
insert into seats (campaign_id, seq, free) values (:campaign_id, :seq, 0);
-- on: lost
insert into seats (campaign_id, seq, free) values (:campaign_id, :seq, :payload.number!);
`

const secret = "hunter2-hunter2"

// theatre is what scenes have in common: the files of the projection and an empty pair of databases.
type theatre struct {
	dir string
	set *projection.Set
	new func(*testing.T) dbtest.Pair
	// outside is the configuration of what scenes have outside: a publisher to a file, and a receiver of
	// alerts that takes everything.
	outside cli
}

func newTheatre(t *testing.T, dialect string) *theatre {
	h := &theatre{dir: t.TempDir()}
	must.OK(t, os.WriteFile(filepath.Join(h.dir, "seats.sql"), []byte(seats), 0o600))
	h.set = must.Get(projection.Load(dialect, h.dir)).Or(t)
	chat := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(chat.Close)
	h.outside = must.Get(parseServe(t, "topics:\n  sales: {match: {event_types: ['*']}, publishers: {partner: {url: 'file:"+t.TempDir()+"/sent.ndjson'}}}\n"+
		"alerts: {to: [chat], receivers: {chat: {url: 'slack+"+chat.URL+"/x', allow_private: true}}}\n")).Or(t)
	if dialect == "postgres" {
		h.new = func(t *testing.T) dbtest.Pair {
			p := schemasOf(must.Get(postgres()).Or(t).Empty(t))
			must.OK(t, h.prepare(t, p))
			return p
		}
		return h
	}
	empty := newPair(t, t.TempDir())
	must.OK(t, h.prepare(t, empty))
	h.new = func(t *testing.T) dbtest.Pair {
		dir := t.TempDir()
		must.OK(t, os.CopyFS(dir, os.DirFS(empty.Dir)))
		return dbtest.Files(dir)
	}
	return h
}

func schemasOf(url string) dbtest.Pair {
	return dbtest.Pair{Journal: dbtest.InSchema(url, "journal"), Projections: dbtest.InSchema(url, "projections")}
}

// copies makes the databases of a theatre's scenes on PostgreSQL copies of one, of which a process has one alone.
func (h *theatre) copies(t *testing.T) *theatre {
	server := must.Get(postgres()).Or(t)
	must.OK(t, server.Template(t.Context(), func(url string) error { return h.prepare(t, schemasOf(url)) }))
	h.new = func(t *testing.T) dbtest.Pair { return schemasOf(server.Database(t)) }
	return h
}

func (h *theatre) prepare(t *testing.T, p dbtest.Pair) error {
	s, err := store.Open(t.Context(), store.Options{Journal: p.Journal, Projections: p.Projections})
	if err != nil {
		return err
	}
	return errors.Join(runs.Install(t.Context(), s, h.set), s.Close())
}

// postgres is a server for all tests of this package.
var postgres = sync.OnceValues(func() (*pgtest.Server, error) {
	server, err := pgtest.Shared()
	if err == nil {
		share(server.Stop)
	}
	return server, err
})
