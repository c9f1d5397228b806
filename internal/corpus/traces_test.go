package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
)

// The digests of the made traces, and those published with the recorded ones, are what the model makes of the events.
func TestTraces_digestsAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	kept := readDigests(t, expected(t), "digests.json")
	EachTraces(t, func(t *testing.T, traces Traces) {
		for _, trace := range traces {
			digests := modelDigests(t, trace)
			if *update && !published[trace.Name] {
				kept[trace.Name] = digests
			} else if diff := cmp.Diff(trace.Digests, digests); diff != "" {
				t.Errorf("%s (-expected +model):\n%s", trace.Name, diff)
			}
		}
	})
	if !*update {
		return
	}
	text := must.Get(json.MarshalIndent(kept, "", " ")).Or(t)
	write(t, "digests.json", append(text, '\n'))
}

// published names the recorded traces with published digests.
var published = map[string]bool{"dealdesk": true, "release_rejected": true}

// traceEvent is what the read models of traces take from an event.
type traceEvent struct {
	EventID    string `json:"event_id"`
	EventType  string `json:"event_type"`
	OccurredAt string `json:"occurred_at"`
	ActorType  string `json:"actor_type"`
	ActorID    string `json:"actor_id"`
	EntityID   string `json:"entity_id"`
	Payload    struct {
		Workflow, Title, Outcome string
		PrimaryEntity            *entityRef `json:"primary_entity"`
		Entity                   *entityRef
		TargetEntity             *entityRef `json:"target_entity"`
		InputID                  string     `json:"input_id"`
		Policy                   struct {
			ID      string `json:"policy_id"`
			Version string `json:"policy_version"`
		}
		ExceptionID  *string `json:"exception_id"`
		CitedTraceID string  `json:"cited_trace_id"`
		ActionID     string  `json:"action_id"`
		Approver     struct {
			Type string `json:"actor_type"`
			ID   string `json:"actor_id"`
		}
		Subject struct {
			Type string `json:"subject_type"`
			ID   string `json:"subject_id"`
		}
	}
}

type entityRef struct {
	Type   string `json:"entity_type"`
	ID     string `json:"entity_id"`
	System string
}

func (r entityRef) node() string { return "entity:" + r.Type + ":" + r.ID }

// modelDigests is the digests of builtin:traces in Go, for a campaign that holds one trace.
func modelDigests(t *testing.T, trace Trace) map[string]string {
	t.Helper()
	nodes, edges, precedents := map[string]Row{}, map[string]Row{}, map[string]Row{}
	summary, candidates := Row{}, map[string]Row{}
	var primary Row
	for i, line := range trace.Lines {
		var e traceEvent
		must.OK(t, json.Unmarshal(line, &e))
		p, seq, self := e.Payload, i+1, "trace:"+e.EntityID
		node := func(id, kind, traceID string) {
			if nodes[id] == nil {
				nodes[id] = Row{"attrs": Row{}, "created_at": e.OccurredAt, "log_seq": seq, "node_id": id, "node_type": kind, "trace_id": traceID}
			}
		}
		edge := func(kind, from, to string) {
			id := kind + ":" + from + ":" + to + ":" + e.EventID
			edges[id] = Row{"attrs": Row{}, "created_at": e.OccurredAt, "edge_id": id, "edge_type": kind, "from_node_id": from, "log_seq": seq, "to_node_id": to, "trace_id": e.EntityID}
		}
		touch := func(kind, id, edgeKind, from string) {
			node(id, kind, e.EntityID)
			edge(edgeKind, from, id)
		}
		if e.EventType != "ApprovalRecorded" && e.EventType != "TraceFinished" {
			node(self, "trace", e.EntityID)
		}
		switch e.EventType {
		case "TraceStarted":
			node("actor:"+e.ActorType+":"+e.ActorID, "actor", e.EntityID)
			primary = Row{"primary_entity_id": nil, "primary_entity_system": nil, "primary_entity_type": nil}
			if about := p.PrimaryEntity; about != nil {
				primary = Row{"primary_entity_id": about.ID, "primary_entity_system": about.System, "primary_entity_type": about.Type}
				touch("entity", about.node(), "trace_involves_entity", self)
			}
			summary = Row{"event_count": 1, "finished_at": nil, "last_log_seq": seq, "outcome": nil, "primary_entity_id": primary["primary_entity_id"],
				"primary_entity_type": primary["primary_entity_type"], "started_at": e.OccurredAt, "title": p.Title, "trace_id": e.EntityID, "workflow": p.Workflow}
		case "EntityObserved":
			touch("entity", p.Entity.node(), "trace_involves_entity", self)
		case "InputObserved":
			touch("input", "input:"+p.InputID, "trace_observed_input", self)
		case "PolicyEvaluated", "ExceptionRequested":
			candidates[e.EventID] = Row{"exception_id": p.ExceptionID, "log_seq": seq, "policy_id": p.Policy.ID, "policy_version": p.Policy.Version, "source_event_id": e.EventID, "trace_id": e.EntityID}
			if e.EventType == "PolicyEvaluated" {
				touch("policy", "policy:"+p.Policy.ID+":"+p.Policy.Version, "trace_evaluated_policy", self)
			} else {
				touch("exception", "exception:"+*p.ExceptionID, "trace_requested_exception", self)
			}
		case "ApprovalRecorded":
			approver := "actor:" + p.Approver.Type + ":" + p.Approver.ID
			node(approver, "actor", e.EntityID)
			if p.Subject.Type == "exception" {
				node("exception:"+p.Subject.ID, "exception", e.EntityID)
				edge("exception_approved_by", "exception:"+p.Subject.ID, approver)
			}
		case "PrecedentCited":
			node("trace:"+p.CitedTraceID, "trace", p.CitedTraceID)
			edge("trace_cited_precedent", self, "trace:"+p.CitedTraceID)
		case "ActionProposed":
			touch("action", "action:"+p.ActionID, "trace_proposed_action", self)
			if p.TargetEntity != nil {
				touch("entity", p.TargetEntity.node(), "action_targets_entity", "action:"+p.ActionID)
			}
		case "ActionCommitted":
			touch("action", "action:"+p.ActionID, "trace_committed_action", self)
		case "TraceFinished":
			summary["event_count"], summary["finished_at"] = summary["event_count"].(int)+1, e.OccurredAt
			summary["last_log_seq"], summary["outcome"] = seq, p.Outcome
			for id, candidate := range candidates {
				maps.Copy(candidate, primary)
				precedents[id] = candidate
			}
			clear(candidates)
		default:
			t.Fatalf("the model knows no %s", e.EventType)
		}
	}
	graph := digest([]byte(`{"edges":` + array(t, edges) + `,"nodes":` + array(t, nodes) + `}`))
	summaries := digest([]byte(array(t, map[string]Row{"": summary})))
	index := digest([]byte(array(t, precedents)))
	return map[string]string{"context_graph": graph, "trace_summary": summaries, "precedent_index": index,
		"full": digest([]byte(graph + ":" + summaries + ":" + index))}
}

func digest(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

// array is rows as canonical JSON, in the order of their keys.
func array(t *testing.T, rows map[string]Row) string {
	t.Helper()
	ordered := []Row{}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		ordered = append(ordered, rows[key])
	}
	var text bytes.Buffer
	encode := json.NewEncoder(&text)
	encode.SetEscapeHTML(false)
	must.OK(t, encode.Encode(ordered))
	return string(bytes.TrimSpace(text.Bytes()))
}
