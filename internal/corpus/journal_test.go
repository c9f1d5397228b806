package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

var update = flag.Bool("update", false, "write what is expected of the made data to testdata")

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(filepath.Join("testdata", name), text, 0o644))
}

// The made data changes on purpose only: with it change the inputs of many tests.
func TestMade_isTheSameAsBefore(t *testing.T) {
	t.Parallel()
	var traces []byte
	for _, trace := range makeTraces(t) {
		traces = append(traces, bytes.Join(trace.Lines, nil)...)
	}
	got := fmt.Appendf(nil, "%x  journal\n%x  traces\n", sha256.Sum256(makeJournal(t).Lines), sha256.Sum256(traces))
	if *update {
		write(t, "made.sha256", got)
		return
	}
	must.Equal(t, string(got), string(readFile(t, expected(t), "made.sha256")), "the made data has changed; if it should, run go test ./internal/corpus -update")
}

// The tables expected of the made journal, and the reference tables of the recorded one, are what the model makes of the events.
func TestJournal_expectedTablesAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	EachJournal(t, Heavy, func(t *testing.T, j Journal) {
		t.Parallel()
		m := model{}
		for _, table := range Tables {
			m[table] = map[string]Row{}
		}
		refused := map[string]int64{} // by campaign: the event that failed
		campaigns, waiting, types := map[string]bool{}, 0, map[string]bool{}
		events := j.Parse(t)
		for _, e := range events {
			campaigns[e.CampaignID], types[e.EventType] = true, true
			if refused[e.CampaignID] == 0 {
				if err := m.apply(e); err == nil {
					continue
				}
				refused[e.CampaignID] = e.Seq
			}
			waiting++
		}
		diff := cmp.Diff(map[string]int64{j.Poisoned: j.PoisonedSeq}, refused)
		must.Hold(t, diff == "" && waiting == j.Waiting, "%d events wait behind the poisoned one, want %d; poisoned (-want +model):\n%s", waiting, j.Waiting, diff)
		must.Hold(t, len(events) == j.Events && len(campaigns) == j.Campaigns, "%d events of %d campaigns, want %d of %d", len(events), len(campaigns), j.Events, j.Campaigns)
		for _, eventType := range j.AuditOnly {
			must.Hold(t, j.Name != "made" || types[eventType], "no event is of the audit-only type %s", eventType)
		}
		if *update && j.Name == "made" {
			for table, rows := range m {
				write(t, table+".jsonl", lines(t, rows))
			}
			return
		}
		known := byKey(j.Expected["campaigns"])
		for table, rows := range m {
			maps.DeleteFunc(rows, func(_ string, row Row) bool { return known[row["campaign_id"].(string)] == nil })
			must.Equal(t, rows, byKey(j.Expected[table]), table)
		}
	})
}

// byKey is rows by campaign_id, or by campaign_id and id.
func byKey(rows []Row) map[string]Row {
	keyed := map[string]Row{}
	for _, row := range rows {
		if id, ok := row["id"]; ok {
			keyed[fmt.Sprint(row["campaign_id"], "/", id)] = row
		} else {
			keyed[row["campaign_id"].(string)] = row
		}
	}
	return keyed
}

// lines is rows as testdata keeps them: a line each, times in milliseconds.
func lines(t *testing.T, rows map[string]Row) []byte {
	t.Helper()
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		row := maps.Clone(rows[key])
		for column, value := range row {
			if us, ok := value.(int64); ok && strings.HasSuffix(column, "_at") {
				row[column] = us / 1000
			}
		}
		line := must.Get(json.Marshal(row)).Or(t)
		text = append(append(text, line...), '\n')
	}
	return text
}

// model is builtin:campaigns in Go, written from the rules and not from the SQL:
// rows by table and key. It knows the values that the journals hold, no others.
type model map[string]map[string]Row

var errSecondSeat = errors.New("the user has another seat")

func (m model) apply(e outbox.Event) error {
	var p map[string]any
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return err
	}
	fields, _ := p["fields"].(map[string]any)
	at, campaign, key := e.OccurredAt.UnixMicro(), m["campaigns"][e.CampaignID], e.CampaignID+"/"+e.EntityID
	kind, what, _ := strings.Cut(e.EventType, ".")
	switch kind {
	case "participant":
		if user := field(p, "user_id", field(fields, "user_id", "")); user != "" {
			for other, seat := range m["participants"] {
				if seat["campaign_id"] == e.CampaignID && seat["user_id"] == user && other != key {
					return errSecondSeat
				}
			}
		}
		fallthrough
	case "character":
		if what == "updated" && len(fields) == 0 {
			return nil
		}
		campaign["updated_at"] = at
		rows, count := m[kind+"s"], kind+"_count"
		switch row := rows[key]; what {
		case "joined", "created":
			if row == nil {
				campaign[count] = campaign[count].(int64) + 1
			}
			rows[key] = newcomer(kind, e, p)
		case "left", "deleted":
			if row != nil {
				campaign[count] = campaign[count].(int64) - 1
			}
			delete(rows, key)
		case "bound", "seat_reassigned", "unbound":
			row["user_id"], row["updated_at"] = field(p, "user_id", ""), at
		case "updated":
			change(row, fields, "name", map[string]string{"participant": "display_name", "character": "name"}[kind])
			for _, column := range []string{"user_id", "role", "controller", "campaign_access", "pronouns", "owner_participant_id", "kind", "notes"} {
				change(row, fields, column, column)
			}
			change(row, fields, "aliases", "aliases_json")
			row["updated_at"] = at
		}
	case "campaign":
		switch {
		case what == "created":
			m["campaigns"][e.CampaignID] = Row{
				"campaign_id": e.CampaignID, "name": field(p, "name", ""), "locale": locale(p, "en-US"), "game_system": upper(p, "game_system", ""), "status": "DRAFT",
				"gm_mode": upper(p, "gm_mode", "HUMAN"), "intent": upper(p, "intent", "STANDARD"), "access_policy": upper(p, "access_policy", "PRIVATE"),
				"participant_count": int64(0), "character_count": int64(0), "theme_prompt": field(p, "theme_prompt", ""),
				"parent_campaign_id": nil, "fork_event_seq": nil, "origin_campaign_id": nil,
				"created_at": at, "updated_at": at, "completed_at": nil, "archived_at": nil,
			}
		case what == "forked":
			campaign["parent_campaign_id"], campaign["origin_campaign_id"] = p["parent_campaign_id"], p["origin_campaign_id"]
			campaign["fork_event_seq"] = int64(p["fork_event_seq"].(float64))
		case what == "updated" && len(fields) > 0:
			for _, column := range []string{"name", "theme_prompt", "status"} {
				change(campaign, fields, column, column)
			}
			campaign["locale"], campaign["updated_at"] = locale(fields, campaign["locale"].(string)), at
			if column := map[any]string{"COMPLETED": "completed_at", "ARCHIVED": "archived_at"}[campaign["status"]]; fields["status"] != nil && column != "" && campaign[column] == nil {
				campaign[column] = at
			}
		}
	case "session":
		id := field(p, "session_id", e.EntityID)
		switch row := m["sessions"][e.CampaignID+"/"+id]; {
		case what == "started":
			m["sessions"][e.CampaignID+"/"+id] = Row{"campaign_id": e.CampaignID, "id": id, "name": field(p, "session_name", ""), "status": "ACTIVE",
				"started_at": at, "updated_at": at, "ended_at": nil}
		case what == "ended" && row["status"] == "ACTIVE":
			row["status"], row["updated_at"], row["ended_at"] = "ENDED", at, at
		}
	}
	return nil
}

// newcomer is the row of a participant who joins or a character that is created.
func newcomer(kind string, e outbox.Event, p map[string]any) Row {
	at := e.OccurredAt.UnixMicro()
	row := Row{"campaign_id": e.CampaignID, "id": e.EntityID, "pronouns": field(p, "pronouns", ""), "created_at": at, "updated_at": at}
	if kind == "participant" {
		row["user_id"], row["display_name"] = field(p, "user_id", ""), field(p, "name", "")
		row["role"], row["controller"], row["campaign_access"] = upper(p, "role", "PLAYER"), upper(p, "controller", "HUMAN"), upper(p, "campaign_access", "MEMBER")
		return row
	}
	aliases, err := json.Marshal(p["aliases"])
	if err != nil || p["aliases"] == nil {
		aliases = []byte("[]")
	}
	row["owner_participant_id"], row["name"], row["kind"] = field(p, "owner_participant_id", e.ActorID), field(p, "name", ""), upper(p, "kind", "PC")
	row["notes"], row["aliases_json"] = field(p, "notes", ""), string(aliases)
	return row
}

// change writes a field of an update, if it is there, to a column. Names and aliases cannot become empty.
func change(row Row, fields map[string]any, name, column string) {
	text := field(fields, name, "")
	if fields[name] == nil || text == "" && (name == "name" || name == "aliases") {
		return
	}
	if slices.Contains([]string{"role", "controller", "campaign_access", "kind", "status"}, name) {
		text = strings.ToUpper(text)
	}
	row[column] = text
}

func field(p map[string]any, name, absent string) string {
	if text, ok := p[name].(string); ok {
		return strings.TrimSpace(text)
	}
	return absent
}

func upper(p map[string]any, name, absent string) string {
	return strings.ToUpper(field(p, name, absent))
}

func locale(p map[string]any, absent string) string {
	switch strings.ReplaceAll(strings.ToLower(field(p, "locale", "")), "_", "-") {
	case "pt-br":
		return "pt-BR"
	case "en-us":
		return "en-US"
	}
	return absent
}
