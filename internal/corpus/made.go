package corpus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/sample"
)

// What the made data is generated from. Another seed is another journal, with
// another poisoned campaign.
const (
	seed            = 7
	sampleCampaigns = 40
	sampleEvents    = 1500
)

var end = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// makeJournal is the sample journal and, behind it, the campaign ferry.
func makeJournal(tb testing.TB) Journal {
	tb.Helper()
	j := Journal{
		Name: "made", Events: sampleEvents + len(ferry), Campaigns: sampleCampaigns + 1,
		Poisoned: "pivpvumn3tepa4jaiiwleq3nwg", PoisonedSeq: 80, Waiting: 114,
		AuditOnly: []string{"sys.emberfall.gm_move_applied", "story.note_added", "action.roll_resolved", "action.outcome_applied"},
		Expected:  readTables(tb, expected(tb), "."),
	}
	for e := range sample.Events(sample.Config{Campaigns: sampleCampaigns, Events: sampleEvents, Poison: 1, Seed: seed, End: end}) {
		j.Lines = append(j.Lines, line(tb, e)...)
	}
	for i, step := range ferry {
		j.Lines = append(j.Lines, line(tb, event.Event{
			CampaignID: "ferry", Seq: int64(i + 1), EventID: fmt.Sprintf("ferry-%d", i+1), EventType: step.eventType,
			OccurredAt: end.Add(time.Duration(i) * 1500 * time.Millisecond), ActorType: "participant", ActorID: "p-1",
			EntityID: step.entity, Payload: json.RawMessage(step.payload),
		})...)
	}
	return j
}

func line(tb testing.TB, e event.Event) []byte {
	tb.Helper()
	return must.Get(sample.Line(e)).Or(tb)
}

// ferry holds the event types of builtin:campaigns, and the values, that sample
// does not make.
var ferry = []struct{ eventType, entity, payload string }{
	{"campaign.created", "ferry", `{"name":" The Ferry ","game_system":"emberfall","locale":"PT_br"}`},
	{"campaign.forked", "ferry", `{"parent_campaign_id":"barge","fork_event_seq":12,"origin_campaign_id":"raft"}`},
	{"participant.joined", "p-1", `{"name":"Ana","role":"gm","user_id":"u-1"}`},
	{"participant.joined", "p-2", `{"name":"Bo"}`},
	{"participant.joined", "p-3", `{"name":"Cy","user_id":""}`},
	{"participant.joined", "p-4", `{"name":"Di","user_id":"u-4"}`},
	{"participant.bound", "p-2", `{"user_id":" u-2 "}`},
	{"participant.unbound", "p-4", `{}`},
	{"participant.seat_reassigned", "p-3", `{"user_id":"u-4"}`},
	{"participant.joined", "p-2", `{"name":"Bob","user_id":"u-5","pronouns":"they/them"}`},
	{"participant.updated", "p-3", `{"fields":{"name":"Cyd","role":"gm","controller":"ai","campaign_access":"manager"}}`},
	{"participant.left", "p-4", `{}`},
	{"participant.left", "p-4", `{}`},
	{"character.created", "ch-1", `{"name":" Ash ","kind":"npc","aliases":["A","Cinder"],"pronouns":"it/its"}`},
	{"character.created", "ch-2", `{"name":"Elm","owner_participant_id":"p-2","notes":" tall "}`},
	{"character.updated", "ch-2", `{"fields":{"name":"Elmo","kind":"npc","owner_participant_id":"p-3","aliases":"[\"E\"]"}}`},
	{"character.updated", "ch-1", `{"fields":{}}`},
	{"character.created", "ch-3", `{"name":"Fir"}`},
	{"character.deleted", "ch-3", `{}`},
	{"character.deleted", "ch-3", `{}`},
	{"session.started", "s-1", `{"session_name":" One "}`},
	{"session.ended", "", `{"session_id":"s-1"}`},
	{"session.ended", "s-1", `{}`},
	{"campaign.updated", "ferry", `{"fields":{"status":"completed","name":"The Night Ferry","theme_prompt":" fog "}}`},
	{"campaign.updated", "ferry", `{"fields":{"status":"archived","locale":"en_US"}}`},
	{"campaign.updated", "ferry", `{"fields":{"locale":"tlh","name":""}}`},
	{"participant.bound", "p-3", `{"user_id":"u-3"}`},
}

// makeTraces makes five traces up.
func makeTraces(tb testing.TB) Traces {
	tb.Helper()
	digests := readDigests(tb, expected(tb), "digests.json")
	var traces Traces
	for i, name := range []string{"credit_limit", "hotfix", "refund", "shift_swap", "visa"} {
		trace := Trace{Name: name, Digests: digests[name]}
		for _, e := range makeTrace(name, i) {
			trace.Lines = append(trace.Lines, line(tb, e))
		}
		traces = append(traces, trace)
	}
	return traces
}

// makeTrace makes up the trace with an index. Every second one requests an
// exception, one has an approval without one, one is about no entity, one ends twice, and
// the last does not end.
func makeTrace(name string, i int) []event.Event {
	rng := rand.New(rand.NewPCG(seed, uint64(i)))
	trace := fmt.Sprintf("%016x", rng.Uint64())
	at := end.Add(time.Duration(i) * time.Hour)
	var all []event.Event
	add := func(eventType, payload string, args ...any) {
		all = append(all, event.Event{
			CampaignID: name, Seq: int64(len(all) + 1), EventID: fmt.Sprintf("%016x", rng.Uint64()), EventType: eventType, OccurredAt: at,
			ActorType: "agent", ActorID: name + "-bot", EntityType: "trace", EntityID: trace, Payload: fmt.Appendf(nil, payload, args...),
		})
		at = at.Add(time.Duration(1+rng.IntN(90_000)) * time.Millisecond)
	}
	id := func(kind string) string { return fmt.Sprintf("%s:%d", kind, rng.IntN(10_000)) }
	entity := func() string {
		kind := []string{"account", "order", "ticket"}[rng.IntN(3)]
		return fmt.Sprintf(`{"entity_type":%q,"entity_id":%q,"system":"desk"}`, kind, id(kind))
	}
	policy := func() string { return fmt.Sprintf(`{"policy_id":"cap","policy_version":"%d.%d"}`, i, rng.IntN(9)) }
	about := func() string {
		if i == 3 {
			return "null"
		}
		return entity()
	}
	approve := func(subject, id, by string) {
		add("ApprovalRecorded", `{"approver":{"actor_type":"person","actor_id":%q},"decision":"approved","subject":{"subject_type":%q,"subject_id":%q}}`, by, subject, id)
	}

	add("TraceStarted", `{"workflow":%q,"title":"Made up: %s","primary_entity":%s}`, name, name, about())
	if i != 2 {
		add("EntityObserved", `{"entity":%s,"role":"related"}`, entity())
		add("InputObserved", `{"input_id":%q}`, id("input"))
	}
	add("PolicyEvaluated", `{"policy":%s,"decision":"allow"}`, policy())
	if i%2 == 0 {
		exception := id("exc")
		add("ExceptionRequested", `{"exception_id":%q,"policy":%s}`, exception, policy())
		approve("exception", exception, id("lead"))
	} else {
		add("PrecedentCited", `{"cited_trace_id":%q}`, id("old"))
	}
	action := id("act")
	add("ActionProposed", `{"action_id":%q,"target_entity":%s}`, action, about())
	switch i {
	case 1:
		approve("action", action, id("lead"))
	case 3:
		approve("exception", id("exc"), id("lead")) // of which no event tells
	}
	if i != 1 {
		add("ActionCommitted", `{"action_id":%q,"status":"success"}`, action)
	}
	if i == 4 {
		return all
	}
	add("TraceFinished", `{"outcome":%q}`, []string{"success", "failure", "abandoned"}[rng.IntN(3)])
	if i == 2 {
		add("PolicyEvaluated", `{"policy":%s,"decision":"deny"}`, policy())
		add("TraceFinished", `{"outcome":"failure"}`)
	}
	return all
}
