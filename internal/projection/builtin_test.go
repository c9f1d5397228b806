package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// byCampaign is the events of a journal by campaign, and the campaigns in the order of their first events.
func byCampaign(all []event.Event) (campaigns []string, events map[string][]event.Event) {
	events = make(map[string][]event.Event)
	for _, e := range all {
		if events[e.CampaignID] == nil {
			campaigns = append(campaigns, e.CampaignID)
		}
		events[e.CampaignID] = append(events[e.CampaignID], e)
	}
	return campaigns, events
}

// replayCampaign applies events until one fails, and returns how many it applied and that failure.
func replayCampaign(ctx context.Context, c *replay, events []event.Event) (applied int, err error) {
	for i := range events {
		if err := c.Apply(ctx, &events[i]); err != nil {
			return applied, err
		}
		applied++
	}
	return applied, nil
}

// Every campaign ends with the expected rows, and the poisoned one at the event that gives a user a second seat.
func TestBuiltinCampaigns_makesTheExpectedTables(t *testing.T) {
	weight := corpus.Light
	if dbtest.Postgres() {
		weight = corpus.Long
	}
	corpus.EachJournal(t, weight, func(t *testing.T, j corpus.Journal) {
		all := j.Parse(t)
		campaigns, events := byCampaign(all)
		expected := map[string]map[string][]string{}
		for table, rows := range j.Expected {
			expected[table] = map[string][]string{}
			for _, row := range rows {
				id := row["campaign_id"].(string)
				expected[table][id] = append(expected[table][id], rowText(row))
			}
		}
		c := newReplay(t, "builtin:campaigns")
		for _, p := range mustLoad(t, "builtin:campaigns").Projections() {
			for _, eventType := range p.EventTypes {
				occurs := func(e event.Event) bool { return e.EventType == eventType }
				must.Hold(t, j.Name != "made" || slices.ContainsFunc(all, occurs), "the made journal has no %s", eventType)
			}
		}
		compared := 0
		var failures []string
		for _, id := range campaigns {
			must.OK(t, c.Reset(t.Context()))
			if n, err := replayCampaign(t.Context(), c, events[id]); err != nil {
				failures = append(failures, fmt.Sprintf("%s/%d %v", id, n+1, err))
			}
			if expected["campaigns"][id] == nil {
				continue
			}
			compared++
			for _, table := range corpus.Tables {
				slices.Sort(expected[table][id])
				must.Equal(t, tableRows(t, c, table), expected[table][id], table, "of campaign", id)
			}
		}
		must.Hold(t, compared == len(expected["campaigns"]) && compared != 0, "compared %d campaigns, rows are expected of %d", compared, len(expected["campaigns"]))
		want, reason := fmt.Sprintf("%s/%d projection campaigns", j.Poisoned, j.PoisonedSeq), "UNIQUE constraint failed: participants.campaign_id, participants.user_id"
		if dbtest.Postgres() {
			reason = `duplicate key value violates unique constraint "participants_user"`
		}
		must.Hold(t, len(failures) == 1 && strings.HasPrefix(failures[0], want) && strings.HasSuffix(failures[0], reason), "failures %q, want one: %s … %s", failures, want, reason)
	})
}

func rowText[R ~map[string]any](row R) string {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func tableRows(t testing.TB, c *replay, table string) []string {
	rows := must.Get(c.QueryContext(t.Context(), "select * from "+table)).Or(t)
	defer rows.Close()
	names := must.Get(rows.Columns()).Or(t)
	var out []string
	for rows.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		must.OK(t, rows.Scan(into...))
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		out = append(out, rowText(row))
	}
	must.OK(t, rows.Err())
	slices.Sort(out)
	return out
}

func mustLoad(t testing.TB, sources ...string) *Set {
	return must.Get(Load("sqlite", sources...)).Or(t)
}

// Rules that no journal of the corpus exercises.
func TestBuiltinCampaigns_rules(t *testing.T) {
	t.Parallel()
	c, seq := newReplay(t, "builtin:campaigns"), int64(0)
	apply := func(eventType, entity, payload string) {
		seq++
		e := event.Event{CampaignID: "c", Seq: seq, EventType: eventType, EntityID: entity, ActorID: "p-1", OccurredAt: time.UnixMicro(seq), Payload: json.RawMessage(payload)}
		must.OK(t, c.Apply(t.Context(), &e))
	}
	expect := func(query, want string) {
		must.Equal(t, strings.Join(linesOf(t, c, query), " "), want, "after event", seq, query, "is")
	}
	apply("campaign.created", "c", `{"name":"Harbor"}`) // 1
	apply("participant.joined", "p-1", `{"name":"Ana","user_id":"u-1"}`)
	apply("participant.updated", "p-1", `{"fields":{}}`) // says nothing
	expect("select participant_count || '/' || character_count || '@' || updated_at from campaigns", "1/0@2")
	apply("campaign.updated", "c", `{"fields":{"status":"completed"}}`) // 4
	apply("campaign.updated", "c", `{"fields":{"status":"archived"}}`)
	apply("campaign.updated", "c", `{"fields":{"status":"draft"}}`)
	expect("select status || ' ' || coalesce(completed_at, 0) || ' ' || coalesce(archived_at, 0) from campaigns", "DRAFT 0 0")
	apply("campaign.forked", "c", `{"parent_campaign_id":"b","fork_event_seq":2,"origin_campaign_id":"a"}`) // 7
	expect("select parent_campaign_id || fork_event_seq || origin_campaign_id || '@' || updated_at from campaigns", "b2a@6")
}

// saysWhere is the beginning of a refusal about a file: its name and a line.
var saysWhere = regexp.MustCompile(`^f\.sql:[1-9][0-9]*: `)

// longestLoad bounds the time to load a file of a few kilobytes, which takes a few milliseconds unless it never ends.
const longestLoad = 30 * time.Second

// FuzzProjectionFile loads any file. It is loaded, or refused with the line of the fault, within a bounded time.
func FuzzProjectionFile(f *testing.F) {
	for _, content := range []string{roster, head, "-- projection: p\n-- schema: create", "", "\ufeff" + head, strings.ReplaceAll(head, "\n", "\r\n")} {
		f.Add(content)
	}
	shipped, err := filepath.Glob("builtin/*/*.sql")
	must.Need(f, err == nil && len(shipped) != 0, "there are no files to begin with: %v", err)
	for _, name := range shipped {
		content := must.Get(os.ReadFile(name)).Or(f)
		f.Add(string(content))
	}
	f.Fuzz(func(t *testing.T, content string) {
		started := time.Now()
		for _, dialect := range dialects {
			s, err := build(dialect, []file{{name: "f.sql", content: content}})
			switch {
			case err == nil && (len(s.projections) != 1 || s.projections[0].Name == ""):
				t.Fatalf("loaded %+v", s.projections)
			case err != nil && (!errors.Is(err, event.ErrSetup) || !saysWhere.MatchString(err.Error())):
				t.Fatalf("the refusal is %q", err)
			}
		}
		took := time.Since(started)
		must.Need(t, took <= longestLoad, "%d bytes took %s", len(content), took)
	})
}
