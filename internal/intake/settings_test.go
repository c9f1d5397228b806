package intake_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func parse(tb testing.TB, text string) (intake.Settings, error) {
	var document yaml.Node
	must.OK(tb, yaml.Unmarshal([]byte(text), &document))
	env := map[string]string{"PASS": "s3cret word"}
	return intake.Parse(document.Content[0], func(name string) (string, bool) {
		value, set := env[name]
		return value, set
	})
}

func TestParse_readsSources(t *testing.T) {
	t.Parallel()
	s := must.Get(parse(t, `
shop: {url: "postgres://ana:${PASS}@db.example/shop?search_path=sales"}
billing:
  url: sqlite:data/billing.db
  table: out.going
  columns: {order: n, campaign_id: [kind, account], event_id: uuid, event_type: kind, payload: body}
  batch_size: 10
  poll_interval: 50ms
  keep_moved: 10m
orders: {url: postgres://db.example/orders, table: outbox, layout: debezium, columns: {order: seq}}
local: {url: "sqlite:outbox.db", layout: debezium}
`)).Or(t)
	var places []string
	for _, one := range s.Sources {
		places = append(places, one.Name+" "+one.Place+" "+one.Table)
	}
	equal(t, "sources", strings.Join(places, "\n"), `shop postgres://ana@db.example/shop?search_path=sales outboxweb_intake
billing sqlite:data/billing.db out.going
orders postgres://`+pgUser(t)+`@db.example/orders outbox
local sqlite:outbox.db outboxweb_intake`)
	equal(t, "keep_moved", fmt.Sprint(s.Sources[0].Kept(), s.Sources[1].Kept()), "0s 10m0s")
}

// pgUser is the user that pgx takes where a URL names none.
func pgUser(t *testing.T) string {
	s := must.Get(intake.Definition{URL: "postgres://x.example/d"}.Source("x")).Or(t)
	name, _, _ := strings.Cut(strings.TrimPrefix(s.Place, "postgres://"), "@")
	return name
}

func TestParse_namesTheLineAndNoSecret(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{}":                                     "line 1: sources: there is no source",
		"Shop: {url: sqlite:a}":                  "line 1: sources.Shop: source \"Shop\" must begin",
		"shop: {}":                               "line 1: sources.shop: url is missing",
		"shop: {url: 'mysql://ana:${PASS}@h/d'}": "unknown scheme mysql:",
		"shop: {url: 'postgres://a:${PASS}@h:x/d'}":                         "sources.shop.url: it is not a PostgreSQL URL",
		"shop: {url: 'sqlite::memory:'}":                                    "the path of the SQLite file is missing",
		"shop: {url: 'sqlite:a', polls: 3}":                                 "unknown key \"polls\"",
		"shop: {url: 'sqlite:a', batch_size: 100000}":                       "must be from 1 to 10000",
		"shop: {url: 'sqlite:a', keep_moved: 200h}":                         "must be from 10ms to 168h0m0s",
		"shop: {url: 'sqlite:a', layout: kafka}":                            "there is no layout \"kafka\"; use debezium or outboxweb",
		"shop: {url: 'sqlite:a', table: 'a\"b'}":                            "cannot be the name of a table or column",
		"shop:\n  url: sqlite:a\n  columns: {campaign_id: c}":               "line 3: sources.shop.columns: event_id is missing",
		"shop: {url: 'sqlite:a', columns: {campaign: c}}":                   "\"campaign\" is not a field of an event",
		"shop: {url: 'postgres://h/d', layout: debezium}":                   "order is missing",
		"shop: {url: 'sqlite:a', columns: {order: [a, b]}}":                 "order needs one column",
		"shop: {url: 'sqlite:a', layout: debezium, columns: {tags: 'x\"'}}": "cannot be the name",
	} {
		_, err := parse(t, text)
		must.Hold(t, errors.Is(err, event.ErrInvalid) && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "s3cret"), "%s: %v, want %q", text, err, want)
	}
}

// Debezium's table on both databases, ordered by a column that was added to it.
func TestIntake_readsDebeziumsTable(t *testing.T) {
	t.Parallel()
	url, db := serviceDatabase(t)
	uuid, id, json := "text", "integer primary key autoincrement", "text"
	if dialect() == "postgres" {
		uuid, id, json = "uuid", "bigint generated always as identity unique", "jsonb"
	}
	mustExec(t, db, `create table outbox (id `+uuid+` not null, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload `+json+`, seq `+id+`)`)
	s := openShop(t, url, db, intake.Definition{Table: "outbox", Layout: "debezium", Columns: map[string][]string{"order": {"seq"}, "campaign_id": {"aggregatetype", "aggregateid"}}})
	put := func(id, aggregate, payload string) {
		mustExec(t, db, `insert into outbox (id, aggregatetype, aggregateid, type, payload) values ($1, 'order', $2, 'OrderPaid', $3)`, id, aggregate, payload)
	}
	const first, second, third = "ffffffff-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002", "77777777-0000-4000-8000-000000000003"
	put(first, "17", `{"n": 1}`)
	put(second, "17", `{"n": 2}`)
	put(third, "18", `[1]`)
	s.drain()
	s.holds(t, "order:17", first+" "+second, "rejected", third+" open")
	equal(t, "entities", s.Number(`select count(*) from events where entity_type = 'order' and entity_id = '17' and event_type = 'OrderPaid'`), 2)
	st := s.state()
	must.Hold(t, st.Waiting == 1 && st.OldestAt != nil, "state: %+v", st)
	o := storetest.Ana("a test")
	o.Confirm = "discard shop 1"
	must.Get(s.intake.Discard(s.Ctx, o, "shop", s.rejected(third).ID)).Or(t)
	s.drain()
	must.Same(t, storetest.Texts(t, db, `select aggregateid from outbox`), nil, "the rows that are left")
}

// A misspelt column must be an error, not a text, which it is in SQLite's eyes.
func TestIntake_refusesColumnsThatDoNotExist(t *testing.T) {
	t.Parallel()
	url, db := serviceDatabase(t)
	d := plain(t, db)
	d.Columns["campaign_id"] = []string{"whom"}
	mustExec(t, db, `insert into plain values (1, 'c', 'e', 't', '{}')`)
	s := openShop(t, url, db, d)
	err := s.worker.Step(s.Ctx)
	must.Hold(t, err != nil && strings.Contains(err.Error(), "whom"), "read: %v", err)
	equal(t, "state", s.state().State(s.Clock.Now()), inbound.IntakeFailing)
}
