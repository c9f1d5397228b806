package store_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture },
	Beside: func(f *fixture) *fixture { return f.beside() }, All: []storetest.Kind[*fixture]{
		{Action: "requeue", Scene: (*fixture).DeadHead,
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.RequeueRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.CountRows(event.Dead) == 1 }},
		{Action: "requeue_many", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o operator.Command) (any, error) {
				return f.RequeueDead(f.Ctx, o, campaign.RequeueFilter{CampaignID: "a"})
			},
			Undone: func(f *fixture) bool { return f.CountRows(event.Dead) == 1 }},
		{Action: "retry", Scene: func(f *fixture) { f.Failing("boom", "a", 3) },
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.RetryRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.MustRow("a", 1).Row.NextAttemptAt != f.Clock.Now() }},
		{Action: "dead_letter", Scene: func(f *fixture) { f.Failing("boom", "a", 3) },
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.DeadLetterRow(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.CountRows(event.Failed) == 1 }},
		{Action: "pause", Scene: func(f *fixture) { f.AppendN("a", 3) },
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.PauseCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Paused == nil }},
		{Action: "resume", Scene: func(f *fixture) { f.Halted("a", 3) },
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.ResumeCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Paused != nil }},
		{Action: "replay", Scene: (*fixture).Gap,
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.ReplayCampaign(f.Ctx, o, "a") },
			Undone: func(f *fixture) bool { return f.CountRows(event.Pending) == 0 }},
		{Action: "skip", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o operator.Command) (any, error) {
				return f.SkipEvent(f.Ctx, storetest.ToSkip(o, "a", 1), "a", 1)
			},
			Undone: func(f *fixture) bool { return f.CountRows(event.Dead) == 1 && f.MustCampaign("a").Skips == 0 }},
		{Action: "unskip", Scene: func(f *fixture) { f.DeadHead(); f.MustSkip("a", 1) },
			Do:     func(f *fixture, o operator.Command) (any, error) { return f.UnskipEvent(f.Ctx, o, "a", 1) },
			Undone: func(f *fixture) bool { return f.MustCampaign("a").Skips == 1 }},
		{Action: "retry_many", Scene: func(f *fixture) { f.Failing("boom", "a", 3) },
			Do: func(f *fixture, o operator.Command) (any, error) {
				return f.RetryFailed(f.Ctx, o, campaign.RequeueFilter{Fingerprint: "boom"})
			},
			Undone: func(f *fixture) bool { return f.MustRow("a", 1).Row.NextAttemptAt != f.Clock.Now() }},
		{Action: "note_errors", Scene: (*fixture).DeadHead,
			Do: func(f *fixture, o operator.Command) (any, error) {
				return f.SetGroupNote(f.Ctx, o, "no such thing", "the disk was full")
			},
			Undone: func(f *fixture) bool { return f.Number(`select count(*) from group_notes`) == 0 }},
	}}

func TestAction_keepsTheRules(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

// as is ana with other fields of her command.
func as(change func(*operator.Command)) operator.Command {
	o := ana("")
	change(&o)
	return o
}

func TestAction_onAStaleViewIsRefusedWithWhatChangedAndWho(t *testing.T) {
	f := own(t)
	f.DeadHead()
	first := f.MustRow("a", 1).Row
	f.must(f.RequeueRow(f.Ctx, ana(""), "a", 1))
	f.Clock.Advance(4 * time.Second)
	seen := func(e operator.Expected) operator.Command {
		return as(func(o *operator.Command) { o.By.Name, o.Expected = "bob", &e })
	}
	f.Unchanged(func() {
		for says, err := range map[string]error{
			"status is pending, not dead; last action: requeue by ana 4 s ago": storetest.No(f.RequeueRow(f.Ctx, seen(operator.Expected{Status: event.Dead}), "a", 1)),
			"0 failed attempts, not 8":       storetest.No(f.RequeueRow(f.Ctx, seen(operator.Expected{AttemptCount: new(8)}), "a", 1)),
			"the head is event 1, not 2":     storetest.No(f.RetryRow(f.Ctx, seen(operator.Expected{HeadSeq: 2}), "a", 1)),
			`campaign "a" has changed`:       storetest.No(f.PauseCampaign(f.Ctx, seen(operator.Expected{HeadSeq: 2}), "a")),
			"status is pending, not dead":    storetest.No(f.ResumeCampaign(f.Ctx, seen(operator.Expected{Status: event.Dead}), "a")),
			"has changed since this page":    storetest.No(f.ReplayCampaign(f.Ctx, seen(operator.Expected{HeadSeq: 2}), "a")),
			"is pending, not dead; last act": storetest.No(f.RequeueRow(f.Ctx, ana(""), "a", 1)),
		} {
			refused(t, err, event.ErrConflict, strings.Split(says, "; ")...)
		}
	})
	f.must(f.PauseCampaign(f.Ctx, seen(operator.Expected{Status: event.Pending, HeadSeq: 1}), "a"))
	// A row that is dead again, with as many attempts as before, is not the one that was seen.
	f.must(f.ResumeCampaign(f.Ctx, ana(""), "a"))
	f.Kill("a")
	again := f.MustRow("a", 1).Row
	o := as(func(o *operator.Command) {
		o.Expected = &operator.Expected{Status: event.Dead, AttemptCount: &again.AttemptCount, UpdatedAt: &first.UpdatedAt}
	})
	f.Unchanged(func() {
		refused(t, storetest.No(f.RequeueRow(f.Ctx, o, "a", 1)), event.ErrConflict, "has changed since this page was loaded", "it became dead again at ", "resume by ana")
	})
	o.Expected.UpdatedAt = &again.UpdatedAt
	f.must(f.RequeueRow(f.Ctx, o, "a", 1))
}

// A key reused for another request must not return the first result, even where the difference is not in the request's target.
func TestAction_keyForOtherContentIsRefused(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 6)
	key := ""
	keyed := func() operator.Command { return as(func(o *operator.Command) { o.IdempotencyKey = key }) }
	named := func(id string) operations.OperationRequest {
		return operations.OperationRequest{Selection: operations.Selection{Rows: []event.RowKey{{CampaignID: id, Seq: 1}}}}
	}
	verify := func(projection string) replay.RunRequest {
		return replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{projection}}
	}
	started := []int64{f.StartOperation(named(ids[4])).ID, f.StartOperation(named(ids[5])).ID}
	runs := []int64{f.StartRun(verify("roster")).ID, f.StartRun(verify("history")).ID}
	for name, act := range map[string]func(i int) error{
		"requeue of many": func(i int) error {
			return storetest.No(f.RequeueDead(f.Ctx, keyed(), campaign.RequeueFilter{CampaignID: ids[0], EventType: []string{"", "weighed"}[i]}))
		},
		"note": func(i int) error {
			return storetest.No(f.SetGroupNote(f.Ctx, keyed(), "no such thing", []string{"known", "better known"}[i]))
		},
		"operation on a filter": func(i int) error {
			return storetest.No(f.Operations.Start(f.Ctx, keyed(), operations.OperationRequest{Canary: i > 0, Selection: operations.Selection{Filter: campaign.RequeueFilter{CampaignID: ids[2]}}}))
		},
		"operation on named rows": func(i int) error {
			return storetest.No(f.Operations.Start(f.Ctx, keyed(), named([]string{ids[3], ids[1]}[i])))
		},
		"retry of many": func(i int) error {
			return storetest.No(f.RetryFailed(f.Ctx, keyed(), campaign.RequeueFilter{Fingerprint: []string{"x", "y"}[i]}))
		},
		"operation 1": func(i int) error { return storetest.No(f.Operations.Cancel(f.Ctx, keyed(), started[i], "")) },
		"run 1":       func(i int) error { return storetest.No(f.Runs.Cancel(f.Ctx, keyed(), runs[i])) },
		"paused projection": func(i int) error {
			return storetest.No(f.Runs.PauseProjection(f.Ctx, keyed(), []string{"roster", "history"}[i], ids[0], enginetest.LoadedRuns))
		},
	} {
		key = name
		for range 2 {
			must.OK(t, act(0))
		}
		says := "different content"
		if strings.HasSuffix(name, " 1") { // one that was cancelled
			says = "used for " + name
		}
		f.Unchanged(func() { refused(t, act(1), event.ErrConflict, "Idempotency-Key", says) })
	}
}

func TestIdempotencyKey_isOfWhoeverUsedItFirst(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	pause := func(name, via string, auth operator.Auth) error {
		return storetest.No(f.PauseCampaign(f.Ctx, operator.Command{By: operator.Operator{Name: name, Via: via, Auth: auth, Role: operator.RoleAdmin}, IdempotencyKey: "k"}, "a"))
	}
	must.OK(t, pause("ana", "page", operator.AuthJWT))
	refused(t, pause("bob", "page", operator.AuthJWT), event.ErrConflict, "used by another identity")
	refused(t, pause("ana", "page", operator.AuthToken), event.ErrConflict, "used by another identity")
	must.OK(t, pause("ana", "api", operator.AuthJWT))
}

func TestActions_ofACampaignAreThoseThatTouchedIt(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	f.must(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{Limit: 2}))
	touched := operator.AuditFilter{CampaignID: ids[0]}
	f.WantActions(touched, "requeue_many")
	f.WantActions(operator.AuditFilter{CampaignID: ids[0], Seq: 1}, "requeue_many")
	f.WantActions(operator.AuditFilter{CampaignID: ids[0], Seq: 2})
	f.WantActions(operator.AuditFilter{CampaignID: ids[2]})
	f.WantActions(operator.AuditFilter{CampaignID: ids[0], Actor: "ben"})
	all := f.MustRow(ids[1], 1).Activity
	must.Hold(t, len(all) == 1 && all[0].Action == operator.ActionRequeueMany, "the row tells of %+v", all)
	f.Clock.Advance(time.Minute)
	f.AppendN("new", 1)
	f.must(f.CreateToken(f.Ctx, storetest.Ben, "0123", operator.RoleOperator, "deploy", f.Clock.Now().Add(time.Hour)))
	storetest.NamesNoAction(t, storetest.No(f.RequeueRow(f.Ctx, ana(""), "new", 1)))
	refused(t, storetest.No(f.RequeueRow(f.Ctx, storetest.Ben, ids[0], 1)), event.ErrConflict, "last action: requeue many by ana 1 min ago")
	storetest.NamesNoAction(t, storetest.No(f.RequeueRow(f.Ctx, ana(""), ids[0], 2)))
	f.MustPause("new")
	f.Fail("no such thing", ids[0], ids[1])
	f.must(f.RetryFailed(f.Ctx, ana(""), campaign.RequeueFilter{}))
	f.WantActions(operator.AuditFilter{CampaignID: "new", Actor: "ana"}, "requeue")
}

func TestActions_countAndListAsAFilterMatches(t *testing.T) {
	f := own(t)
	for i := range 60 {
		o := ana("")
		o.By.Name, o.By.Auth = []string{"ana", "ben"}[i%2], []operator.Auth{operator.AuthJWT, operator.AuthToken, operator.AuthOS}[i%3]
		o.By.Role, o.RequestID = []operator.Role{operator.RoleOperator, operator.RoleAdmin}[i/2%2], fmt.Sprint("r-", i%7)
		r := operator.RefusedAction{Action: []operator.Action{operator.ActionPause, operator.ActionSkip}[i/3%2], CampaignID: []string{"", "a", "b"}[i/4%3], Seq: int64(i % 3), Refusal: "no"}
		if r.CampaignID == "" {
			r.Target = []operator.Target{"", operator.RunTarget(7), operator.ProjectionTarget("p")}[i%3]
		}
		f.must(f.RecordRefusal(f.Ctx, o, r))
		f.Clock.Advance(time.Minute)
	}
	f.AppendN("a", 1)
	f.must(f.PauseCampaign(f.Ctx, anaAs(operator.RoleAdmin, ""), "a"))
	f.must(f.ResumeCampaign(f.Ctx, anaAs(operator.RoleAdmin, ""), "a"))
	all, err := f.AuditLog(f.Ctx, operator.AuditFilter{Limit: 200})
	must.Need(t, err == nil && len(all.Items) == 62, "%d acts, %v", len(all.Items), err)
	for _, want := range all.Items {
		must.Equal(t, must.Get(f.AuditEntry(f.Ctx, want.ID)).Or(t), want, "act")
	}
	for _, id := range []int64{-1, 0, 63, math.MaxInt64} {
		refused(t, storetest.No(f.AuditEntry(f.Ctx, id)), event.ErrNotFound, "no audit record")
	}
	rapid.Check(t, func(rt *rapid.T) {
		maybe := func(name string, set func(operator.AuditEntry)) {
			if rapid.IntRange(0, 3).Draw(rt, name) == 0 {
				set(rapid.SampledFrom(all.Items).Draw(rt, name+" of"))
			}
		}
		filter := operator.AuditFilter{Limit: rapid.SampledFrom([]int{1, 7, 200}).Draw(rt, "limit"), Reverse: rapid.Bool().Draw(rt, "reverse")}
		maybe("actor", func(a operator.AuditEntry) { filter.Actor = a.Actor })
		maybe("action", func(a operator.AuditEntry) { filter.Action = a.Action })
		maybe("campaign", func(a operator.AuditEntry) { filter.CampaignID = a.CampaignID })
		maybe("seq", func(a operator.AuditEntry) { filter.Seq = a.Seq })
		maybe("target", func(a operator.AuditEntry) { filter.Target = a.Target })
		maybe("outcome", func(a operator.AuditEntry) { filter.Outcome = a.Outcome })
		maybe("auth", func(a operator.AuditEntry) { filter.Auth = a.Auth })
		maybe("role", func(a operator.AuditEntry) { filter.Role = a.Role })
		maybe("request", func(a operator.AuditEntry) { filter.RequestID = a.RequestID })
		maybe("since", func(a operator.AuditEntry) { filter.Since = a.At })
		maybe("until", func(a operator.AuditEntry) { filter.Until = a.At })
		want := []string{}
		for _, a := range all.Items {
			if matches := store.AuditBy.Match(filter); matches == nil || matches(a) {
				want = append(want, fmt.Sprint(a.ID))
			}
		}
		if filter.Reverse {
			slices.Reverse(want)
		}
		read := f.actPager(filter)
		must.Equal(rt, total(read("")), fmt.Sprint(len(want)), filter, "total")
		must.Same(rt, read.BothWays(t, fmt.Sprintf("%+v", filter)), want, filter)
		must.Need(rt, !t.Failed(), "%+v", filter)
	})
}

func TestEventHistory_outlivesTheRow(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	then := func(step func()) { f.Clock.Advance(time.Second); step() }
	f.AppendN("a", 2)
	then(func() { f.Kill("a"); f.MustRequeue("a", 1) })
	then(func() { f.Kill("a") })
	op := f.StartOperation(operations.OperationRequest{})
	then(func() { f.StepOperation(op.ID) })
	then(f.Drain)
	must.Equal(t, f.Number(`select count(*) from projection_apply_outbox`), 0, "rows left")
	dies := []string{"appended", "failed 1: no such thing", "died 2: no such thing"}
	f.WantHistory("a", 1, append(dies, "acted requeue by scene", "failed 1: no such thing", "died 2: no such thing", "acted operation_start by ana", "applied 1-2 by worker-1")...)
	f.WantHistory("a", 2, "appended", "applied 1-2 by worker-1")
	// A skip is told apart from applying.
	f.AppendN("b", 1)
	then(func() { f.Kill("b"); f.MustSkip("b", 1) })
	then(f.Drain)
	passed := append(dies, "acted skip by scene", "passed_over 1-1 by worker-1")
	f.WantHistory("b", 1, passed...)
	then(func() { f.must(f.UnskipEvent(f.Ctx, ana(""), "b", 1)) })
	then(f.Drain)
	f.WantHistory("b", 1, append(passed, "acted unskip by ana", "applied 1-1 by worker-1")...)
}

// One record covers everything that a process applied to a campaign within a minute without a
// pause, and it is written when the next begins.
func TestSettle_notesSpansOfAppliedEvents(t *testing.T) {
	f := own(t)
	for range 13 {
		f.Applied("a", 1)
		f.Clock.Advance(5 * time.Second)
	}
	must.Equal(t, len(f.Spans()), 0, "within a minute", "are written")
	f.WantHistory("a", 1, "appended", "applied 1-13 by worker-1")
	f.AppendN("a", 1) // without a pause, but a minute after the first
	f.Drain()
	must.Equal(t, f.Spans(), []string{"a 1-13 worker-1"}, "the spans a minute later")
	f.Clock.Advance(time.Second)
	f.AppendN("a", 1)
	f.Works(two, f.ClaimOne(two, 10), 15)
	f.WantHistory("a", 12, "appended", "applied 1-13 by worker-1")
	f.WantHistory("a", 14, "appended", "applied 14-14 by worker-1")
	f.WantHistory("a", 15, "appended", "applied 15-15 by worker-2")
	for seq := int64(1); seq <= 2; seq++ { // a pause between them
		f.Applied("b", 1)
		f.Clock.Advance(6 * time.Second)
		f.WantHistory("b", seq, "appended", fmt.Sprintf("applied %d-%[1]d by worker-1", seq))
	}
}

func TestReveal_leavesARecordEachTimeWithoutWhatItShows(t *testing.T) {
	f := own(t)
	const secret = "hunterdeux"
	f.MustAppend(event.Event{CampaignID: "c", EventType: "x", Payload: []byte(`{"password":"` + secret + `"}`)})
	o := operator.Command{By: operator.Operator{Name: "ana", Via: "page", Auth: operator.AuthLocal, Role: operator.RoleAdmin}, IdempotencyKey: "k"}
	refused(t, storetest.No(f.Reveal(f.Ctx, o, "c", 1)), event.ErrInvalid, "reason")
	o.Reason = "the call of eve"
	refused(t, storetest.No(f.Reveal(f.Ctx, o, "c", 2)), event.ErrNotFound)
	for _, o.By.Name = range []string{"ana", "ana", "eve"} {
		got := must.Get(f.Reveal(f.Ctx, o, "c", 1)).Or(t)
		must.Hold(t, strings.Contains(string(got.Event.Payload), secret) && got.Row != nil, "revealed %+v", got)
	}
	done := f.ActionsOf(string(operator.ActionReveal))
	must.Hold(t, len(done) == 3 && done[0].Actor == "eve" && done[2].Actor == "ana" && done[0].Reason == o.Reason && done[0].Seq == 1, "the records are %+v", done)
	must.Equal(t, f.Number(`select count(*) from audit_log where result like $1 or before like $1 or after like $1`, "%"+secret+"%"), 0, "records have what was revealed")
}
