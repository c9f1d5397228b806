package projection

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
)

// realData is a folder outside the repository with a journal that a game
// server wrote, and what that server's own code made of it.
const realData = "../../../shared/data"

func realFile(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(realData, name))
	if errors.Is(err, os.ErrNotExist) {
		if os.Getenv("CI") != "" {
			t.Fatalf("the real input %s is missing, and CI must have it", name)
		}
		t.Skipf("the real input %s is not here", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// realJournal reads the journal, as its events are stored, by campaign.
func realJournal(t testing.TB) (campaigns []string, events map[string][]outbox.Event) {
	t.Helper()
	zr, err := gzip.NewReader(realFile(t, "journal.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	events = make(map[string][]outbox.Event)
	lines := bufio.NewScanner(zr)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		e, err := outbox.ParseEvent(lines.Bytes())
		if err == nil {
			err = e.Normalize(outbox.DefaultMaxPayload)
		}
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		e.Position = int64(n)
		if events[e.CampaignID] == nil {
			campaigns = append(campaigns, e.CampaignID)
		}
		events[e.CampaignID] = append(events[e.CampaignID], e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return campaigns, events
}

var auditOnly = map[string]bool{
	"sys.daggerheart.gm_move_applied": true, "story.note_added": true, "action.outcome_rejected": true,
}

// foldCampaign applies events until one fails, and returns how many it
// applied and that failure.
func foldCampaign(ctx context.Context, c fold, events []outbox.Event) (applied int, err error) {
	for i := range events {
		if auditOnly[events[i].EventType] {
			applied++
			continue
		}
		if err := c.Apply(ctx, &events[i]); err != nil {
			return applied, err
		}
		applied++
	}
	return applied, nil
}

func TestBuiltinCampaigns_makesTheReferenceOfTheRealJournal(t *testing.T) {
	campaigns, events := realJournal(t)
	reference := map[string]map[string][]string{}
	tables := []string{"campaigns", "participants", "characters", "sessions"}
	for _, table := range tables {
		reference[table] = readReference(t, table)
	}
	c := newFold(t, "builtin:campaigns")
	start, applied, compared := time.Now(), 0, 0
	var failures []string
	for _, id := range campaigns {
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := foldCampaign(t.Context(), c, events[id])
		applied += n
		if err != nil {
			failures = append(failures, fmt.Sprintf("%s/%d %v", id, n+1, err))
		}
		if reference["campaigns"][id] == nil {
			continue
		}
		compared++
		for _, table := range tables {
			if diff := cmp.Diff(reference[table][id], tableRows(t, c, table)); diff != "" {
				t.Errorf("%s of campaign %s (-reference +ours):\n%s", table, id, diff)
			}
		}
	}
	t.Logf("%d events of %d campaigns in %v, %d campaigns compared", applied, len(campaigns), time.Since(start), compared)
	if compared != len(reference["campaigns"]) || compared == 0 {
		t.Errorf("compared %d campaigns, the reference has %d", compared, len(reference["campaigns"]))
	}
	want, reason := "bdsewd4qujfbhle3m7pgb4wrzy/5 projection campaigns", "UNIQUE constraint failed: participants.campaign_id, participants.user_id"
	if dbtest.Postgres() {
		reason = `duplicate key value violates unique constraint "participants_user"`
	}
	if len(failures) != 1 || !strings.HasPrefix(failures[0], want) || !strings.HasSuffix(failures[0], reason) {
		t.Errorf("failures %q, want one: %s … %s", failures, want, reason)
	}
}

// readReference reads the rows of a reference table by campaign, as tableRows
// writes them.
func readReference(t *testing.T, table string) map[string][]string {
	t.Helper()
	byCampaign := map[string][]string{}
	lines := bufio.NewScanner(realFile(t, "reference/"+table+".jsonl"))
	for lines.Scan() {
		dec := json.NewDecoder(strings.NewReader(lines.Text()))
		dec.UseNumber()
		var row map[string]any
		if err := dec.Decode(&row); err != nil {
			t.Fatal(err)
		}
		for name, v := range row {
			if n, ok := v.(json.Number); ok {
				i, err := n.Int64()
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(name, "_at") {
					i *= 1000 // the reference has milliseconds
				}
				row[name] = i
			}
		}
		id := row["campaign_id"].(string)
		byCampaign[id] = append(byCampaign[id], rowText(row))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, rows := range byCampaign {
		slices.Sort(rows)
	}
	return byCampaign
}

func rowText(row map[string]any) string {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// tableRows reads a scratch table's rows with all their columns, sorted.
func tableRows(t testing.TB, c fold, table string) []string {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), "select * from "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		out = append(out, rowText(row))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func mustLoad(t testing.TB, sources ...string) *Set {
	t.Helper()
	s, err := Load("sqlite", sources...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newScratch(t testing.TB, s *Set) *Scratch {
	t.Helper()
	c, err := s.NewScratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close scratch: %v", err)
		}
	})
	return c
}

// The rules that the real journal happens not to exercise.
func TestBuiltinCampaigns_rules(t *testing.T) {
	t.Parallel()
	c := newFold(t, "builtin:campaigns")
	seq := int64(0)
	apply := func(eventType, entity, payload string) {
		t.Helper()
		seq++
		e := outbox.Event{CampaignID: "c", Seq: seq, EventType: eventType, EntityID: entity, ActorID: "p-1",
			OccurredAt: time.UnixMicro(seq), Payload: json.RawMessage(payload)}
		if err := c.Apply(t.Context(), &e); err != nil {
			t.Fatalf("%s: %v", eventType, err)
		}
	}
	expect := func(query, want string) {
		t.Helper()
		rows, err := c.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var got []string
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			got = append(got, s)
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("after event %d: %s\n is   %s\n want %s", seq, query, text, want)
		}
	}
	const counts = "select participant_count || '/' || character_count || '@' || updated_at from campaigns"
	const life = "select status || ' ' || coalesce(completed_at, 0) || ' ' || coalesce(archived_at, 0) from campaigns"

	apply("campaign.created", "c", `{"name":" Harbor ","locale":"PT_br"}`) // 1
	expect("select name || ' ' || locale || ' ' || gm_mode || ' ' || access_policy from campaigns", "Harbor pt-BR HUMAN PRIVATE")
	apply("participant.joined", "p-1", `{"name":"Ana","user_id":"u-1"}`)
	apply("participant.joined", "p-1", `{"name":"Ann","user_id":"u-1"}`) // again: one seat
	apply("participant.joined", "p-2", `{"name":"Bo"}`)
	apply("participant.joined", "p-3", `{"name":"Cy","user_id":""}`) // many seats without a user
	expect(counts, "3/0@5")
	apply("participant.left", "p-3", `{}`)
	apply("participant.left", "p-3", `{}`) // gone already
	expect(counts, "2/0@7")
	apply("participant.unbound", "p-1", `{}`)
	apply("participant.seat_reassigned", "p-2", `{"user_id":"u-1"}`)
	apply("participant.updated", "p-2", `{"fields":{"name":"Bob","role":"gm","pronouns":"they"}}`)
	expect("select id || ':' || display_name || ':' || user_id || ':' || role from participants order by id", "p-1:Ann::PLAYER p-2:Bob:u-1:GM")
	expect(counts, "2/0@10")
	apply("participant.updated", "p-2", `{"fields":{}}`) // says nothing
	expect(counts, "2/0@10")
	apply("character.created", "ch-1", `{"name":"Ash","aliases":["A"]}`) // 12
	apply("character.updated", "ch-1", `{"fields":{"kind":"npc","aliases":"[\"B\"]"}}`)
	expect("select name || ' ' || owner_participant_id || ' ' || kind || ' ' || aliases_json from characters", `Ash p-1 NPC ["B"]`)
	apply("character.deleted", "ch-1", `{}`)
	apply("character.deleted", "ch-1", `{}`)
	expect(counts, "2/0@15")
	apply("campaign.updated", "c", `{"fields":{"status":"completed"}}`) // 16
	apply("campaign.updated", "c", `{"fields":{"status":"archived"}}`)
	apply("campaign.updated", "c", `{"fields":{"name":"","locale":"tlh","theme_prompt":"sea"}}`)
	expect(life, "ARCHIVED 16 17")
	expect("select name || ' ' || locale || ' ' || theme_prompt from campaigns", "Harbor pt-BR sea")
	apply("campaign.updated", "c", `{"fields":{"status":"draft"}}`)
	expect(life, "DRAFT 0 0")
	apply("campaign.forked", "c", `{"parent_campaign_id":"b","fork_event_seq":2,"origin_campaign_id":"a"}`) // 20
	expect("select parent_campaign_id || fork_event_seq || origin_campaign_id || '@' || updated_at from campaigns", "b2a@19")
	apply("session.started", "s-1", `{"session_name":"One"}`) // 21
	apply("session.ended", "", `{"session_id":"s-1"}`)
	apply("session.ended", "s-1", `{}`) // has ended already
	expect("select id || ' ' || status || ' ' || started_at || ' ' || ended_at from sessions", "s-1 ENDED 21 22")
}
