package timetravel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// accountsLoaded is a process with another text of accounts, which it has told the journal.
func accountsLoaded(t *testing.T, p dbtest.Pair, text string) *enginetest.Engine {
	b := enginetest.OpenPair(t, p, enginetest.Define(t, text))
	one := campaign.Definition{Projection: "accounts", Version: b.Set.Infos()[0].Version, File: campaign.RehearsalFile{Name: "00.sql", Text: text}}
	must.OK(t, b.Store.Loaded(t.Context(), campaign.InstanceState{ID: b.Worker.ID()}, []campaign.Definition{one}))
	return b
}

// Rows of two versions are replayed with both, each with the events that it applied, until a rebuild makes them
// of one.
func TestTravel_replaysWithTheVersionsThatBuiltTheRows(t *testing.T) {
	t.Parallel()
	p := dbtest.New(t)
	twice := strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "\n  set spent = spent + 2")
	accountsLoaded(t, p, enginetest.Accounts).Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 3))
	b := accountsLoaded(t, p, twice).Feed(enginetest.Spent("a", 1))
	travel := timetravel.New(timetravel.Config{Store: b.Store, Set: b.Set})
	t.Cleanup(travel.Close)
	spent := func(seq int64) timetravel.ModelHistory {
		m := must.Get(travel.At(t.Context(), timetravel.ModelQuery{CampaignID: "a", Seq: seq}, wait)).Or(t)
		must.Equal(t, m.Standings[0].Verdict, "match", "the replay and the live rows")
		return must.Get(travel.Cell(t.Context(), timetravel.ModelQuery{CampaignID: "a", Seq: seq, Row: m.Tables[0].Rows[0].Row}, "spent", wait)).Or(t)
	}
	h := spent(3)
	must.Equal(t, string(h.Cell.Value)+" "+h.Doubt(), "3 ")
	must.Hold(t, h.SetBy.Version.Number == 2 && strings.HasSuffix(h.Cell.Statement, "00.sql:12"), "event 3 set it by %+v with %s", h.SetBy, h.Cell.Statement)
	must.Hold(t, strings.HasPrefix(h.Versions(), "replayed with what built the rows, version 1 (") && strings.Contains(h.Versions(), "up to event 2 and 2 ("), "versions: %s", h.Versions())
	h = spent(2)
	must.Hold(t, string(h.Cell.Value) == "1" && h.SetBy.Version.Number == 1 && h.EventType == "spent", "as of event 2: %s, set by %+v (%s)", h.Cell.Value, h.SetBy, h.EventType)
	b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}})
	h = spent(3)
	must.Hold(t, string(h.Cell.Value) == "4" && h.SetBy.Version.Number == 2, "once rebuilt: %s, set by %+v", h.Cell.Value, h.SetBy)
	must.Equal(t, must.Get(b.Runs.Cursors(t.Context(), "a", b.Infos)).Or(t)[0].By(), "by the loaded version")
}

// Where a version's text is not kept, the loaded one replays, and what it shows is doubted.
func TestTravel_doubtsValuesOfAVersionThatIsNotKept(t *testing.T) {
	t.Parallel()
	p := dbtest.New(t)
	first := enginetest.OpenPair(t, p, enginetest.Define(t, enginetest.Accounts))
	must.OK(t, first.Store.Loaded(t.Context(), campaign.InstanceState{ID: first.Worker.ID()}, []campaign.Definition{{Projection: "accounts", Version: first.Set.Infos()[0].Version}}))
	first.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 3))
	b := accountsLoaded(t, p, enginetest.Accounts+"-- other\n").Feed(enginetest.Spent("a", 1))
	travel := timetravel.New(timetravel.Config{Store: b.Store, Set: b.Set})
	t.Cleanup(travel.Close)
	m := must.Get(travel.At(t.Context(), timetravel.ModelQuery{CampaignID: "a"}, wait)).Or(t)
	must.Hold(t, strings.Contains(m.Tables[0].Doubt(), "may never have been there"), "the doubt: %q", m.Tables[0].Doubt())
}

// Two versions that took turns are each replayed with their own events.
func TestTravel_replaysVersionsThatTookTurns(t *testing.T) {
	t.Parallel()
	p := dbtest.New(t)
	twice := strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "\n  set spent = spent + 2")
	one := accountsLoaded(t, p, enginetest.Accounts).Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1))
	two := accountsLoaded(t, p, twice).Feed(enginetest.Spent("a", 1))
	one.Feed(enginetest.Spent("a", 1))
	two.Feed(enginetest.Spent("a", 1))
	travel := timetravel.New(timetravel.Config{Store: two.Store, Set: two.Set})
	t.Cleanup(travel.Close)
	var values []string
	for seq := int64(2); seq <= 5; seq++ {
		m := must.Get(travel.At(t.Context(), timetravel.ModelQuery{CampaignID: "a", Seq: seq}, wait)).Or(t)
		h := must.Get(travel.Cell(t.Context(), timetravel.ModelQuery{CampaignID: "a", Seq: seq, Row: m.Tables[0].Rows[0].Row}, "spent", wait)).Or(t)
		values = append(values, fmt.Sprintf("%s by %d at %s", h.Cell.Value, h.SetBy.Version.Number, h.Cell.Statement))
	}
	must.Equal(t, values, []string{"1 by 1 at 00.sql:12", "3 by 2 at 00.sql:12", "4 by 1 at 00.sql:12", "6 by 2 at 00.sql:12"})
}
