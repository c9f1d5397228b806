package projection

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func allDigests(t testing.TB, c *replay, campaign string) map[string]string {
	digests, full := digestsOf(t, c, campaign)
	digests["full"] = full
	return digests
}

func replayAll(t testing.TB, c *replay, events []event.Event) {
	n, err := replayCampaign(t.Context(), c, events)
	must.Need(t, err == nil, "event %d: %v", n+1, err)
}

// The digests are the expected ones wherever and however often the traces are applied: alone,
// beside each other, and again after all tables were emptied.
func TestTraces_haveTheExpectedDigests(t *testing.T) {
	t.Parallel()
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		c := newReplay(t, "builtin:traces")
		for range 2 {
			for _, trace := range traces {
				replayAll(t, c, trace.Parse(t))
			}
			for _, trace := range traces {
				must.Equal(t, allDigests(t, c, trace.Name), trace.Digests, trace.Name)
			}
			must.OK(t, c.Reset(t.Context()))
		}
		for _, trace := range traces {
			alone := newReplay(t, "builtin:traces")
			replayAll(t, alone, trace.Parse(t))
			must.Equal(t, allDigests(t, alone, trace.Name), trace.Digests, trace.Name, "alone")
		}
	})
}

// traceReplay applies made-up events one after another.
type traceReplay struct {
	*testing.T
	*replay
	trace string // the entity of the events
	seq   int64
}

func newTraceReplay(t *testing.T) *traceReplay {
	return &traceReplay{T: t, replay: newReplay(t, "builtin:traces"), trace: "T"}
}

// event is the next one, named e and its seq, at second seq of 2026.
func (f *traceReplay) event(eventType, payload string) *event.Event {
	f.seq++
	return &event.Event{CampaignID: "c", Seq: f.seq, EventID: fmt.Sprint("e", f.seq), EventType: eventType,
		EntityType: "trace", EntityID: f.trace, ActorType: "service", ActorID: "bot",
		OccurredAt: time.Date(2026, 1, 1, 0, 0, int(f.seq), 0, time.UTC), Payload: json.RawMessage(payload)}
}

func (f *traceReplay) apply(eventType, payload string) *traceReplay {
	err := f.Apply(f.T.Context(), f.event(eventType, payload))
	must.Need(f, err == nil, "%s: %v", eventType, err)
	return f
}

// linesOf are the rows of a query, their columns joined by blanks, NULL as null.
func linesOf(t *testing.T, c *replay, query string) []string {
	rows := must.Get(c.QueryContext(t.Context(), query)).Or(t)
	defer rows.Close()
	var lines []string
	must.OK(t, EachRow(rows, func(cells []json.RawMessage) error {
		var fields []string
		for _, cell := range cells {
			fields = append(fields, strings.Trim(string(cell), `"`))
		}
		lines = append(lines, strings.Join(fields, " "))
		return nil
	}))
	return lines
}

func (f *traceReplay) lines(query string) []string { return linesOf(f.T, f.replay, query) }

// nodes are "id type trace seq second" and edges "id seq second" of what the events from a seq on have added.
func (f *traceReplay) nodes(from int64) []string {
	return f.lines(fmt.Sprintf(`select node_id, node_type, trace_id, log_seq, substr(created_at, 18) from context_nodes where attrs = '{}' and log_seq >= %d order by log_seq, node_id`, from))
}

func (f *traceReplay) edges(from int64) []string {
	return f.lines(fmt.Sprintf(`select edge_id, log_seq, substr(created_at, 18) from context_edges where attrs = '{}' and log_seq >= %d order by log_seq, edge_id`, from))
}

func (f *traceReplay) expect(what string, got []string, want ...string) *traceReplay {
	must.Same(f, got, want, what, "after event", f.seq)
	return f
}

const (
	started   = `{"workflow":"renewal","title":"Renew it","primary_entity":{"entity_type":"account","entity_id":"a:1","system":"crm"}}`
	evaluated = `{"policy":{"policy_id":"cap","policy_version":"3.2"},"decision":"allow"}`
	requested = `{"exception_id":"x:1","policy":{"policy_id":"cap","policy_version":"3.2"}}`
	approved  = `{"approver":{"actor_type":"person","actor_id":"vp"},"decision":"approved","subject":{"subject_type":"exception","subject_id":"x:1","exception_id":"x:1","action_id":null}}`
	proposed  = `{"action_id":"act:1","action_type":"update","target_entity":{"entity_type":"ticket","entity_id":"t1","system":"desk"}}`
	committed = `{"action_id":"act:1","status":"success"}`
	finished  = `{"outcome":"success"}`
)

// traceSteps is a trace in which every event type occurs.
var traceSteps = []struct{ eventType, payload string }{
	{"TraceStarted", started},
	{"EntityObserved", `{"entity":{"entity_type":"order","entity_id":"o1","system":"shop"},"role":"related"}`},
	{"InputObserved", `{"input_id":"input:size","source":{"object_id":"a:1"}}`},
	{"PolicyEvaluated", evaluated},
	{"ExceptionRequested", requested},
	{"PrecedentCited", `{"cited_trace_id":"OLD"}`},
	{"ApprovalRecorded", approved},
	{"ActionProposed", proposed},
	{"ActionCommitted", committed},
	{"TraceFinished", finished},
}

// The made traces and the recorded ones, which the model in internal/corpus knows, have every event type that the projections handle.
func TestTraces_eventTypesAreAllCovered(t *testing.T) {
	t.Parallel()
	handled := map[string]bool{}
	for _, p := range mustLoad(t, "builtin:traces").Projections() {
		for _, eventType := range p.EventTypes {
			handled[eventType] = true
		}
	}
	corpus.EachTraces(t, func(t *testing.T, traces corpus.Traces) {
		occur := map[string]bool{}
		for _, trace := range traces {
			for _, e := range trace.Parse(t) {
				occur[e.EventType] = true
			}
		}
		must.Equal(t, occur, handled, "event types")
	})
}

func TestTraces_firstWriterWins(t *testing.T) {
	t.Parallel()
	f := newTraceReplay(t)
	f.apply("TraceStarted", started).apply("EntityObserved", `{"entity":{"entity_type":"account","entity_id":"a:1"}}`)
	f.apply("PrecedentCited", `{"cited_trace_id":"U"}`)
	f.trace = "U"
	f.apply("TraceStarted", started)
	f.expect("nodes", f.nodes(1), "actor:service:bot actor T 1 01Z", "entity:account:a:1 entity T 1 01Z", "trace:T trace T 1 01Z", "trace:U trace U 3 03Z")
	f.expect("edges", f.edges(1),
		"trace_involves_entity:trace:T:entity:account:a:1:e1 1 01Z", "trace_involves_entity:trace:T:entity:account:a:1:e2 2 02Z",
		"trace_cited_precedent:trace:T:trace:U:e3 3 03Z", "trace_involves_entity:trace:U:entity:account:a:1:e4 4 04Z")
	again := f.event("TraceStarted", started) // the same event_id, later
	again.EventID = "e4"
	must.OK(t, f.Apply(t.Context(), again))
	f.expect("edges that an event's repetition adds", f.edges(5))
}

func TestTraces_endsThatNoEventIntroducedGetNodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		eventType, payload string
		nodes              []string
	}{
		{"EntityObserved", `{"entity":{"entity_type":"order","entity_id":"o1"}}`, []string{"entity:order:o1 entity T 1 01Z", "trace:T trace T 1 01Z"}},
		{"InputObserved", `{"input_id":"i"}`, []string{"input:i input T 1 01Z", "trace:T trace T 1 01Z"}},
		{"PolicyEvaluated", evaluated, []string{"policy:cap:3.2 policy T 1 01Z", "trace:T trace T 1 01Z"}},
		{"ExceptionRequested", requested, []string{"exception:x:1 exception T 1 01Z", "trace:T trace T 1 01Z"}},
		{"PrecedentCited", `{"cited_trace_id":"OLD"}`, []string{"trace:OLD trace OLD 1 01Z", "trace:T trace T 1 01Z"}},
		{"ApprovalRecorded", approved, []string{"actor:person:vp actor T 1 01Z", "exception:x:1 exception T 1 01Z"}},
		{"ActionProposed", proposed, []string{"action:act:1 action T 1 01Z", "entity:ticket:t1 entity T 1 01Z", "trace:T trace T 1 01Z"}},
		{"ActionCommitted", committed, []string{"action:act:1 action T 1 01Z", "trace:T trace T 1 01Z"}},
	} {
		f := newTraceReplay(t)
		f.apply(tt.eventType, tt.payload).expect(tt.eventType+" alone: nodes", f.nodes(1), tt.nodes...)
	}
}

// The summary covers a trace's start and end and nothing in between.
func TestTraces_summaryCountsStartsAndEnds(t *testing.T) {
	t.Parallel()
	const summary = `select workflow, title, primary_entity_type, primary_entity_id, outcome, substr(started_at, 18) as started, substr(finished_at, 18) as finished, event_count, last_log_seq from trace_summaries`
	f := newTraceReplay(t)
	f.apply("TraceFinished", finished).expect("the end of a trace that never began", f.lines(summary))
	f.apply("TraceStarted", started).expect("summary", f.lines(summary), "renewal Renew it account a:1 null 02Z null 1 2")
	for _, step := range traceSteps[1 : len(traceSteps)-1] {
		f.apply(step.eventType, step.payload)
	}
	f.expect("summary", f.lines(summary), "renewal Renew it account a:1 null 02Z null 1 2")
	f.apply("TraceFinished", finished).expect("summary", f.lines(summary), "renewal Renew it account a:1 success 02Z 11Z 2 11")
	f.apply("TraceStarted", `{"workflow":"other","title":"Other","primary_entity":{"entity_type":"order","entity_id":"o1"}}`)
	f.expect("a second start", f.lines(summary), "renewal Renew it account a:1 success 02Z 11Z 3 12")
	f.apply("TraceFinished", `{"outcome":"failure"}`)
	f.expect("a second end", f.lines(summary), "renewal Renew it account a:1 failure 02Z 13Z 4 13")
}

func TestTraces_precedentsAppearAtTheEnd(t *testing.T) {
	t.Parallel()
	const precedents = `select source_event_id, log_seq, trace_id, policy_id, policy_version, exception_id, primary_entity_type, primary_entity_system, primary_entity_id from precedents order by log_seq`
	f := newTraceReplay(t)
	for _, step := range traceSteps[:len(traceSteps)-1] {
		f.apply(step.eventType, step.payload).expect("precedents of an unfinished trace", f.lines(precedents))
	}
	f.trace = "U"
	f.apply("PolicyEvaluated", evaluated)
	f.trace = "T"
	f.apply("TraceFinished", finished)
	first := []string{"e4 4 T cap 3.2 null account crm a:1", "e5 5 T cap 3.2 x:1 account crm a:1"}
	f.expect("precedents", f.lines(precedents), first...)
	f.apply("PolicyEvaluated", strings.Replace(evaluated, "3.2", "4", 1)).apply("TraceFinished", finished)
	f.expect("precedents after a second end", f.lines(precedents), append(first, "e12 12 T cap 4 null account crm a:1")...)
	f.expect("candidates", f.lines(`select trace_id, source_event_id from precedent_candidates`), "U e10")
	f.trace = "U"
	f.apply("TraceStarted", `{"primary_entity":{"entity_type":"order","entity_id":"o1","system":"shop"}}`).apply("TraceStarted", started)
	f.apply("TraceFinished", finished)
	f.expect("precedents of the other trace", f.lines(precedents)[2:], "e10 10 U cap 3.2 null order shop o1", "e12 12 T cap 4 null account crm a:1")
	f.trace = "V"
	f.apply("PolicyEvaluated", evaluated).apply("TraceFinished", finished)
	f.expect("precedents of a trace that never began", f.lines(precedents)[4:], "e17 17 V cap 3.2 null null null null")
}

// The identity of a node is required: an event without it fails and is rolled back.
func TestTraces_refuseEventsThatNameNothing(t *testing.T) {
	t.Parallel()
	for eventType, faults := range map[string]map[string]string{
		"TraceStarted":       {`{"primary_entity":{"entity_id":"a"}}`: "context_nodes.node_id", `{"primary_entity":{"entity_type":"a"}}`: "context_nodes.node_id"},
		"EntityObserved":     {`{}`: "payload.entity.entity_type", `{"entity":{"entity_type":"a"}}`: "payload.entity.entity_id"},
		"InputObserved":      {`{}`: "payload.input_id"},
		"PolicyEvaluated":    {`{}`: "payload.policy.policy_id", `{"policy":{"policy_id":"a"}}`: "payload.policy.policy_version"},
		"ExceptionRequested": {`{"policy":{"policy_id":"a","policy_version":"1"}}`: "payload.exception_id", `{"exception_id":"x"}`: "payload.policy.policy_id"},
		"PrecedentCited":     {`{}`: "payload.cited_trace_id"},
		"ApprovalRecorded": {`{}`: "payload.approver.actor_type", `{"approver":{"actor_type":"a"}}`: "payload.approver.actor_id",
			`{"approver":{"actor_type":"a","actor_id":"b"},"subject":{"subject_type":"exception"}}`: "context_nodes.node_id"},
		"ActionProposed":  {`{}`: "payload.action_id", `{"action_id":"a","target_entity":{"entity_id":"b"}}`: "context_nodes.node_id"},
		"ActionCommitted": {`{}`: "payload.action_id"},
		"TraceFinished":   {`{}`: "payload.outcome"},
	} {
		f := newTraceReplay(t)
		before := allDigests(t, f.replay, "c")
		for payload, want := range faults {
			if column, null := strings.CutPrefix(want, "context_nodes."); null && dbtest.Postgres() {
				want = `"` + column + `" of relation "context_nodes"`
			}
			err := f.Apply(t.Context(), f.event(eventType, payload))
			must.Hold(t, err != nil && strings.Contains(err.Error(), want), "%s %s: error %v, want one about %s", eventType, payload, err, want)
		}
		nameless := f.event(eventType, `{}`)
		nameless.EntityID = ""
		err := f.Apply(t.Context(), nameless)
		must.Hold(t, err != nil, "%s without a trace was applied", eventType)
		must.Equal(t, allDigests(t, f.replay, "c"), before, eventType, "failed and left something")
	}
}
