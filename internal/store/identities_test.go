package store_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// lowerSequences leaves all sequences of both databases behind, as a copy of the tables does.
const lowerSequences = `select setval(cast(c.oid as regclass), 1, false) from pg_class as c where c.relkind = 'S' and c.relnamespace in (cast('journal' as regnamespace), cast('projections' as regnamespace))`

func TestPostgresAppend_drawsNoPositionBelowTheHead(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 8)
	mustFollow := func(s *store.Store, campaign, what string) {
		head := must.Get(f.Position(f.Ctx)).Or(t)
		got, err := s.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event(campaign, "counted"), storetest.Event(campaign, "counted")}})
		must.Hold(t, err == nil && got[0].Position > head && got[1].Position > got[0].Position, "%s: appended %+v (%v), want positions above %d", what, got, err, head)
	}
	f.Exec(lowerSequences)
	mustFollow(f.Store, "b", "onto numbers that are taken")
	f.Exec(`select setval('journal.events_position_seq', 100)`)
	f.AppendN("a", 1)
	f.Exec(`select setval('journal.events_position_seq', 50)`)
	mustFollow(f.Store, "c", "onto numbers that are free")
	f.Exec(lowerSequences)
	mustFollow(f.Beside().Store, "d", "at the start")
}

// Every numbered table of both databases is looked after, whatever a migration adds.
func TestPostgresExamine_raisesEverySequence(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.everything()
	numbers := func() []string {
		return storetest.Texts(t, f.JournalDB, `select concat_ws(' ', schemaname, sequencename, coalesce(last_value, 0)) from pg_sequences where schemaname in ('journal', 'projections') order by 1`)
	}
	before := numbers()
	f.Exec(lowerSequences)
	var logged bytes.Buffer
	s := f.Beside(func(o *store.Options) { o.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	must.OK(t, s.Examine(f.Ctx))
	raised := 0
	for i, now := range numbers() {
		if highest := strings.Fields(before[i]); now < before[i] && highest[2] != "0" && !strings.HasSuffix(now, " 0") {
			t.Errorf("%s is at %s", before[i], now)
		} else if !strings.HasSuffix(now, " 0") {
			raised++
		}
	}
	if n := strings.Count(logged.String(), "a sequence was behind"); n != raised || n < 3 {
		t.Errorf("%d sequences were raised and %d told of:\n%s", raised, n, logged.String())
	}
	if !strings.Contains(logged.String(), "fsync=off") {
		t.Errorf("nothing was told of fsync=off:\n%s", logged.String())
	}
}

func TestPostgresExamine_namesTheStatementWhereTheUserMayNot(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	poor := storetest.Role(t, "reader_of_sequences")
	for _, schema := range []string{"journal", "projections"} {
		for _, grant := range []string{`grant usage on schema ` + schema, `grant all on all tables in schema ` + schema, `grant select on all sequences in schema ` + schema} {
			f.Exec(grant + ` to ` + poor)
		}
	}
	t.Cleanup(func() { f.Exec(`drop owned by ` + poor) })
	f.Exec(lowerSequences)
	s := must.Get(store.Open(f.Ctx, store.Options{Journal: asUser(f.Pair.Journal, poor), Projections: asUser(f.Pair.Projections, poor)})).Or(t)
	defer s.Close()
	err := s.Examine(f.Ctx)
	must.Hold(t, errors.Is(err, outbox.ErrSetup) && strings.Contains(err.Error(), "select setval('journal.events_position_seq', 3)"), "examine: got error %v", err)
}
