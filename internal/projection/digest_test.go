package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func sum(canonical string) string {
	h := sha256.Sum256([]byte(canonical))
	return "sha256:" + hex.EncodeToString(h[:])
}

const zoo = `-- projection: zoo
-- tables: zebras, apes
-- schema @sqlite
create table zebras (campaign_id text, "Name" text, n integer, f real, b blob, primary key ("Name" desc, campaign_id));
-- schema @postgres
create table zebras (campaign_id text, "Name" text, n bigint, f double precision, b bytea, primary key ("Name", campaign_id));
-- schema
create table apes (campaign_id text, y text, x integer);
-- on: zebra @sqlite
insert into zebras values (:campaign_id, :payload.name, :payload.n, :payload.f, cast(:payload.b as blob));
-- on: zebra @postgres
insert into zebras values (:campaign_id, :payload.name, :payload.n, :payload.f, convert_to(:payload.b, 'UTF8'));
-- on: ape
insert into apes values (:campaign_id, :payload.y, :payload.x);
`

func replayInto(t testing.TB, c *replay, campaign, eventType string, payloads ...string) {
	for _, p := range payloads {
		must.OK(t, c.Apply(t.Context(), &event.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(p)}))
	}
}

func digestsOf(t testing.TB, c *replay, campaign string, only ...string) (digests map[string]string, full string) {
	digests, full, err := c.Digests(t.Context(), campaign, only...)
	must.OK(t, err)
	return digests, full
}

func TestDigests_canonicalForm(t *testing.T) {
	t.Parallel()
	c := replayText(t, zoo)
	replayInto(t, c, "c", "zebra", `{"name":"zoë\"\\\n\u0001</","n":9007199254740993,"f":0.1,"b":"AZ"}`, `{"name":"Abe","n":-1,"f":2}`, `{"name":"B","f":1e21}`)
	replayInto(t, c, "c", "ape", `{"y":"b","x":1}`, `{"y":"a","x":2}`, `{"x":3}`)
	replayInto(t, c, "other", "ape", `{"y":"a","x":2}`)
	canonical := `{"apes":[` +
		`{"campaign_id":"c","x":3,"y":null},{"campaign_id":"c","x":2,"y":"a"},{"campaign_id":"c","x":1,"y":"b"}` +
		`],"zebras":[` +
		`{"Name":"Abe","b":null,"campaign_id":"c","f":"2","n":-1},` +
		`{"Name":"B","b":null,"campaign_id":"c","f":"1000000000000000000000","n":null},` +
		`{"Name":"zoë\"\\\n\u0001</","b":"415a","campaign_id":"c","f":"0.1","n":9007199254740993}]}`
	digests, full := digestsOf(t, c, "c")
	must.Equal(t, digests, map[string]string{"zoo": sum(canonical)}, "digest of", canonical)
	must.Equal(t, full, sum(sum(canonical)), "full")
	empty, _ := digestsOf(t, c, "nobody")
	must.Equal(t, empty["zoo"], sum(`{"apes":[],"zebras":[]}`), "digest of a campaign without rows")
}

func TestDigests_coverWhatTheFileNames(t *testing.T) {
	t.Parallel()
	fill := func(digest string) map[string]string {
		c := replayText(t, zoo+digest)
		replayInto(t, c, "c", "ape", `{"y":{"b":[1,2.50,true,null,12345678901234567890],"a":"x"},"x":1}`, `{"x":2}`, `{"y":"10","x":3}`)
		digests, _ := digestsOf(t, c, "c")
		return digests
	}
	tests := []struct{ name, digest, want string }{
		{"ordered", "-- digest: select x from apes where campaign_id = :campaign_id order by x desc", `[{"x":3},{"x":2},{"x":1}]`},
		{"unordered is sorted by row", "-- digest: select x, y is null as missing from apes where campaign_id = :campaign_id", `[{"missing":0,"x":1},{"missing":0,"x":3},{"missing":1,"x":2}]`},
		{"named", "-- digest b: select count(*) as n from apes where campaign_id = :campaign_id;\n-- digest a:\nselect x from apes where campaign_id = :campaign_id and x = 2", `{"a":[{"x":2}],"b":[{"n":3}]}`},
		{"json column", "-- digest (json: y): select y from apes where campaign_id = :campaign_id order by x",
			`[{"y":{"a":"x","b":[1,"2.5",true,null,12345678901234567890]}},{"y":null},{"y":10}]`},
		{"of this dialect", "-- digest @sqlite: select 1 as one where :campaign_id = 'c'\n-- digest @postgres: select 2 as two where :campaign_id = 'c'", `[{"one":1}]`},
	}
	for _, tt := range tests {
		if dbtest.Postgres() {
			tt.want = strings.Replace(tt.want, `"one":1`, `"two":2`, 1)
		}
		must.Equal(t, fill(tt.digest)["zoo"], sum(tt.want), tt.name, "digest")
	}
}

// The same text orders by bytes on both databases, whatever their own collations.
func TestDigests_collateCIsTheOrderOfBytes(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, "t.sql", `-- projection: p
-- tables: t
-- schema
create table t (campaign_id text, name text);
-- on: a
insert into t values (:campaign_id, :payload.name);
-- digest: select name from (select campaign_id, name collate nocase as name from t) s where campaign_id = :campaign_id order by name COLLATE "C";
`)
	c := inMemory(t, mustLoad(t, dir))
	replayInto(t, c, "c", "a", `{"name":"é"}`, `{"name":"b"}`, `{"name":"a b"}`, `{"name":"a"}`, `{"name":"C"}`, `{"name":"a\""}`)
	digests, _ := digestsOf(t, c, "c")
	must.Equal(t, digests["p"], sum(`[{"name":"C"},{"name":"a"},{"name":"a b"},{"name":"a\""},{"name":"b"},{"name":"é"}]`), "digest")
	for dialect, want := range map[string]string{"sqlite": "order by name COLLATE binary", "postgres": `order by name COLLATE "C"`} {
		s := must.Get(Load(dialect, dir)).Or(t)
		got := s.Projections()[0].digests[0].SQL
		must.Hold(t, strings.HasSuffix(got, want), "%s: digest %s, want it to end with %s", dialect, got, want)
	}
}

func TestDigests_refuses(t *testing.T) {
	t.Parallel()
	for digest, want := range map[string]string{
		"-- digest: select x, y as x from apes where campaign_id = :campaign_id":   `test.sql:15: the digest has two columns named "x"`,
		"-- digest (json: z): select x from apes where campaign_id = :campaign_id": `test.sql:15: the digest has no column "z" to read as JSON; it has x`,
		"-- digest (json: y): select y from apes where campaign_id = :campaign_id": `test.sql:15: column "y" is not JSON`,
		"-- digest (json: x): select x from apes where campaign_id = :campaign_id": `test.sql:15: column "x" holds int64, not JSON text`,
	} {
		c := replayText(t, zoo+digest)
		replayInto(t, c, "c", "ape", `{"y":"not json","x":1}`)
		_, _, err := c.Digests(t.Context(), "c")
		must.Hold(t, err != nil && strings.Contains(err.Error(), want), "%s\n error %v, want %q", digest, err, want)
	}
	c := replayText(t, zoo)
	_, _, err := c.Digests(t.Context(), "c", "zoo", "nope")
	must.Hold(t, errors.Is(err, event.ErrNotFound), "error %v, want ErrNotFound", err)
}

func TestDigests_ofSomeProjections(t *testing.T) {
	t.Parallel()
	c := newReplay(t, "builtin:campaigns")
	all, full := digestsOf(t, c, "c")
	must.Equal(t, full, sum(all["campaigns"]+":"+all["sessions"]), "full")
	some, part := digestsOf(t, c, "c", "sessions")
	must.Equal(t, some, map[string]string{"sessions": all["sessions"]}, "digests")
	must.Equal(t, part, sum(all["sessions"]), "full")
}

// Digests are stored and compared over years. If this fails, every digest recorded so far is worthless: change it only on purpose.
func TestDigests_areStable(t *testing.T) {
	t.Parallel()
	c := newReplay(t, "builtin:campaigns")
	for _, e := range []event.Event{
		{EventType: "campaign.created", EntityID: "c-1", Payload: json.RawMessage(`{"name":"Harbor","locale":"pt_br","game_system":"daggerheart"}`)},
		{EventType: "participant.joined", EntityID: "p-1", Payload: json.RawMessage(`{"name":"Ana","user_id":"u-1","role":"gm"}`)},
		{EventType: "character.created", EntityID: "ch-1", ActorID: "p-1", Payload: json.RawMessage(`{"name":"Ash","aliases":["A","B"]}`)},
		{EventType: "session.started", EntityID: "s-1", Payload: json.RawMessage(`{"session_name":"One"}`)},
		{EventType: "session.ended", EntityID: "s-1", Payload: json.RawMessage(`{}`)},
	} {
		e.CampaignID = "c-1"
		e.OccurredAt = testEvent().OccurredAt
		must.OK(t, c.Apply(t.Context(), &e))
	}
	digests, full := digestsOf(t, c, "c-1")
	digests["full"] = full
	must.Equal(t, digests, map[string]string{
		"campaigns": "sha256:1a50e11824c0a6943c99e037c0d7be7164152b2ea78f4e033fd02c397c139167",
		"sessions":  "sha256:c651c22b9e2c349ce0ee2d88944a809d802e596c4287b079982a1a2bd17279d5",
		"full":      "sha256:8e33208d107d010836d7f501195762cdbb5165b32d43fb9e9a70aebabc9e47e2",
	})
}
