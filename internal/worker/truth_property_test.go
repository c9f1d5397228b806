package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// story records the events applied to a campaign's projections.
const story = `-- projection: story
-- tables: story

-- schema
create table story (campaign_id text not null, seq bigint not null, mark text not null, primary key (campaign_id, seq));

-- on: *
insert into story (campaign_id, seq, mark) values (:campaign_id, :seq, :payload.mark!);
`

// The campaigns of a history. a and b never have bad events; x has events that kill the
// process, and p some that cannot be applied.
var (
	innocents = []string{"a", "b"}
	everybody = []string{"a", "b", "p", "x"}
)

// honest is a system with random faults that must always report its state correctly.
type honest struct {
	tb      enginetest.RapidTB
	now     *storetest.Clock
	ahead   time.Duration // of this clock
	turned  bool          // the clock was set back once
	mode    outbox.Mode
	sources []string
	benches []*enginetest.Engine
	journal map[string][]string // marks of the events, in order
	marks   int
	fatal   map[string]bool // by mark
}

func newHonest(tb enginetest.RapidTB, m outbox.Mode, sources []string) *honest {
	s := &honest{tb: tb, now: storetest.NewClock(), mode: m, sources: sources, journal: make(map[string][]string), fatal: make(map[string]bool)}
	first := enginetest.Open(tb, sources, s.options()...)
	s.benches = []*enginetest.Engine{first, first.Beside(tb, s.options()...)}
	for _, id := range everybody {
		s.append(first, id, "opened", `"balance":1`)
	}
	return s
}

func (s *honest) options() []enginetest.Option {
	return []enginetest.Option{enginetest.At(s.now), enginetest.BatchSize(8), enginetest.MaxAttempts(3), enginetest.InMode(s.mode)}
}

func (s *honest) either(t *rapid.T) *enginetest.Engine {
	return s.benches[rapid.IntRange(0, 1).Draw(t, "process")]
}

func (s *honest) append(b *enginetest.Engine, id, eventType, fields string) (mark string) {
	s.marks++
	mark = fmt.Sprint("m-", s.marks)
	s.now.Advance(time.Millisecond)
	b.MustAppend(s.tb, enginetest.EventOf(id, eventType, fmt.Sprintf(`{"mark":%q,%s}`, mark, fields)))
	s.journal[id] = append(s.journal[id], mark)
	return mark
}

// write appends some events and applies them where the request has to, unless its process dies
// before.
func (s *honest) write(t *rapid.T) {
	b, id := s.either(t), rapid.SampledFrom(everybody).Draw(t, "campaign")
	for range rapid.IntRange(1, 6).Draw(t, "events") {
		special := rapid.IntRange(0, 3).Draw(t, "special") == 0
		switch {
		case special && id == "p":
			s.append(b, id, "spent", `"amount":2`)
		case (special || rapid.Bool().Draw(t, "lethal")) && id == "x" && s.mode == outbox.ModeOutbox:
			s.fatal[s.append(b, id, "noted", `"n":1`)] = true
		default:
			s.append(b, id, "noted", `"n":1`)
		}
	}
	if s.mode == outbox.ModeInline && rapid.IntRange(0, 4).Draw(t, "dies") > 0 {
		_ = b.Worker.ApplyInline(context.Background(), id) // it may fail, and the events must be queued then
	}
}

// work processes some waves or suspects.
func (s *honest) work(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "waves") {
		if s.pass(t) {
			s.now.Advance(enginetest.LeaseTime + time.Second) // until it counts as gone
		}
	}
}

// pass processes a wave or a suspect. A process that meets a fatal event dies, and its leases
// stay.
func (s *honest) pass(t *rapid.T) (died bool) {
	ctx, b := context.Background(), s.either(t)
	var claims []store.Claim
	var err error
	if !rapid.Bool().Draw(t, "a suspect first") {
		claims, err = b.Claim(ctx, b.Worker.Name(), store.ClaimLimits{Rows: 8, Lease: enginetest.LeaseTime})
	}
	if err == nil && len(claims) == 0 {
		claims, err = b.ClaimSuspect(ctx, b.Worker.Name(), enginetest.LeaseTime)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims {
		for _, mark := range s.journal[c.CampaignID][c.First-1 : min(int(c.Last), len(s.journal[c.CampaignID]))] {
			if s.fatal[mark] {
				return true
			}
		}
	}
	must.OK(t, b.FinishClaims(ctx, claims))
	return false
}

func (s *honest) advance(t *rapid.T) {
	s.now.Advance(rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, enginetest.LeaseTime + time.Second, time.Hour}).Draw(t, "time"))
}

// turnClock sets the clock a day ahead, or back to the right time.
func (s *honest) turnClock(t *rapid.T) {
	const day = 24 * time.Hour
	if s.ahead == 0 {
		s.ahead = day
	} else {
		s.ahead, s.turned = 0, true
		s.now.Advance(-2 * day)
	}
	s.now.Advance(day)
}

func (s *honest) pauseOrResume(t *rapid.T) {
	b, id := s.either(t), rapid.SampledFrom(everybody).Draw(t, "campaign")
	_, err := b.PauseCampaign(context.Background(), enginetest.Operator, id)
	if errors.Is(err, outbox.ErrConflict) {
		_, err = b.ResumeCampaign(context.Background(), enginetest.Operator, id)
	}
	if err != nil && !errors.Is(err, outbox.ErrNotFound) {
		t.Fatal(err)
	}
}

func (s *honest) pauseOrResumeProjection(t *rapid.T) {
	b, id := s.either(t), rapid.SampledFrom(append([]string{""}, innocents...)).Draw(t, "campaign")
	_, err := b.Runs.PauseProjection(context.Background(), enginetest.Operator, "accounts", id, b.Infos())
	if errors.Is(err, outbox.ErrConflict) {
		_, err = b.Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", id, b.Infos())
	}
	if err != nil && !errors.Is(err, outbox.ErrConflict) && !errors.Is(err, outbox.ErrNotFound) {
		t.Fatal(err)
	}
}

func (s *honest) verify(t *rapid.T) {
	b := s.either(t)
	if _, err := b.Runs.Start(context.Background(), enginetest.Operator, outbox.RunRequest{Kind: outbox.RunVerify, All: true}, b.Infos()); err != nil && !errors.Is(err, outbox.ErrConflict) {
		t.Fatal(err)
	}
}

func (s *honest) workOnRuns(t *rapid.T) { s.either(t).StepRuns(s.tb) }

// restore sets a campaign's journal back to an earlier state while no process runs; then others
// start.
func (s *honest) restore(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "x"}).Draw(t, "campaign")
	last := rapid.IntRange(0, len(s.journal[id])).Draw(t, "events")
	for _, b := range s.benches {
		must.OK(t, b.EndLeases(context.Background(), b.Worker.Name().ID))
	}
	forget(s.tb, s.benches[0], id, last)
	s.journal[id] = s.journal[id][:last]
	for i, b := range s.benches {
		s.benches[i] = b.Beside(s.tb, s.options()...)
	}
	s.reconcile()
}

// restart does what a process does at its start.
func (s *honest) restart(*rapid.T) { s.reconcile() }

// reconcile runs while no request applies events.
func (s *honest) reconcile() {
	s.now.Advance(store.InlineWait)
	must.Get(s.benches[0].Reconcile(context.Background())).Or(s.tb)
}

func (s *honest) requeue(t *rapid.T) {
	must.Get(s.either(t).RequeueDead(context.Background(), enginetest.Operator, outbox.RequeueFilter{})).Or(t)
}

// rebuild is the operator's response to diverged campaigns.
func (s *honest) rebuild(tb testing.TB, b *enginetest.Engine) {
	page := must.Get(b.Campaigns(context.Background(), outbox.CampaignFilter{State: outbox.StateDiverged})).Or(tb)
	for _, c := range page.Items {
		_, err := b.Runs.Start(context.Background(), enginetest.Operator, outbox.RunRequest{Kind: outbox.RunRebuild, Campaigns: []string{c.CampaignID}}, b.Infos())
		if err != nil && !errors.Is(err, outbox.ErrConflict) {
			tb.Fatal(err)
		}
	}
}

// console is the server of one process at this time.
func (s *honest) console(b *enginetest.Engine) func(path string) (int, string) {
	server := handlers.New(handlers.Config{Store: b.Store, Search: search.New(b.Store), Operations: b.Operations, Runs: b.Runs, Publishers: publishing.NewProgress(b.Store), Intake: intake.New(b.Store), Mode: s.mode, Version: "test", Metrics: metrics.New(b.Summary), Projections: b.Infos(), Now: s.now.Now})
	return func(path string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080"+path, nil)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
}

func (s *honest) told(id string) []string {
	return enginetest.Column[string](s.tb, s.benches[0].ProjectionsDB, `select mark from story where campaign_id = $1 order by seq`, id)
}

// campaignTold is a campaign in the API.
type campaignTold struct {
	HighWaterSeq int            `json:"high_water_seq"`
	AppliedSeq   int            `json:"applied_seq"`
	LagEvents    int            `json:"lag_events"`
	State        outbox.State   `json:"state"`
	Hold         outbox.Blocker `json:"blocker"`
	Why          string         `json:"why"`
	Counts       outbox.Counts  `json:"counts"`
	Paused       any            `json:"paused"`
	HeadStatus   outbox.Status  `json:"head_status"`
}

// everyStep checks after each step that no event is lost, no innocent campaign has failed, and
// each campaign reports its state correctly.
func (s *honest) everyStep(t *rapid.T) {
	get := s.console(s.benches[0])
	for _, id := range everybody {
		journal, told := s.journal[id], s.told(id)
		seen := len(told) <= len(journal) && slices.Equal(told, journal[:len(told)])
		status, body := get("/api/v1/campaigns/" + id)
		if len(journal)+len(told) == 0 { // it was restored to before its first event
			if status != http.StatusNotFound && !strings.Contains(body, "Everything is applied") {
				t.Fatalf("campaign %q, which has no event: %d %s", id, status, body)
			}
			continue
		}
		var c campaignTold
		if err := json.Unmarshal([]byte(body), &c); err != nil || status != http.StatusOK {
			t.Fatalf("campaign %q: %d %s", id, status, body)
		}
		switch {
		case c.HighWaterSeq != len(journal):
			t.Fatalf("campaign %q has %d events and says %s", id, len(journal), body)
		case seen == (c.State == outbox.StateDiverged):
			t.Fatalf("campaign %q: the journal has %v, the projections have %v, and it says %s", id, journal, told, body)
		case seen && (c.AppliedSeq > len(told) || c.AppliedSeq < len(told) && c.Hold != outbox.BlockerLease && c.Hold != outbox.BlockerNone):
			t.Fatalf("campaign %q: the projections have %d events, and it says %s", id, len(told), body)
		case seen && c.LagEvents != len(journal)-c.AppliedSeq:
			t.Fatalf("campaign %q: its lag is not %d: %s", id, len(journal)-c.AppliedSeq, body)
		case (c.State == outbox.StateCurrent) && c.LagEvents > 0, c.LagEvents == 0 && c.Paused == nil && c.State == outbox.StateLagging:
			t.Fatalf("campaign %q is %s", id, body)
		case slices.Contains(innocents, id) && (c.Counts.Failed > 0 || c.Counts.Dead > 0):
			t.Fatalf("innocent campaign %q: %s", id, body)
		}
		due := enginetest.Column[int](s.tb, s.benches[0].JournalDB, `select count(*) from campaigns where campaign_id = $1 and due_at <= $2`, id, s.now.Now().UnixMicro())[0] > 0
		if due != (c.Hold == outbox.BlockerNone) {
			t.Fatalf("campaign %q can be claimed: %v; and it says %s", id, due, body)
		}
		rows := enginetest.Column[string](s.tb, s.benches[0].JournalDB, `select status from projection_apply_outbox where campaign_id = $1`, id)
		if n := c.Counts.Pending + c.Counts.Processing + c.Counts.Failed + c.Counts.Dead; int(n) != len(rows) {
			t.Fatalf("campaign %q has rows %v and says %s", id, rows, body)
		}
		if tried := enginetest.Column[int](s.tb, s.benches[0].JournalDB, `select seq from projection_apply_outbox where campaign_id = $1 and attempt_count > 0`, id); len(tried) > 0 && slices.Contains(innocents, id) {
			t.Fatalf("events %v of innocent campaign %q are blamed for an attempt", tried, id)
		}
		if _, page := get("/campaigns/" + id); !strings.Contains(page, escaped(c.Why)) {
			t.Fatalf("the page of campaign %q does not say %q", id, c.Why)
		}
	}
}

// escaped is a text as HTML.
func escaped(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(text)
}

var shownNumber = regexp.MustCompile(`data-testid="(count-[a-z]+)">([0-9,]+)<`)

// look compares the state that a newly started process reports on its overview, in the API, in
// metrics and by check with the tables.
func (s *honest) look(t *rapid.T) {
	b := s.benches[0].Beside(s.tb, s.options()...)
	defer b.Close()
	get, raw := s.console(b), s.benches[0].JournalDB
	number := func(query string, args ...any) int { return enginetest.Column[int](s.tb, raw, query, args...)[0] }
	want := map[string]int{
		"campaigns": number(`select count(*) from campaigns`),
		"blocked":   number(`select count(*) from campaigns where exists (select 1 from projection_apply_outbox o where o.campaign_id = campaigns.campaign_id and o.seq = campaigns.applied_seq + 1 and o.status = 'dead')`),
		"paused":    number(`select count(*) from campaigns where paused_at is not null`),
		"diverged":  0,
		"lag":       0,
	}
	for _, id := range everybody {
		told := s.told(id)
		if len(told) > len(s.journal[id]) || !slices.Equal(told, s.journal[id][:len(told)]) {
			want["diverged"]++
		}
		want["lag"] += number(`select coalesce(sum(high_water_seq - applied_seq), 0) from campaigns where campaign_id = $1`, id)
	}
	_, body := get("/metrics")
	for name, gauge := range map[string]string{"campaigns": "campaigns", "blocked": "blocked_campaigns", "paused": "paused_campaigns", "diverged": "diverged_campaigns", "lag": "lag_events"} {
		if line := fmt.Sprintf("\noutboxweb_%s %d\n", gauge, want[name]); !strings.Contains(body, line) {
			t.Fatalf("the metrics lack %q", line)
		}
	}
	_, page := get("/")
	shown := map[string]string{}
	for _, m := range shownNumber.FindAllStringSubmatch(page, -1) {
		shown[m[1]] = m[2]
	}
	for _, status := range []string{"pending", "processing", "failed", "dead"} {
		n := number(`select count(*) from projection_apply_outbox where status = $1`, status)
		if line := fmt.Sprintf("\noutboxweb_rows{status=%q} %d\n", status, n); !strings.Contains(body, line) || shown["count-"+status] != fmt.Sprint(n) {
			t.Fatalf("%d rows are %s; the page says %q, and the metrics lack %q", n, status, shown["count-"+status], line)
		}
	}
	s.age(t, get)
	report := must.Get(b.Check(context.Background(), func(int64, int64) {})).Or(t)
	found := slices.DeleteFunc(report.Violations, func(v outbox.Violation) bool {
		turned := v.Invariant == "recorded_at" || s.turned && strings.Contains(v.Detail, "it should be due at") // until the self-check corrects it
		paused := v.Invariant == "unknown_campaign" && len(s.journal[v.CampaignID]) == 0                        // before it was restored to nothing
		owed := v.Invariant == "replay_owed" && v.CampaignID == "p"                                             // its replay met an event that cannot be applied
		return turned || paused || owed
	})
	if (len(found) == 0) != (want["diverged"] == 0) {
		t.Fatalf("with %d campaigns diverged check found %+v", want["diverged"], found)
	}
}

// age compares the reported ages with the times of events.
func (s *honest) age(t *rapid.T, get func(string) (int, string)) {
	var sum struct {
		Oldest *struct {
			EnqueuedAt time.Time `json:"enqueued_at"`
		} `json:"oldest"`
		OldestRetryable *struct {
			EnqueuedAt time.Time `json:"enqueued_at"`
		} `json:"oldest_retryable"`
	}
	_, body := get("/api/v1/summary")
	must.OK(t, json.Unmarshal([]byte(body), &sum))
	const first = `select coalesce(min(e.recorded_at), 0) from events e join campaigns c on c.campaign_id = e.campaign_id where e.seq = c.applied_seq + 1`
	for _, x := range []struct {
		told *struct {
			EnqueuedAt time.Time `json:"enqueued_at"`
		}
		query string
	}{{sum.Oldest, first}, {sum.OldestRetryable, first + ` and c.paused_at is null and c.diverged = '' and coalesce(c.head_status, '') <> 'dead'`}} {
		at := enginetest.Column[int64](s.tb, s.benches[0].JournalDB, x.query)[0]
		if (at != 0) != (x.told != nil) || x.told != nil && x.told.EnqueuedAt.UnixMicro() != at {
			t.Fatalf("the oldest event is of %d; told: %s", at, body)
		}
	}
}

// settle ends all faults.
func (s *honest) settle(r *rapid.T) {
	ctx, b := context.Background(), s.benches[0]
	clear(s.fatal)
	s.now.Advance(48 * time.Hour)
	for _, id := range append([]string{""}, everybody...) {
		if _, err := b.Runs.ResumeProjection(ctx, enginetest.Operator, "accounts", id, b.Infos()); err != nil && !errors.Is(err, outbox.ErrConflict) && !errors.Is(err, outbox.ErrNotFound) {
			r.Fatal(err)
		}
		if id == "" {
			continue
		}
		if _, err := b.ResumeCampaign(ctx, enginetest.Operator, id); err != nil && !errors.Is(err, outbox.ErrConflict) && !errors.Is(err, outbox.ErrNotFound) {
			r.Fatal(err)
		}
	}
	for range 3 {
		s.reconcile()
		s.rebuild(s.tb, b)
		for _, b := range s.benches {
			b.StepRuns(s.tb)
			enginetest.MustExec(s.tb, b.ProjectionsDB, `update accounts set balance = 1000`)
			must.Get(b.RequeueDead(ctx, enginetest.Operator, outbox.RequeueFilter{})).Or(r)
			enginetest.UntilStuck(s.tb, b, s.now)
		}
	}
}

func TestWorker_tellsTheTruthWhateverHappens(t *testing.T) {
	t.Parallel()
	for _, m := range []outbox.Mode{outbox.ModeOutbox, outbox.ModeInline} {
		for policy, definition := range map[string]string{"block": enginetest.Accounts, "quarantine": enginetest.LenientAccounts} {
			t.Run(string(m)+" "+policy, func(t *testing.T) {
				t.Parallel()
				sources := enginetest.Define(t, story, definition)
				rapid.Check(t, func(r *rapid.T) {
					s := newHonest(enginetest.RapidTB{TB: t, R: r}, m, sources)
					r.Repeat(map[string]func(*rapid.T){
						"write": s.write, "write more": s.write, "work": s.work, "work more": s.work, "work even more": s.work,
						"advance": s.advance, "turn the clock": s.turnClock, "pause or resume": s.pauseOrResume,
						"pause or resume a projection": s.pauseOrResumeProjection, "verify": s.verify, "work on runs": s.workOnRuns,
						"restore": s.restore, "restart": s.restart, "requeue": s.requeue, "look": s.look,
						"": s.everyStep,
					})
					s.settle(r)
					s.everyStep(r)
					s.look(r)
					for _, id := range everybody {
						if told := s.told(id); !slices.Equal(told, s.journal[id]) {
							r.Fatalf("campaign %q is not drained: the journal has %v, the projections %v", id, s.journal[id], told)
						}
					}
				})
			})
		}
	}
}
