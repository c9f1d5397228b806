package store_test

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// everything calls every method of the store with statements of its own, so that each is prepared.
func (f *fixture) everything() {
	f.useWorker()
	f.useActs()
	f.useReads()
	f.useOperations()
	f.useRuns()
	f.useSwaps()
	f.usePublishers(publishing.NewProgress(f.Store))
	f.useConditions()
	f.useTokens()
	f.must(f.AuditLogRemovedBefore(f.Ctx))
	f.must(f.PruneHistory(f.Ctx, f.Clock.Now().Add(time.Hour)))
	f.must(f.PruneAuditLog(f.Ctx, f.Clock.Now().Add(time.Hour)))
}

func (f *fixture) useOperations() {
	f.Exec(`update campaigns set due_at = null`)
	f.must(f.Operations.Preview(f.Ctx, operations.Selection{}, 1))
	ids := f.Killed("op", 4)
	named := func(i int) operations.OperationRequest {
		return operations.OperationRequest{Canary: true, Selection: operations.Selection{Rows: []event.RowKey{{CampaignID: ids[i], Seq: 1}}}}
	}
	end := func(id int64) { f.StepOperation(id); f.must(f.Operations.Acknowledge(f.Ctx, ana(""), id, "")) }
	f.must(f.Operations.Running(f.Ctx))
	failing := f.StartOperation(named(0))
	f.StepOperation(failing.ID)
	f.Fail("no such thing", ids[0])
	f.Operation(failing.ID)
	end(failing.ID)
	stuck := f.StartOperation(named(1))
	f.StepOperation(stuck.ID)
	c := f.ClaimOne(one, 3)
	f.MustApply(c, 1)
	f.MustSettle(one, outbox.Result{Claim: c, Applied: 1, Failure: storetest.Failure("no such thing")})
	end(stuck.ID)
	f.MustPause(ids[1])
	changed := f.StartOperation(named(2))
	f.must(f.RequeueRow(f.Ctx, ana(""), ids[2], 1))
	end(changed.ID)
	cancelled := f.StartOperation(operations.OperationRequest{Selection: operations.Selection{Filter: campaign.RequeueFilter{CampaignID: ids[3]}}})
	f.must(f.Operations.Cancel(f.Ctx, ana(""), cancelled.ID, ""))
	f.must(f.Operations.List(f.Ctx, operations.OperationFilter{}))
	f.must(f.Operations.Rows(f.Ctx, cancelled.ID, operations.OperationRowFilter{}))
	f.must(f.Operations.Rows(f.Ctx, cancelled.ID, operations.OperationRowFilter{Status: operations.ResultLeft}))
}

func (f *fixture) useTokens() {
	f.must(f.CreateToken(f.Ctx, ana(""), "0123", operator.RoleViewer, "deploy", f.Clock.Now().Add(time.Hour)))
	token := must.Get(f.TokenByHash(f.Ctx, "0123")).Or(f.TB)
	f.RecordTokenUse(f.Ctx, token)
	f.must(f.RevokeToken(f.Ctx, ana(""), token.ID))
	f.must(f.List(f.Ctx))
}

// usePublishers delivers for publishers, and calls their actions and queries.
func (f *fixture) usePublishers(publishers *publishing.Progress) {
	scenes, all := operator.SubscriptionName{Topic: "scenes", Publisher: "archive"}, operator.SubscriptionName{Topic: "all", Publisher: "a"}
	definitions := []subscription.PublisherDefinition{{SubscriptionName: scenes, Match: subscription.Match{EventTypes: []string{"scene.*"}}, MaxErrors: 1},
		{SubscriptionName: all, Match: subscription.Match{EventTypes: []string{"*"}}, MaxErrors: 3}}
	f.ok(publishers.Register(f.Ctx, definitions), publishers.Register(f.Ctx, definitions[:1]))
	last := f.MustAppend(storetest.Event("c", "scene.a"), storetest.Event("c", "scene.b"))[1].Position
	l, _, err := publishers.Claim(f.Ctx, "one", scenes, lease)
	f.ok(err)
	f.must(publishers.Advance(f.Ctx, &l, publishing.Advance{Position: 1, LastDelivered: 1, Delivered: 1, Lease: lease}))
	f.must(publishers.Advance(f.Ctx, &l, publishing.Advance{Position: 2, Lease: lease}))
	f.must(publishers.Renew(f.Ctx, []publishing.Beat{{Lease: l}}, lease))
	failure := publishing.Failure{Kind: operator.EventError, Message: "x", Position: last}
	f.must(publishers.Fail(f.Ctx, l, failure))
	f.must(publishers.Reset(f.Ctx, ana(""), scenes))
	f.must(publishers.Fail(f.Ctx, l, failure))
	f.ok(storetest.No(publishers.States(f.Ctx, "two", []operator.SubscriptionName{scenes})), publishers.AskFor(f.Ctx, "two", scenes), publishers.Release(f.Ctx, l))
	f.must(publishers.Actions(f.Ctx, scenes))
	f.must(f.AuditLogOf(f.Ctx, 10, operator.PublisherTarget(scenes)))
	f.must(publishers.Publishers(f.Ctx))
	f.must(publishers.Publisher(f.Ctx, scenes))
	f.must(publishers.SkipEvent(f.Ctx, ana("x"), scenes, last))
	f.must(publishers.Pause(f.Ctx, ana(""), scenes))
	refused(f.TB, storetest.No(publishers.Pause(f.Ctx, ana(""), scenes)), event.ErrConflict)
	f.must(publishers.Resume(f.Ctx, ana(""), scenes))
	f.must(publishers.PreviewSeek(f.Ctx, scenes, subscription.SeekTarget{Time: began}))
	f.must(publishers.Seek(f.Ctx, ana(""), scenes, subscription.SeekTarget{Beginning: true}, nil))
	o := ana("")
	o.IdempotencyKey = "test"
	f.must(publishers.Test(f.Ctx, o, scenes, func(context.Context) (subscription.TestDelivery, error) {
		return subscription.TestDelivery{SubscriptionName: scenes}, nil
	}))
	f.Clock.Advance(2 * time.Minute)
	f.ok(f.Sample(f.Ctx))
	f.must(publishers.History(f.Ctx, scenes, samples.Range{}))
	f.must(f.JournalID(f.Ctx))
}

// useConditions makes a condition take every kind of walk.
func (f *fixture) useConditions() {
	e := storetest.Tagged("conditional", "seat.taken", "seat", "1", "show", "x")
	e.EventID = "e-1"
	f.MustAppend(e)
	f.must(f.AppendUnless(e, 0, storetest.Item("x")))
	e.EventID = ""
	for range 50 { // more than are read without counting
		f.MustAppend(e)
	}
	_, err := f.AppendUnless(e, 1, storetest.Item("other"), storetest.Item("", "seat", "1", "show", "y"), storetest.Item("seat.taken", "campaign_id", "conditional", "seat", "1", "actor_id", "p"),
		storetest.Item("", "campaign_id", "conditional", "actor_id", "p"), storetest.Item("", "entity_id", "e"))
	f.ok(err)
	refused(f.TB, storetest.No(f.AppendUnless(e, 0, storetest.Item("seat.taken"))), event.ErrConflict)
	f.must(f.Position(f.Ctx))
	f.must(f.Check(f.Ctx, storetest.Quiet))
}

// statementsOf lists the statements that a Scratch has prepared for the live tables, on PostgreSQL.
func statementsOf(f *fixture, c *readmodel.Scratch) (all []store.Statement) {
	if !f.Database.Dialect.TempTables {
		return nil // a session of the store runs them
	}
	for _, query := range c.Prepared() {
		if strings.Contains(query, "projection_") || strings.Contains(query, "failures") || strings.Contains(query, "watermark_skips") {
			all = append(all, store.Statement{Database: "projections", Query: query, Writes: true})
		}
	}
	return all
}

// useSwaps claims a campaign for a run and swaps its rows, often enough for the statements of both sides.
func (f *fixture) useSwaps() {
	f.AppendN("run", 3)
	p := storetest.Tally()
	f.ok(f.Install(f.Ctx, []readmodel.Projection{p}))
	f.Exec(`update campaigns set due_at = null where campaign_id <> 'run'`)
	f.ClaimOne(one, 2)
	claims := f.ClaimedForRun("run")
	f.ok(storetest.No(f.RenewForRun(f.Ctx, enginetest.RunHolder, claims, lease)), f.MarkBuilt(f.Ctx, "tally", "v1"))
	defer f.MustPause("run")
	defer func() { f.ReleaseFromRun(claims...) }()
	c := f.OpenTally()
	_, _, err := c.LoadLive(f.Ctx, "run", p.Tables...)
	f.ok(err)
	f.ReplayTally(c, "run", 1, 3, "x")
	plan := storetest.PlanFor(claims[0])
	plan.Watermark = &readmodel.NewWatermark{Passed: map[int64]int64{0: 1}}
	plan.Projections[0].State = campaign.CursorQuarantined
	plan.Projections[0].Failure = &readmodel.SwapFailure{Failure: *storetest.Failure("boom"), EventType: "counted", Attempts: 1}
	f.MustSwap(c, plan)
	plan.Watermark, plan.Projections[0].State, plan.Projections[0].Failure = &readmodel.NewWatermark{}, campaign.CursorLive, nil
	f.MustSwap(c, plan)
	f.swaps = statementsOf(f, c)
	f.ok(c.Clear(f.Ctx, "run"), c.Clear(f.Ctx, ""), c.Close())
}

func (f *fixture) useWorker() {
	for _, patterns := range [][]string{{"b"}, {"b*"}, {"b", "c*"}} {
		w := outbox.Worker{ID: "w", Serves: storetest.ScopeOf(f.TB, patterns...)}
		f.NoClaim(w)
		f.must(f.SuspectDue(f.Ctx, w.Serves))
	}
	known := storetest.Event("known", "counted")
	known.EventID = "e-1"
	f.MustAppend(known)
	f.MustAppend(known)
	f.AppendTogether([]store.Append{{Events: []event.Event{storetest.Event("known", "counted")}}, {Events: []event.Event{{CampaignID: "known", EventType: "x", Seq: 99, Payload: []byte("{}")}}}})
	f.Drain()
	f.Dies("dead", 3)
	f.AppendN("crashing", 3)
	for range 4 {
		for _, c := range f.MustClaim(one, 2) {
			f.ok(f.Renew(f.Ctx, one, []outbox.Claim{c}, lease))
		}
		f.Clock.Advance(lease)
	}
	f.MustPause("crashing")
	f.AppendN("given-back", 5)
	f.Works(one, f.ClaimOne(one, 3), 1)
	f.LoseRows("given-back", "seq = 3")
	f.MustPause("given-back")
	f.AppendN("holed", 4)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'holed' and seq = 3`)
	f.Exec(`update campaigns set pending = 3 where campaign_id = 'holed'`)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 9), Applied: 0})
	f.MustPause("holed")
	f.AppendN("counted", 1)
	for range 3 {
		f.Crash(one, 9)
	}
	f.NoClaim(one)
	f.MustPause("counted")
	f.AppendN("inline", 1)
	inline, _, err := f.ClaimInline(f.Ctx, one, "inline", outbox.ClaimLimits{Rows: 10, Lease: lease})
	f.ok(err)
	f.MustSettle(one, outbox.Result{Claim: inline})
	f.LoseRows("inline", "seq = 1")
	f.ok(f.EnqueueMissing(f.Ctx, "inline"))
	f.MustPause("inline")
	f.AppendN("expired", 2)
	f.ClaimOne(one, 1)
	f.Clock.Advance(lease)
	f.ok(storetest.No(f.ReconcileCampaign(f.Ctx, "expired")), f.RecordRehearsal(f.Ctx, outbox.Rehearsal{CampaignID: "a"}), f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "i"}),
		f.RegisterEventTypes(f.Ctx, map[string]event.Intent{"noted": event.IntentAuditOnly}),
		f.Install(f.Ctx, []readmodel.Projection{{Name: "p", Version: "v", Tables: []string{"p"}, Schema: []string{"create table p (x text)"}}}))
	e := must.Get(f.Event(f.Ctx, "dead", 1)).Or(f.TB)
	f.useHolds()
	f.ok(f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		f.ok(tx.Savepoint(), tx.Failed("p", &e, *storetest.Failure("boom")), tx.Quarantine("p", &e), tx.RollbackTo(), tx.Release())
		_, err := tx.SetAside("dead")
		f.ok(tx.Resolve("dead", 1))
		return err
	}))
	_, _, err = f.UntilDue(f.Ctx, campaign.Scope{})
	f.ok(err, f.EndLeases(f.Ctx, "nobody"))
}

// useHolds pauses and resumes a projection, for all campaigns and for one.
func (f *fixture) useHolds() {
	loaded := []campaign.ProjectionInfo{{Name: "p"}}
	for _, campaign := range []string{"known", ""} {
		f.must(f.Runs.PauseProjection(f.Ctx, ana(""), "p", campaign, loaded))
		refused(f.TB, storetest.No(f.Runs.PauseProjection(f.Ctx, ana(""), "p", campaign, loaded)), event.ErrConflict)
		f.ok(f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
			w := must.Get(tx.Watermark("known")).Or(f.TB)
			return storetest.No(tx.ExcludePaused("known", w, nil))
		}))
		f.must(f.Runs.ResumeProjection(f.Ctx, ana(""), "p", campaign, loaded))
	}
	f.ExecProjections(`update projection_cursors set state = 'behind' where projection = 'p' and campaign_id = 'known'`)
	f.must(f.Runs.Behind(f.Ctx))
	f.must(f.Reconcile(f.Ctx))
	f.ExecProjections(`update projection_cursors set state = 'live' where projection = 'p' and campaign_id = 'known'`)
	for _, r := range f.ActiveRuns() {
		f.must(f.Runs.Cancel(f.Ctx, ana(""), r.ID))
	}
}

func (f *fixture) useActs() {
	o := ana("")
	o.IdempotencyKey, o.Expected = "k", &operator.Expected{Status: event.Dead}
	f.must(f.RequeueRow(f.Ctx, o, "dead", 1))
	refused(f.TB, storetest.No(f.RequeueRow(f.Ctx, ana(""), "dead", 1)), event.ErrConflict)
	f.MustPause("dead")
	f.AppendN("failed", 2)
	f.Exec(`update campaigns set due_at = null where campaign_id <> 'failed'`)
	f.Fail("boom", "failed")
	f.must(f.RetryRow(f.Ctx, ana(""), "failed", 1))
	f.Fail("boom", "failed")
	for _, filter := range []campaign.RequeueFilter{{}, {CampaignID: "failed"}} {
		f.must(f.RequeueDead(f.Ctx, ana(""), filter))
	}
	f.must(f.ReplayCampaign(f.Ctx, ana(""), "given-back"))
	f.must(f.RepairGaps(f.Ctx, ana("")))
	f.must(f.ResumeCampaign(f.Ctx, ana(""), "given-back"))
	f.must(f.RetryFailed(f.Ctx, ana(""), campaign.RequeueFilter{}))
	f.Exec(`update campaigns set due_at = null`)
	f.Failing("boom", "noted", 1)
	for _, note := range []string{"known", ""} {
		f.must(f.SetGroupNote(f.Ctx, ana(""), "boom", note))
	}
	f.Exec(`update campaigns set due_at = null`)
	f.Dies("skipped", 2)
	f.MustSkip("skipped", 1)
	f.Works(one, f.ClaimOne(one, 1), 1)
	f.MustPause("skipped")
	f.must(f.UnskipEvent(f.Ctx, ana(""), "skipped", 1))
	f.must(f.Skips(f.Ctx, event.SkipFilter{CampaignID: "skipped"}))
	// A mark at the watermark is looked up in skips.
	f.ExecProjections(`insert into watermark_skips (campaign_id, seq, skip_id, at) values ('skipped', 0, 1, 1)`)
	f.must(f.ReplayCampaign(f.Ctx, ana(""), "skipped"))
	f.ExecProjections(`delete from watermark_skips`)
}

func (f *fixture) useReads() {
	f.useLists()
	f.MustRow("dead", 1)
	f.must(f.Events(f.Ctx, "dead", 0, 0))
	for _, part := range []event.Part{event.PartPayload, event.PartTags, event.PartMetadata} {
		_, _, err := f.Document(f.Ctx, "dead", 1, part)
		f.ok(err)
	}
	f.MustAppend(event.Event{CampaignID: "known", EventType: "counted", CausationID: "e-1", Payload: []byte("{}")})
	f.must(f.EventWithin(f.Ctx, "known", f.MustCampaign("known").HighWaterSeq, 0))
	f.must(f.EventLines(f.Ctx, "dead", 1, 3))
	f.must(f.EventHistory(f.Ctx, "dead", 1))
	for _, text := range []string{"dead/1", "order 17 -1d", "e-1"} {
		f.must(f.Search.Find(f.Ctx, search.ParseAsked(text, f.Clock.Now()), nil))
	}
	f.must(f.Search.Values(f.Ctx))
	f.useViews()
	p := []campaign.ProjectionInfo{{Name: "p"}}
	f.must(f.Runs.Cursors(f.Ctx, "dead", p))
	f.ExecProjections(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('dead', 'p', 0, 'behind', 1)`)
	f.must(f.Runs.ProjectionCursors(f.Ctx, campaign.CursorFilter{Projection: "p", State: campaign.CursorBehind}, p))
	f.must(f.Runs.Held(f.Ctx, p, "dead", "known"))
	f.ExecProjections(`delete from projection_cursors`)
	refused(f.TB, storetest.No(f.Failure(f.Ctx, 99)), event.ErrNotFound)
	f.must(f.Blocked(f.Ctx, 0))
	f.must(f.StuckWithoutError(f.Ctx, campaign.Surroundings{}, 5))
	f.must(f.Operations.Requeuing(f.Ctx))
	f.must(f.Paused(f.Ctx, 0))
	f.must(f.ErrorGroups(f.Ctx))
	f.Clock.Advance(2 * time.Minute)
	f.ok(f.Sample(f.Ctx))
	f.Count("w", new(samples.Counts))
	f.ok(f.FlushCounts(f.Ctx), f.Heartbeat(f.Ctx, storetest.Killed(f.TB, "killed", began)))
	f.must(f.Processes(f.Ctx))
	f.ok(f.Loaded(f.Ctx, campaign.InstanceState{ID: "w"}, []campaign.Definition{{Projection: "p", Version: "1"}}))
	f.ok(f.Loaded(f.Ctx, campaign.InstanceState{ID: "w"}, []campaign.Definition{{Projection: "p", Version: "2"}}))
	for _, name := range samples.RangeNames {
		f.must(f.Heatmap(f.Ctx, samples.Range{Name: name}))
		f.must(f.CampaignHistory(f.Ctx, "dead", samples.Range{Name: name}))
	}
	dead := must.Get(f.Campaign(f.Ctx, "dead")).Or(f.TB)
	f.must(f.SeqBefore(f.Ctx, dead, f.Clock.Now()))
	f.must(f.History(f.Ctx, samples.Range{}))
	f.must(f.CampaignHistory(f.Ctx, "dead", samples.Range{}))
	f.must(f.Summary(f.Ctx))
	f.must(f.Instances(f.Ctx))
	f.must(f.EventsFrom(f.Ctx, 0, 10))
	f.must(f.OutstandingCampaigns(f.Ctx, "", 10))
	f.must(f.Runs.DescribeProjections(f.Ctx, []campaign.ProjectionInfo{{Name: "p"}}))
	f.must(f.Databases(f.Ctx))
	f.must(f.AuditEntryOfKey(f.Ctx, "k"))
	_, _, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 10)
	f.ok(err)
	f.MustFindGaps()
	f.must(f.Check(f.Ctx, storetest.Quiet))
	f.Ready(f.Ctx)
}

func (f *fixture) useRuns() {
	f.must(f.Runs.Prune(f.Ctx))
	cancelled := must.Get(f.Runs.Start(f.Ctx, ana(""), enginetest.Rebuild("dead", "known"), enginetest.LoadedRuns)).Or(f.TB)
	refused(f.TB, storetest.No(f.Runs.Start(f.Ctx, ana(""), enginetest.Everything, enginetest.LoadedRuns)), event.ErrConflict)
	f.must(f.Runs.Preview(f.Ctx, enginetest.Rebuild("dead", "known"), enginetest.LoadedRuns))
	f.must(f.Runs.Preview(f.Ctx, enginetest.Everything, enginetest.LoadedRuns))
	l := f.ClaimRun(one)
	f.must(f.Runs.Scope(f.Ctx, l, "", 10))
	f.must(f.Runs.Cancel(f.Ctx, ana(""), cancelled.ID))
	f.FinishRun(l, replay.RunCancelled, "")
	run := must.Get(f.Runs.Start(f.Ctx, ana(""), enginetest.Everything, enginetest.LoadedRuns)).Or(f.TB)
	l = f.ClaimRun(one)
	f.must(f.Runs.Scope(f.Ctx, l, "", 10))
	known := replay.RunResult{CampaignID: "known", Outcome: replay.OutcomeMatch, Seq: 1, Events: 1,
		Projections: []replay.ProjectionResult{{Projection: "roster", Verdict: campaign.VerdictMatch}}}
	f.ok(storetest.No(f.Runs.Report(f.Ctx, l, runs.Progress{Results: []replay.RunResult{known}, Lines: []replay.RunLine{{Text: "x"}}, Lease: lease})), f.Runs.Release(f.Ctx, l), f.EndLeases(f.Ctx, "nobody"))
	f.must(f.Runs.Finish(f.Ctx, f.ClaimRun(two), replay.RunFailed, "boom"))
	f.must(f.Runs.Resume(f.Ctx, ana(""), run.ID, enginetest.LoadedRuns))
	f.must(f.Runs.Active(f.Ctx))
	f.must(f.Runs.Tallies(f.Ctx))
	for _, cursor := range []string{"", ">", "<"} {
		page := func(name string) string {
			if cursor == "" {
				return ""
			}
			return base64.RawURLEncoding.EncodeToString([]byte(cursor + name))
		}
		f.must(f.Runs.List(f.Ctx, replay.RunFilter{Cursor: page("runs")}))
		f.must(f.Runs.Log(f.Ctx, run.ID, page("run-log"), 0))
		f.must(f.Runs.Results(f.Ctx, replay.ResultFilter{RunID: run.ID, Cursor: page("run-results")}))
		f.must(f.Runs.Results(f.Ctx, replay.ResultFilter{RunID: run.ID, Outcome: replay.OutcomeMatch, Cursor: page("run-results-match")}))
	}
	f.must(f.Runs.ResultOf(f.Ctx, run.ID, "known"))
	f.must(f.Verifications(f.Ctx, "known"))
	f.must(f.Drifted(f.Ctx, 0))
	f.must(f.Unverified(f.Ctx, 0))
	f.must(f.FoundDrift(f.Ctx))
	_, _, err := f.Runs.Stalest(f.Ctx, "", 3)
	f.ok(err)
}

// useLists walks every list in both directions and counts each.
func (f *fixture) useLists() {
	for _, reverse := range []bool{false, true} {
		for _, status := range append([]event.Status{""}, event.Statuses...) {
			f.must(f.Rows(f.Ctx, campaign.RowFilter{Status: status, Reverse: reverse, Limit: 1}))
			f.must(f.Rows(f.Ctx, campaign.RowFilter{Status: status, Reverse: reverse, CampaignID: "dead", Q: "x"}))
			f.must(f.Rows(f.Ctx, campaign.RowFilter{Status: status, EventType: "counted", Limit: 1, Reverse: reverse, Cursor: lastPage(status, reverse)}))
		}
		f.must(f.Rows(f.Ctx, campaign.RowFilter{CampaignID: "dead", EventType: "counted", Limit: 1, Reverse: reverse}))
		f.must(f.Rows(f.Ctx, campaign.RowFilter{Sort: campaign.SortAttention, Reverse: reverse, Limit: 1}))
		for _, events := range []search.EventFilter{{}, {EventID: "e"}, {EntityID: "e"}, {RequestID: "r"}, {Tag: "seat=1"}, {CampaignID: "dead"}, {EventType: "counted"}} {
			events.Reverse = reverse
			f.must(f.Search.Events(f.Ctx, events))
			events.Q, events.Since, events.Until = "x", f.Clock.Now().Add(-time.Hour), f.Clock.Now()
			f.must(f.Search.Events(f.Ctx, events))
		}
		for _, sort := range []campaign.CampaignSort{campaign.SortTrouble, campaign.SortID, campaign.SortLag, campaign.SortAge} {
			for _, q := range []string{"", "a"} {
				f.must(f.Campaigns(f.Ctx, campaign.CampaignFilter{Sort: sort, Reverse: reverse, Q: q, Limit: 1}))
			}
		}
		for _, failures := range []campaign.FailureFilter{{}, {Status: campaign.FailureOpen}, {CampaignID: "dead"}} {
			failures.Limit, failures.Cursor = 1, map[bool]string{true: base64.RawURLEncoding.EncodeToString([]byte("<failures"))}[reverse]
			f.must(f.Failures(f.Ctx, failures))
		}
		cursors := campaign.CursorFilter{Projection: "p", Cursor: map[bool]string{true: base64.RawURLEncoding.EncodeToString([]byte("<cursors"))}[reverse]}
		f.must(f.Runs.ProjectionCursors(f.Ctx, cursors, []campaign.ProjectionInfo{{Name: "p"}}))
		for _, campaign := range []string{"", "dead"} {
			f.must(f.AuditLog(f.Ctx, operator.AuditFilter{CampaignID: campaign, Reverse: reverse, Limit: 1}))
			f.must(f.AuditLog(f.Ctx, operator.AuditFilter{Target: operator.RunTarget(1), Reverse: reverse, Limit: 1}))
		}
	}
}

func lastPage(status event.Status, reverse bool) string {
	name := map[bool]string{false: "seq", true: "due"}[status == event.Dead || status == event.Failed]
	return base64.RawURLEncoding.EncodeToString([]byte("<" + name + map[bool]string{false: "+", true: "-"}[reverse]))
}

func (f *fixture) useViews() {
	f.ok(f.Search.SaveView(f.Ctx, "local", search.View{List: "rows", Name: "mine", Query: "status=dead"}))
	views, err := f.Search.Views(f.Ctx, "local", "rows")
	f.ok(err, f.Search.RenameView(f.Ctx, "local", views[0].ID, "ours"), f.Search.RemoveView(f.Ctx, "local", views[0].ID))
}
