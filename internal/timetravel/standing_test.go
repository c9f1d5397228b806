package timetravel_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

func TestTravel_tellsOfDrift(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, shelf)
	b.MustAppend(t, enginetest.EventOf("c", "put", `{"place":1,"name":"jar"}`))
	b.Drain(t)
	b.Meddle(t, `update shelf_items set note = 'meddled'`)
	m := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c"})
	if len(m.Standings) != 1 || m.Standings[0].Verdict != "drift" || m.Standings[0].Differ != 1 {
		t.Errorf("the live rows differ, and it says %+v", m.Standings)
	}
	live, err := tr.Live(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if note, _ := live.Tables[0].Rows[0].ByColumn("note"); string(note.Value) != `"meddled"` || !live.Live || live.Seq != 1 {
		t.Errorf("the live rows are %+v", live)
	}
}

func TestTravel_beginsAgainWhenASkipIsUndone(t *testing.T) {
	t.Parallel()
	b, tr := open(t, timetravel.Config{}, enginetest.Accounts)
	b.MustAppend(t, enginetest.Opened("c", 5), enginetest.Spent("c", 9))
	b.Drain(t)
	b.MustSkip(t, "c", 2)
	b.Drain(t)
	balance := func() string {
		m := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c", Seq: 1})
		c, _ := m.Tables[0].Rows[0].ByColumn("balance")
		return fmt.Sprint(string(c.Value), " of ", m.LastSeq)
	}
	if got := balance(); got != "5 of 2" {
		t.Fatal(got)
	}
	if n := tr.Replays(); n != 1 {
		t.Errorf("%d replays", n)
	}
	enginetest.MustExec(t, b.JournalDB, `update skips set undone_at = 1`)
	if got := balance(); got != "5 of 2" || tr.Replays() != 2 {
		t.Errorf("after the skip is undone: %s, %d replays", got, tr.Replays())
	}
}

// The rows of a projection whose loaded version cannot replay the campaign are the live ones as of the
// last applied event, and not known as of an earlier one.
func TestTravel_showsLiveRowsWhereTheLoadedVersionFails(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, shelf))
	b.MustAppend(t, enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"old"}`), enginetest.EventOf("c", "put", `{"place":2,"name":"urn"}`),
		enginetest.EventOf("c", "put", `{"place":1,"name":"jar","note":"new"}`))
	b.Drain(t)
	other, err := projection.Load(enginetest.DialectOf(b.Pair), enginetest.Define(t, strings.ReplaceAll(shelf, ":payload.note)", ":payload.note!)"))...)
	if err != nil {
		t.Fatal(err)
	}
	tr := timetravel.New(timetravel.Config{Store: b.Store, Set: other})
	defer tr.Close()
	for seq, want := range map[int64]string{
		0: `live: "new" null`, // as of the last event
		1: `replay: "old"`,
		2: `unknown:`,
	} {
		m := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c", Seq: seq})
		got := m.Tables[0].Source + ":"
		for _, row := range m.Tables[0].Rows {
			note, _ := row.ByColumn("note")
			got += " " + string(note.Value)
		}
		if got != want || len(m.Standings) != 1 || m.Standings[0].FailedSeq != 2 || m.Standings[0].Error == "" {
			t.Errorf("as of event %d the rows are %s, want %s; %+v", seq, got, want, m.Standings)
		}
	}
	if m := mustAt(t, tr, outbox.ModelQuery{CampaignID: "c", Limit: 1}); len(m.Tables[0].Rows) != 1 || !m.Tables[0].More {
		t.Errorf("of two live rows %d are shown, want the first", len(m.Tables[0].Rows))
	}
	for seq, want := range map[int64]string{1: outbox.SourceReplay, 2: outbox.SourceUnknown} {
		tables, err := tr.Changes(t.Context(), "c", seq, time.Minute)
		if err != nil || len(tables) == 0 || tables[0].Source != want {
			t.Errorf("event %d changed %+v, want rows that are from %s; %v", seq, tables, want, err)
		}
	}
}
