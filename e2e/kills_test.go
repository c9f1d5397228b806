package e2e

import (
	"cmp"
	"flag"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/size"
)

var (
	kills    = flag.Int("kills", 0, "how often each row of TestKills kills, in one way after the other; 0 is in half of its ways, and in a soak three times in each")
	killSeed = flag.Uint64("kill-seed", 0, "the seed of the moments at which TestKills kills; 0 takes a new one")
)

// ways are who is killed at what. Each leaves as many servers as there were.
var ways = map[string]func(*scene){
	"a server at any moment": func(s *scene) {
		s.moment(400 * time.Millisecond)
		s.kill(s.random.IntN(len(s.servers)))
	},
	"a server that starts": func(s *scene) {
		starting := launch(s.t, s.d, s.serve...)
		s.moment(200 * time.Millisecond)
		starting.kill()
	},
	"a server in a wave":       func(s *scene) { s.killHeldUp("campaigns", holdUp(s.t, s.past)) },
	"a server in a delivery":   func(s *scene) { s.killHeldUp("publisher_progress", s.hooks.hold(s.t)) },
	"a server that moves rows": func(s *scene) { s.kill(s.awaitHolder("intake_sources")) },
	"a server in a rebuild": func(s *scene) {
		s.rebuild()
		victim := s.awaitHolder("runs")
		s.moment(200 * time.Millisecond)
		s.kill(victim)
	},
	"all servers": func(s *scene) {
		for _, server := range s.servers {
			server.kill()
		}
		for i := range s.servers {
			s.replace(i)
		}
	},
	"a writer of the service": func(s *scene) {
		i := s.random.IntN(len(s.writers))
		killWriter(s.writers[i])
		s.writers[i] = startWriter(s.t, s.shop)
	},
	"a command that appends":        (*scene).killAppend,
	"a server that is asked to end": (*scene).end,
	"a server that was suspended":   (*scene).suspend,
	"the databases' server":         (*scene).killDatabases,
}

// A killRow is a test of TestKills.
type killRow struct {
	name     string
	database string // sqlite, postgres, pooler or own, which is a PostgreSQL server to be killed
	mode     string // of applying, unless the usual one
	flags    []string
	ways     []string
}

var killRows = []killRow{
	{name: "servers on SQLite", database: "sqlite", flags: []string{"--lease", "1h"}, ways: []string{
		"a server that is asked to end", "a command that appends", "a server in a wave", "a server in a rebuild", "a server in a delivery", "a server that moves rows",
		"a writer of the service", "a server that starts", "all servers", "a server at any moment"}},
	{name: "servers on PostgreSQL", database: "postgres", flags: []string{"--lease", "1h"}, ways: []string{
		"a server that moves rows", "a writer of the service", "a server that starts", "all servers", "a server at any moment", // the other row begins with the others
		"a server in a wave", "a server in a delivery", "a server in a rebuild", "a server that is asked to end", "a command that appends"}},
	{name: "suspended", database: "postgres", ways: []string{"a server that was suspended"}},
	{name: "behind a pooler", database: "pooler", ways: []string{"a server in a wave", "a server that is asked to end", "a server at any moment"}},
	{name: "applying inline", database: "sqlite", mode: "inline_apply_only", ways: []string{"a server at any moment", "all servers", "a server that is asked to end"}},
	{name: "the databases' server", database: "own", flags: []string{"--lease", "10m"}, ways: []string{"the databases' server"}},
}

// Two servers on one pair of databases apply what is appended to them, move what a service commits,
// deliver to three destinations, and rebuild; they and others are killed again and again. Everything
// that was acknowledged or committed must be in the journal once, and applied and delivered in
// order, and what was begun must be completed by the next process.
func TestKills(t *testing.T) {
	t.Parallel()
	for _, row := range killRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.name != killRows[0].name {
				size.Full(t, "one row is in every run")
			}
			s := startScene(t, row)
			for round := range cmp.Or(*kills, size.Of(1, 1, 6)*(len(row.ways)+1)/2) {
				way := row.ways[round%len(row.ways)]
				t.Logf("note: killed is %s", way)
				ways[way](s)
				s.load.awaitProgress(t, 20)
			}
			s.finish()
		})
	}
}
