package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// hoard is a read model with secrets: one by its name, one by its form.
var hoard = map[string]string{"hoard.sql": `
-- projection: hoard
-- tables: hoard

-- schema
create table hoard (campaign_id text not null, name text not null, gold bigint not null, api_token text, note text,
  a_column_with_a_long_name_1 text, a_column_with_a_long_name_2 text, a_column_with_a_long_name_3 text, a_column_with_a_long_name_4 text, gold_again bigint, primary key (campaign_id, name));

-- on: found
insert into hoard (campaign_id, name, gold, gold_again, api_token, note) values (:campaign_id, :payload.name!, :payload.gold!, :payload.gold!, :payload.token, :payload.note)
on conflict (campaign_id, name) do update set gold = excluded.gold, gold_again = excluded.gold_again, api_token = excluded.api_token, note = excluded.note;

-- on: lost
delete from hoard where campaign_id = :campaign_id and name = :payload.name!;
`}

func foundGold(name string, gold int, token, note string) event {
	return event{EventType: "found", Payload: map[string]any{"name": name, "gold": gold, "token": token, "note": note}}
}

// hoarded is a server with a campaign that has five events applied.
func hoarded(t *testing.T) (*server, databases, []string) {
	t.Helper()
	d := newDatabases(t)
	flags := writeProjections(t, hoard)
	s := start(t, d, append([]string{"--poll-interval", "100ms"}, flags...)...)
	appendTo(t, s, "", "c-1", []event{
		foundGold("chest", 5, "tok-first-1234", ""), foundGold("urn", 1, "tok-other-5678", "the key is sk_live_abcdef0123456789"),
		foundGold("chest", 9, "tok-second-"+strings.Repeat("9", 900), "sk_live_zyxwvu9876543210"), {EventType: "lost", Payload: map[string]any{"name": "urn"}},
		foundGold("vase", 2, "", strings.Repeat("a long note ", 400)),
	})
	s.awaitSettled(t)
	return s, d, flags
}

func TestBrowser_aReadModelIsShownAsOfAnyEvent(t *testing.T) {
	t.Parallel()
	s, _, _ := hoarded(t)
	b := openTab(t, s)
	for _, size := range []viewport{wide, narrow} {
		b.size(size)
		b.open("/campaigns/c-1")
		b.click(marked("read-model"))
		b.at("/campaigns/c-1/read-model")
		b.await("it is as of the last event", telling(marked("as-of-seq"), "Event 5 of 5"))
		b.sound("the read model at the last event")
		b.do("two events back by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
		b.await("the rows follow the slider", telling(marked("as-of-seq"), "Event 3 of 5")+" && "+telling(marked("changed-hoard"), "changed")+" && "+telling(marked("changed-hoard"), "9"))
		b.await("so does the address", `location.search.includes("seq=3")`)
		b.sound("the read model at a change")
		if wider := value[int](b, `document.documentElement.scrollWidth - innerWidth`); wider > 0 {
			t.Errorf("at %d pixels the page is %d pixels wider", size.width, wider)
		}
		b.click(marked("previous"))
		b.await("a row is added", telling(marked("changed-hoard"), "added"))
	}
	b.size(wide)
	b.open("/campaigns/c-1/read-model?seq=4")
	b.await("a row is removed", telling(marked("changed-hoard"), "removed"))
	b.click(marked("table-hoard") + ` td[data-label="gold"] a`)
	b.await("what set the cell is told", telling(marked("set-by"), "event 3")+" && "+telling(marked("set-by"), "hoard.sql:10")+" && "+telling(marked("set-by"), "found"))
	b.await("and what it was before", telling(marked("earlier"), "5"))
	b.sound("a cell")
	b.open("/campaigns/c-1/events/3?tab=rows")
	b.await("the rows changed are shown", telling(marked("rows-changed"), "chest")+" && "+telling(marked("changed-hoard"), "9"))
	b.sound("the rows that an event changed")
}

func TestBrowser_aReadModelIsShownWithoutScripts(t *testing.T) {
	t.Parallel()
	s, _, _ := hoarded(t)
	b := openTabWithoutScripts(t, s)
	b.open("/campaigns/c-1/read-model")
	b.do("choose an event by keyboard", chromedp.Focus("#seq"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.click(marked("go"))
	b.await("the rows are those after it", telling(marked("as-of-seq"), "Event 3 of 5"))
}

// Rows are replayed from the journal, and readers may see older ones.
func TestReadModel_saysWhatAPausedProjectionLacks(t *testing.T) {
	t.Parallel()
	s, _, _ := hoarded(t)
	s.post(t, http.StatusOK, "/api/v1/projections/hoard/pause", struct{}{})
	appendTo(t, s, "", "c-1", []event{foundGold("chest", 77, "", "")})
	s.awaitSettled(t)
	b := openTab(t, s)
	b.open("/campaigns/c-1/read-model")
	b.await("readers see older rows", telling(marked("held-rows"), "Readers see older ones, as projection hoard is paused for all campaigns, 1 event behind")+" && "+telling(marked("table-hoard"), "77"))
	b.sound("the read model of a paused projection")
	b.open("/campaigns/c-1/read-model?seq=5")
	b.await("these are what readers see", telling(marked("as-of-seq"), "Event 5 of 6")+" && !document.querySelector("+js(marked("held-rows"))+")")
	b.open("/campaigns/c-1/read-model?live=1")
	b.await("the live rows are older", telling(marked("held-rows"), "hoard is paused for all campaigns, 1 event behind")+" && !"+telling(marked("table-hoard"), "77"))
	b.open("/campaigns/c-1/events/6?tab=rows")
	b.await("the event's rows are replayed", telling(marked("held-rows"), "Readers see older ones")+" && "+telling(".rowstate", "applied in part"))
	b.sound("an event that a paused projection lacks")
}

// varying are times, identifiers, ports and temporary directories, in which any three digits can be.
var varying = regexp.MustCompile(`\d\d:\d\d:\d\d[.,]?\d*|[0-9a-f]{8}-[0-9a-f-]{27}|/static/[0-9a-f]{16}|127\.0\.0\.1:\d+|[^ "'=]*/Test[^/]+/\d+`)

// Secrets are hidden in rows, differences, cells and commands, and nothing tells their length.
func TestReadModel_hidesSecrets(t *testing.T) {
	t.Parallel()
	s, d, flags := hoarded(t)
	var row struct {
		Changes []struct {
			Rows []struct{ Row string }
		}
	}
	s.get(t, "/api/v1/campaigns/c-1/read-model?seq=3", &row)
	texts := []string{command(t, d, nil, append([]string{"campaigns", "rows", "c-1", "--seq", "3"}, flags...)...).stdout}
	for seq := range 6 {
		paths := []string{fmt.Sprintf("/campaigns/c-1/read-model?seq=%d", seq), fmt.Sprintf("/api/v1/campaigns/c-1/read-model?seq=%d", seq)}
		if seq > 2 {
			for _, column := range []string{"api_token", "note"} {
				paths = append(paths, fmt.Sprintf("/campaigns/c-1/read-model/cell?row=%s&column=%s&seq=%d", row.Changes[0].Rows[0].Row, column, seq),
					fmt.Sprintf("/api/v1/campaigns/c-1/read-model/cell?row=%s&column=%s&seq=%d", row.Changes[0].Rows[0].Row, column, seq))
			}
			paths = append(paths, fmt.Sprintf("/api/v1/campaigns/c-1/events/%d/changes", seq))
		}
		for _, path := range append(paths, "/campaigns/c-1/read-model?live=1") {
			a, err := s.do(t.Context(), http.MethodGet, path, nil)
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%s: %d, %v\n%s", path, a.status, err, a.body)
			}
			texts = append(texts, path+"\n"+string(a.body))
		}
	}
	secrets := regexp.MustCompile(`tok-|sk_live|abcdef0123|zyxwvu|99999|\b(918|920)\b`)
	for _, text := range texts {
		text = varying.ReplaceAllString(text, "")
		if at := secrets.FindStringIndex(text); at != nil {
			t.Errorf("%q is told:\n%s", text[at[0]:at[1]], text[max(0, at[0]-300):min(len(text), at[1]+300)])
		}
	}
	if !strings.Contains(texts[0], `gold=9 (was 5)`) {
		t.Errorf("the command prints\n%s", texts[0])
	}
}

// The files of a killed server have no names, so that nothing is left. After a restart with other
// projections the rows are theirs.
func TestReadModel_leavesNothingWhenKilledAndFollowsTheProjections(t *testing.T) {
	// not parallel: the servers have a directory for temporary files of their own
	dir := t.TempDir()
	t.Setenv("SQLITE_TMPDIR", dir)
	t.Setenv("TMPDIR", dir)
	s, d, _ := hoarded(t)
	var m json.RawMessage
	s.get(t, "/api/v1/campaigns/c-1/read-model", &m)
	s.kill()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		if strings.Contains(file.Name(), "etilqs") || strings.Contains(file.Name(), "sqlite") {
			t.Errorf("%s is left", file.Name())
		}
	}
	changed := map[string]string{"hoard.sql": strings.Replace(hoard["hoard.sql"], ":payload.gold!,", ":payload.gold! * 10,", 1)}
	s = start(t, d, append([]string{"--poll-interval", "100ms"}, writeProjections(t, changed)...)...)
	s.get(t, "/api/v1/campaigns/c-1/read-model?seq=1", &m)
	if !strings.Contains(string(m), `"value":50`) {
		t.Errorf("with the changed projection the rows are %s", m)
	}
}
