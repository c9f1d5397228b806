package store_test

import (
	"database/sql"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/maintenance"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

// scan is a step of a plan that walks a whole table or index. Among those that
// are allowed, query is a part of the statement's text, and reason is why it
// costs little.
type scan struct{ step, query, reason string }

// onlyAllowed fails for every step that was found and is not allowed. It returns
// the allowances that nothing needs.
func onlyAllowed(t *testing.T, allowed, found []scan) (idle []scan) {
	t.Helper()
	used := make([]bool, len(allowed))
	for _, s := range found {
		i := slices.IndexFunc(allowed, func(a scan) bool {
			return strings.HasPrefix(s.step, a.step) && strings.Contains(s.query, a.query)
		})
		if i < 0 {
			t.Errorf("%s\n\tfor %s", s.step, s.query)
			continue
		}
		used[i] = true
	}
	for i, a := range allowed {
		if !used[i] {
			idle = append(idle, a)
		}
	}
	return idle
}

var sqliteScans = []scan{
	{"SCAN projection_apply_outbox USING INDEX outbox_", "group by o.fingerprint", "failed or dead rows alone, up to a limit, once per shared snapshot"},
	{"SCAN o", "group by o.fingerprint", "those rows"},
	{"SCAN projection_apply_outbox USING INDEX outbox_dead", "fingerprint = $2 then 1", "rows that failed alone, up to a limit, once per note"},
	{"SCAN projection_apply_outbox USING INDEX outbox_failed", "fingerprint = $2 then 1", "rows that failed alone, up to a limit, once per note"},
	{"SCAN o USING INDEX outbox_", "limit $3", "dead or failed rows alone, in the order of a bulk requeue, up to its limit"},
	{"SCAN campaigns USING INDEX campaigns_in_trouble", "from campaigns", "campaigns with failed or dead rows, or diverged"},
	{"SCAN campaigns", "sum(pending)", "the totals, once per shared snapshot"},
	{"SCAN campaigns", "order by lease_expires_at", "who holds what, once per shared snapshot"},
	{"SCAN campaigns", "set lease_expires_at = $1", "the leases of a worker that is gone, once at the start of another"},
	{"SCAN operations USING INDEX operations_open", "acknowledged_at is null", "operations that run or that nobody has acknowledged yet"},
	{"SCAN runs USING INDEX runs_active", "finished_at is null", "runs that have not ended"},
	{"SCAN campaigns", "select count(*), coalesce(sum(high_water_seq), 0), count(*)", "what a run over all is about, once when it begins"},
	{"SCAN runs", "count(*) from runs", "how many there are, once a scrape"},
	{"SCAN verifications USING", "verdict = 'drift'", "what is not as it should be, up to the limit"},
	{"SCAN verifications USING", "verdict = 'failed'", "what could not be verified, once per shared snapshot"},
	{"SCAN page", "sort_key", "the rows of one page"},
	{"SCAN o", "limit $5", "as many rows as are looked at to count"},
	{"SCAN o", ") as o", "the rows of one page"},
	{"SCAN operator_acts", "limit $11", "the newest, as many as are looked at to count"},
	{"SCAN near", "as near", "the spans next to an event, up to the limit"},
	{"SCAN named", "as named", "those acts, up to the limit"},
	{"SCAN ranged", "as ranged", "those acts, up to the limit"},
	{"SCAN chosen", "as chosen", "those acts, up to the limit"},
	{"SCAN campaigns", "limit $3", "as many as are looked at to count"},
	{"SCAN c", "limit $3", "those that are counted"},
	{"SCAN a", "limit $11", "those that are counted"},
	{"SCAN campaigns", "substr(lease_owner, 1", "what a run holds, once when it is ended by others"},
	{"SCAN c", "group by c.state", "those that are counted, up to a limit"},
	{"SCAN f", "group by f.projection", "those that are counted, up to a limit"},
	{"SCAN publisher_progress", "publisher_progress", "one row for each pair there ever was"},
	{"SCAN e", "position between $1 and $2", "those that are counted, up to a limit"},
	{"SCAN instances", "instances", "one row for each process of the last week"},
	{"SCAN event_types", "event_types", "one row for each registered event type"},
	{"SCAN tokens", "order by id desc", "newest first, up to the limit"},
	{"SCAN journal_identity", "journal_identity", "one row"},
	{"SCAN CONSTANT ROW", "insert into events", "the one event to insert"},
	{"SCAN rehearsals", "rehearsals", "wanted whole, in shadow mode only"},
	{"SCAN projection_versions", "projection_versions", "one row for each projection"},
	{"SCAN ids", "with recursive ids", "the campaigns of one page"},
	{"SCAN r", "select distinct r.campaign_id", "wanted whole, by the check command only"},
	{"SCAN CONSTANT ROW", "select", "a constant"},
	{"SCAN pragma_page_", "pragma_page_", "one number"},
	{"SCAN pragma_table_xinfo", "pragma_table_xinfo", "the columns of one table"},
	{"SCAN 3-ROW VALUES CLAUSE", "tally_events", "the rows to insert"},
	{"SCAN n", "select count(*) from", "what may be in the way of an append, up to a limit"},
	{"SCAN sqlite_master", "sqlite_master", "the schema"},
	{"SCAN goose_db_version", "goose_db_version", "one row for each migration"},
}

func TestSQLitePlans_noStatementScansTheOutboxOrTheJournal(t *testing.T) {
	t.Parallel()
	f := open(t, maxAttempts(2))
	f.everything()
	statements := f.allStatements()
	f.Close()
	var found []scan
	for _, s := range statements {
		for _, step := range plan(t, f.database(s), s.Query) {
			if strings.HasPrefix(step, "SCAN") {
				found = append(found, scan{step, s.Query, ""})
			}
		}
	}
	for _, a := range onlyAllowed(t, sqliteScans, found) {
		t.Errorf("nothing needs the allowance for %s in %q any more", a.step, a.query)
	}
}

// allStatements lists the statements of the store after all of it was used.
func (f *fixture) allStatements() []store.Statement {
	f.tb.Helper()
	statements := append(f.Statements(), f.swaps...)
	count := make(map[string]int)
	for _, s := range statements {
		count[s.Database]++
	}
	if count["journal"] < 65 || count["projections"] < 17 {
		f.tb.Fatalf("only %v statements were prepared; use all of the store", count)
	}
	return statements
}

// database is the raw connection to where a statement runs.
func (f *fixture) database(s store.Statement) *sql.DB {
	if s.Database == "journal" {
		return f.journal
	}
	return f.projections
}

func TestSQLitePlans_claimingUsesTheIndexOnDueTime(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.drain()
	if _, _, err := f.UntilDue(f.ctx, outbox.Scope{}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range f.Statements() {
		if !strings.Contains(s.Query, "due_at <= $1") && !strings.Contains(s.Query, "min(due_at)") {
			continue
		}
		found++
		if steps := strings.Join(plan(t, f.journal, s.Query), "; "); !strings.Contains(steps, "USING") || !strings.Contains(steps, "INDEX campaigns_due") && !strings.Contains(steps, "INDEX campaigns_suspects") || strings.Contains(steps, "TEMP B-TREE") {
			t.Errorf("%s\n\tfor %s", steps, s.Query)
		}
	}
	if found != 3 {
		t.Errorf("%d statements look for due campaigns, want three", found)
	}
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// plan reads the steps by which SQLite answers a query.
func plan(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	switch word, _, _ := strings.Cut(strings.TrimSpace(query), " "); strings.TrimSpace(word) {
	case "begin", "commit", "rollback", "savepoint", "release", "pragma":
		return nil
	}
	most := 0
	for _, p := range parameter.FindAllStringSubmatch(query, -1) {
		n, _ := strconv.Atoi(p[1])
		most = max(most, n)
	}
	rows, err := db.Query(`explain query plan `+query, make([]any, most)...)
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	return steps
}

// everything calls every method of the store that has statements of its own,
// so that each has been prepared.
func (f *fixture) everything() {
	f.tb.Helper()
	must := func(errs ...error) {
		f.tb.Helper()
		for _, err := range errs {
			if err != nil {
				f.tb.Fatal(err)
			}
		}
	}
	publishers := publishing.NewProgress(f.Store)
	f.useWorker(must)
	f.useActs(must)
	f.useReads(must)
	f.useOperations(must)
	f.useRuns(must)
	f.useSwaps(must)
	f.usePublishers(publishers, must)
	f.useConditions(must)
	f.useTokens(must)
	_, err := f.ActsRemovedBefore(f.ctx)
	must(err)
	_, err = f.PruneHistory(f.ctx, f.clock.now().Add(time.Hour))
	must(err)
	_, err = f.PruneActs(f.ctx, f.clock.now().Add(time.Hour))
	must(err)
}

// useTokens makes a token, uses it and takes it back.
func (f *fixture) useTokens(must func(...error)) {
	f.token("0123", outbox.RoleViewer, time.Hour)
	token, err := f.TokenByHash(f.ctx, "0123")
	must(err)
	f.NoteTokenUse(f.ctx, token)
	_, err = f.RevokeToken(f.ctx, ana(""), token.ID)
	must(err)
	_, err = f.List(f.ctx)
	must(err)
}

// usePublishers delivers for publishers, acts on them and asks for them.
func (f *fixture) usePublishers(publishers *publishing.Progress, must func(...error)) {
	scenes, all := outbox.PairName{Topic: "scenes", Publisher: "archive"}, outbox.PairName{Topic: "all", Publisher: "a"}
	definitions := []outbox.PublisherDefinition{{PairName: scenes, Match: outbox.Match{EventTypes: []string{"scene.*"}}, MaxErrors: 1},
		{PairName: all, Match: outbox.Match{EventTypes: []string{"*"}}, MaxErrors: 3}}
	must(publishers.Register(f.ctx, definitions), publishers.Register(f.ctx, definitions[:1]))
	last := f.appendAll(event("c", "scene.a"), event("c", "scene.b"))[1].Position
	l, _, err := publishers.Claim(f.ctx, "one", scenes, lease)
	must(err)
	_, err = publishers.Advance(f.ctx, &l, publishing.Advance{Position: 1, LastDelivered: 1, Delivered: 1, Lease: lease})
	must(err)
	_, err = publishers.Advance(f.ctx, &l, publishing.Advance{Position: 2, Lease: lease})
	must(err)
	_, err = publishers.Renew(f.ctx, []publishing.Beat{{Lease: l}}, lease)
	must(err)
	failure := publishing.Failure{Kind: outbox.EventError, Message: "x", Position: last}
	_, err = publishers.Fail(f.ctx, l, failure)
	must(err)
	_, err = publishers.Reset(f.ctx, ana(""), scenes)
	must(err)
	_, err = publishers.Fail(f.ctx, l, failure)
	must(err)
	_, err = publishers.States(f.ctx, "two", []outbox.PairName{scenes})
	must(err, publishers.AskFor(f.ctx, "two", scenes), publishers.Release(f.ctx, l))
	_, err = publishers.Acts(f.ctx, scenes)
	must(err)
	_, err = f.ActsOn(f.ctx, outbox.PublisherTarget(scenes), 10)
	must(err)
	_, err = publishers.Publishers(f.ctx)
	must(err)
	_, err = publishers.Publisher(f.ctx, scenes)
	must(err)
	_, err = publishers.SkipEvent(f.ctx, ana("x"), scenes, last)
	must(err)
	_, err = publishers.Pause(f.ctx, ana(""), scenes)
	must(err)
	_, err = publishers.Pause(f.ctx, ana(""), scenes)
	refused(f.tb, err, outbox.ErrConflict)
	_, err = publishers.Resume(f.ctx, ana(""), scenes)
	must(err)
	_, err = publishers.PreviewSeek(f.ctx, scenes, outbox.SeekTarget{Time: began})
	must(err)
	_, err = publishers.Seek(f.ctx, ana(""), scenes, outbox.SeekTarget{Beginning: true}, nil)
	must(err)
	o := ana("")
	o.IdempotencyKey = "test"
	_, err = publishers.AdmitTest(f.ctx, o, scenes)
	must(err, publishers.RecordTestDelivery(f.ctx, o, outbox.TestDelivery{PairName: scenes}))
	f.clock.advance(2 * time.Minute)
	must(f.Sample(f.ctx))
	_, err = publishers.History(f.ctx, scenes, outbox.SpanHour)
	must(err)
	_, err = f.JournalID(f.ctx)
	must(err)
}

// useConditions has a condition look every way there is.
func (f *fixture) useConditions(must func(...error)) {
	e := tagged("conditional", "seat.taken", "seat", "1", "show", "x")
	e.EventID = "e-1"
	f.appendAll(e)
	_, err := f.unless(e, 0, item("x"))
	must(err)
	e.EventID = ""
	for range 50 { // more than are looked at without counting
		f.appendAll(e)
	}
	_, err = f.unless(e, 1, item("other"), item("", "seat", "1", "show", "y"), item("seat.taken", "campaign_id", "conditional", "seat", "1", "actor_id", "p"),
		item("", "campaign_id", "conditional", "actor_id", "p"), item("", "entity_id", "e"))
	must(err)
	_, err = f.unless(e, 0, item("seat.taken"))
	refused(f.tb, err, outbox.ErrConflict)
	_, err = f.Position(f.ctx)
	must(err)
	_, err = f.Check(f.ctx, quiet)
	must(err)
}

// statementsOf lists what a Scratch has prepared, on PostgreSQL, for the live
// tables.
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

// useSwaps claims a campaign for a run and swaps its rows, as often as the
// statements of both sides need.
func (f *fixture) useSwaps(must func(...error)) {
	f.append("run", 3)
	p := tally()
	must(f.Install(f.ctx, []readmodel.Projection{p}))
	f.raw(`update campaigns set due_at = null where campaign_id <> 'run'`)
	f.claimOne(one, 2)
	claims := f.claimForRun("run")
	_, err := f.RenewForRun(f.ctx, run, claims, lease)
	must(err, f.MarkBuilt(f.ctx, "tally", "v1"))
	defer f.pause("run")
	defer func() { f.releaseFromRun(claims...) }()
	if _, proxied := f.Proxied(); proxied { // where there is no Scratch
		return
	}
	c := f.scratch()
	_, _, err = c.LoadLive(f.ctx, "run", p.Tables...)
	must(err)
	f.fold(c, "run", 1, 3, "x")
	plan := planFor(claims[0])
	plan.Watermark = &readmodel.NewWatermark{Passed: map[int64]int64{0: 1}}
	plan.Projections[0].State = outbox.CursorQuarantined
	plan.Projections[0].Failure = &readmodel.SwapFailure{Failure: *failure("boom"), EventType: "counted", Attempts: 1}
	f.swap(c, plan)
	plan.Watermark, plan.Projections[0].State, plan.Projections[0].Failure = &readmodel.NewWatermark{}, outbox.CursorLive, nil
	f.swap(c, plan)
	f.swaps = statementsOf(f, c)
	must(c.Clear(f.ctx, "run"), c.Clear(f.ctx, ""), c.Close())
}

func (f *fixture) useWorker(must func(...error)) {
	known := event("known", "counted")
	known.EventID = "e-1"
	f.appendAll(known)
	f.appendAll(known)
	f.AppendTogether([]store.Append{{Events: []outbox.Event{event("known", "counted")}}, {Events: []outbox.Event{{CampaignID: "known", EventType: "x", Seq: 99, Payload: []byte("{}")}}}})
	f.drain()
	f.append("dead", 3)
	f.kill("dead")
	f.append("crashing", 3)
	for range 4 {
		for _, c := range f.claim(one, 2) {
			must(f.Renew(f.ctx, one, []store.Claim{c}, lease))
		}
		f.clock.advance(lease)
	}
	f.pause("crashing")
	f.append("given back", 5)
	c := f.claimOne(one, 3)
	f.mustApply(c, 1)
	f.settle(one, store.Result{Claim: c, Applied: 1})
	f.lose("given back", "seq = 3")
	f.pause("given back")
	f.append("holed", 4)
	f.raw(`delete from projection_apply_outbox where campaign_id = 'holed' and seq = 3`)
	f.raw(`update campaigns set pending = 3 where campaign_id = 'holed'`)
	f.settle(one, store.Result{Claim: f.claimOne(one, 9), Applied: 0})
	f.pause("holed")
	f.append("counted", 1)
	for range 3 {
		f.crash(one, 9)
	}
	f.noClaim(one)
	f.pause("counted")
	f.append("inline", 1)
	inline, _, err := f.ClaimInline(f.ctx, one, "inline", store.ClaimLimits{Rows: 10, Lease: lease})
	must(err)
	f.settle(one, store.Result{Claim: inline})
	f.lose("inline", "seq = 1")
	must(f.EnqueueMissing(f.ctx, "inline"))
	f.pause("inline")
	f.append("expired", 2)
	f.claimOne(one, 1)
	f.clock.advance(lease)
	_, err = f.ReconcileCampaign(f.ctx, "expired")
	must(err, f.RecordRehearsal(f.ctx, store.Rehearsal{CampaignID: "a"}), f.Heartbeat(f.ctx, outbox.InstanceState{ID: "i"}),
		f.RegisterEventTypes(f.ctx, map[string]outbox.Intent{"noted": outbox.IntentAuditOnly}),
		f.Install(f.ctx, []readmodel.Projection{{Name: "p", Version: "v", Tables: []string{"p"}, Schema: []string{"create table p (x text)"}}}))
	e, err := f.Event(f.ctx, "dead", 1)
	must(err)
	f.useHolds(must)
	must(f.Apply(f.ctx, func(tx *readmodel.ApplyTx) error {
		must(tx.Savepoint(), tx.Failed("p", &e, *failure("boom")), tx.Quarantine("p", &e), tx.RollbackTo(), tx.Release())
		_, err := tx.SetAside("dead")
		must(tx.Resolve("dead", 1))
		return err
	}))
	_, _, err = f.UntilDue(f.ctx, outbox.Scope{})
	must(err, f.EndLeases(f.ctx, "nobody"))
}

// useHolds pauses a projection and resumes it, everywhere and for a campaign.
func (f *fixture) useHolds(must func(...error)) {
	loaded := []outbox.ProjectionInfo{{Name: "p"}}
	for _, campaign := range []string{"known", ""} {
		_, err := f.runs.PauseProjection(f.ctx, ana(""), "p", campaign, loaded)
		must(err)
		_, err = f.runs.PauseProjection(f.ctx, ana(""), "p", campaign, loaded)
		refused(f.tb, err, outbox.ErrConflict)
		must(f.Apply(f.ctx, func(tx *readmodel.ApplyTx) error {
			w, err := tx.Watermark("known")
			must(err)
			_, err = tx.Hold("known", w, nil)
			return err
		}))
		_, err = f.runs.ResumeProjection(f.ctx, ana(""), "p", campaign, loaded)
		must(err)
	}
	f.rawProjections(`update projection_cursors set state = 'behind' where projection = 'p' and campaign_id = 'known'`)
	_, err := f.runs.Behind(f.ctx)
	must(err)
	_, err = f.Reconcile(f.ctx)
	must(err)
	f.rawProjections(`update projection_cursors set state = 'live' where projection = 'p' and campaign_id = 'known'`)
	for _, r := range f.active() {
		_, err := f.runs.Cancel(f.ctx, ana(""), r.ID)
		must(err)
	}
}

func (f *fixture) useActs(must func(...error)) {
	o := ana("")
	o.IdempotencyKey, o.Expected = "k", &outbox.Expected{Status: outbox.Dead}
	_, err := f.RequeueRow(f.ctx, o, "dead", 1)
	must(err)
	_, err = f.RequeueRow(f.ctx, ana(""), "dead", 1)
	refused(f.tb, err, outbox.ErrConflict)
	f.pause("dead")
	f.append("failed", 2)
	f.raw(`update campaigns set due_at = null where campaign_id <> 'failed'`)
	f.fail("boom", "failed")
	_, err = f.RetryRow(f.ctx, ana(""), "failed", 1)
	must(err)
	f.fail("boom", "failed")
	for _, filter := range []outbox.RequeueFilter{{}, {CampaignID: "failed"}} {
		_, err = f.RequeueDead(f.ctx, ana(""), filter)
		must(err)
	}
	_, err = f.ReplayCampaign(f.ctx, ana(""), "given back")
	must(err)
	_, err = f.RepairGaps(f.ctx, ana(""))
	must(err)
	_, err = f.ResumeCampaign(f.ctx, ana(""), "given back")
	must(err)
	_, err = f.RetryFailed(f.ctx, ana(""), outbox.RequeueFilter{})
	must(err)
	f.raw(`update campaigns set due_at = null`)
	f.append("noted", 1)
	f.fail("boom", "noted")
	for _, note := range []string{"known", ""} {
		_, err = f.NoteGroup(f.ctx, ana(""), "boom", note)
		must(err)
	}
	f.raw(`update campaigns set due_at = null`)
	f.append("skipped", 2)
	f.kill("skipped")
	f.skip("skipped", 1)
	passed := f.claimOne(one, 1)
	f.mustApply(passed, 1)
	f.settle(one, store.Result{Claim: passed, Applied: 1})
	f.pause("skipped")
	_, err = f.UnskipEvent(f.ctx, ana(""), "skipped", 1)
	must(err)
	_, err = f.Skips(f.ctx, outbox.SkipFilter{CampaignID: "skipped"})
	must(err)
	// A mark where the watermark stands is looked up in the ledger.
	f.rawProjections(`insert into watermark_skips (campaign_id, seq, skip_id, at) values ('skipped', 0, 1, 1)`)
	_, err = f.ReplayCampaign(f.ctx, ana(""), "skipped")
	must(err)
	f.rawProjections(`delete from watermark_skips`)
}

func (f *fixture) useReads(must func(...error)) {
	for _, status := range append([]outbox.Status{""}, outbox.Statuses...) {
		_, err := f.Rows(f.ctx, outbox.RowFilter{Status: status})
		must(err)
		_, err = f.Rows(f.ctx, outbox.RowFilter{Status: status, CampaignID: "dead", Q: "x"})
		must(err)
	}
	f.useLists(must)
	f.row("dead", 1)
	_, err := f.Events(f.ctx, "dead", 0, 0)
	must(err)
	for _, part := range []outbox.Part{outbox.PartPayload, outbox.PartTags, outbox.PartMetadata} {
		_, _, err = f.Document(f.ctx, "dead", 1, part)
		must(err)
	}
	f.appendAll(outbox.Event{CampaignID: "known", EventType: "counted", CausationID: "e-1", Payload: []byte("{}")})
	_, err = f.EventWithin(f.ctx, "known", f.campaign("known").HighWaterSeq, 0)
	must(err)
	_, err = f.EventLines(f.ctx, "dead", 1, 3)
	must(err)
	_, err = f.EventHistory(f.ctx, "dead", 1)
	must(err)
	p := []outbox.ProjectionInfo{{Name: "p"}}
	_, err = f.runs.HeldCursors(f.ctx, "dead", p)
	must(err)
	_, err = f.runs.Cursors(f.ctx, "dead", p)
	must(err)
	f.rawProjections(`insert into projection_cursors (campaign_id, projection, applied_seq, state, updated_at) values ('dead', 'p', 0, 'behind', 1)`)
	_, err = f.runs.ProjectionCursors(f.ctx, outbox.CursorFilter{Projection: "p", State: outbox.CursorBehind}, p)
	must(err)
	f.rawProjections(`delete from projection_cursors`)
	_, err = f.Failure(f.ctx, 99)
	refused(f.tb, err, outbox.ErrNotFound)
	_, err = f.Blocked(f.ctx, 0)
	must(err)
	_, err = f.Paused(f.ctx, 0)
	must(err)
	_, err = f.ErrorGroups(f.ctx)
	must(err)
	f.clock.advance(2 * time.Minute)
	must(f.Sample(f.ctx))
	_, err = f.History(f.ctx, outbox.SpanHour)
	must(err)
	_, err = f.CampaignHistory(f.ctx, "dead", f.clock.now())
	must(err)
	_, err = f.Summary(f.ctx)
	must(err)
	_, err = f.Instances(f.ctx)
	must(err)
	_, err = f.Rehearsals(f.ctx)
	must(err)
	_, err = f.EventsFrom(f.ctx, 0, 10)
	must(err)
	_, err = f.OutstandingCampaigns(f.ctx, "", 10)
	must(err)
	_, err = f.runs.DescribeProjections(f.ctx, []outbox.ProjectionInfo{{Name: "p"}})
	must(err)
	_, err = f.Databases(f.ctx)
	must(err)
	_, err = f.ActOfKey(f.ctx, "k")
	must(err)
	_, _, err = f.SelfCheck(f.ctx, maintenance.Round{}, 10)
	must(err)
	f.gaps()
	_, err = f.Check(f.ctx, quiet)
	must(err)
	f.Ready(f.ctx)
}

func (f *fixture) useRuns(must func(...error)) {
	_, err := f.runs.Prune(f.ctx)
	must(err)
	cancelled, err := f.runs.Start(f.ctx, ana(""), rebuild("dead", "known"), loadedRuns)
	must(err)
	_, err = f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(f.tb, err, outbox.ErrConflict)
	_, err = f.runs.Preview(f.ctx, rebuild("dead", "known"), loadedRuns)
	must(err)
	_, err = f.runs.Preview(f.ctx, verifyAll(), loadedRuns)
	must(err)
	l := f.claimRun(one)
	_, err = f.runs.Scope(f.ctx, l, "", 10)
	must(err)
	_, err = f.runs.Cancel(f.ctx, ana(""), cancelled.ID)
	must(err)
	f.finish(l, outbox.RunCancelled, "")
	run, err := f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
	must(err)
	l = f.claimRun(one)
	_, err = f.runs.Scope(f.ctx, l, "", 10)
	must(err)
	known := result("known", outbox.OutcomeMatch, 1)
	known.Projections = []outbox.ProjectionResult{{Projection: "roster", Verdict: outbox.VerdictMatch}}
	_, err = f.runs.Report(f.ctx, l, runs.Progress{Results: []outbox.RunResult{known}, Lines: []outbox.RunLine{{Text: "x"}}, Lease: lease})
	must(err, f.runs.Release(f.ctx, l), f.runs.EndLeases(f.ctx, "nobody"))
	_, err = f.runs.Finish(f.ctx, f.claimRun(two), outbox.RunFailed, "boom")
	must(err)
	_, err = f.runs.Resume(f.ctx, ana(""), run.ID, loadedRuns)
	must(err)
	_, err = f.runs.Active(f.ctx)
	must(err)
	_, err = f.runs.Tallies(f.ctx)
	must(err)
	for _, cursor := range []string{"", ">", "<"} {
		page := func(name string) string {
			if cursor == "" {
				return ""
			}
			return base64.RawURLEncoding.EncodeToString([]byte(cursor + name))
		}
		_, err = f.runs.List(f.ctx, outbox.RunFilter{Cursor: page("runs")})
		must(err)
		_, err = f.runs.Log(f.ctx, run.ID, page("run-log"), 0)
		must(err)
		_, err = f.runs.Results(f.ctx, outbox.ResultFilter{RunID: run.ID, Cursor: page("run-results")})
		must(err)
		_, err = f.runs.Results(f.ctx, outbox.ResultFilter{RunID: run.ID, Outcome: outbox.OutcomeMatch, Cursor: page("run-results-match")})
		must(err)
	}
	_, err = f.runs.ResultOf(f.ctx, run.ID, "known")
	must(err)
	_, err = f.Verifications(f.ctx, "known")
	must(err)
	_, err = f.Drifted(f.ctx, 0)
	must(err)
	_, _, err = f.runs.Stalest(f.ctx, "", 3)
	must(err)
}

// useLists walks every list in both directions, and has each counted.
func (f *fixture) useLists(must func(...error)) {
	for _, reverse := range []bool{false, true} {
		for _, status := range append([]outbox.Status{""}, outbox.Statuses...) {
			_, err := f.Rows(f.ctx, outbox.RowFilter{Status: status, Reverse: reverse, Limit: 1})
			must(err)
			_, err = f.Rows(f.ctx, outbox.RowFilter{Status: status, EventType: "counted", Limit: 1, Reverse: reverse, Cursor: lastPage(status, reverse)})
			must(err)
		}
		_, err := f.Rows(f.ctx, outbox.RowFilter{CampaignID: "dead", EventType: "counted", Limit: 1, Reverse: reverse})
		must(err)
		for _, sort := range []outbox.CampaignSort{outbox.SortID, outbox.SortLag, outbox.SortAge} {
			_, err := f.Campaigns(f.ctx, outbox.CampaignFilter{Sort: sort, Reverse: reverse, Q: "a", Limit: 1})
			must(err)
		}
		for _, failures := range []outbox.FailureFilter{{}, {Status: outbox.FailureOpen}, {CampaignID: "dead"}} {
			failures.Limit, failures.Cursor = 1, map[bool]string{true: base64.RawURLEncoding.EncodeToString([]byte("<failures"))}[reverse]
			_, err := f.Failures(f.ctx, failures)
			must(err)
		}
		cursors := outbox.CursorFilter{Projection: "p", Cursor: map[bool]string{true: base64.RawURLEncoding.EncodeToString([]byte("<cursors"))}[reverse]}
		_, err = f.runs.ProjectionCursors(f.ctx, cursors, []outbox.ProjectionInfo{{Name: "p"}})
		must(err)
		for _, campaign := range []string{"", "dead"} {
			_, err := f.Acts(f.ctx, outbox.ActFilter{CampaignID: campaign, Reverse: reverse, Limit: 1})
			must(err)
			_, err = f.Acts(f.ctx, outbox.ActFilter{Target: outbox.RunTarget(1), Reverse: reverse, Limit: 1})
			must(err)
		}
	}
}

// lastPage is the cursor of the last page of a list of rows.
func lastPage(status outbox.Status, reverse bool) string {
	name := map[bool]string{false: "seq", true: "due"}[status == outbox.Dead || status == outbox.Failed]
	return base64.RawURLEncoding.EncodeToString([]byte("<" + name + map[bool]string{false: "+", true: "-"}[reverse]))
}
