package outboxweb_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb"
	"github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// errorLines is a log: how often it says that a database went back.
type errorLines struct{ wentBack atomic.Int64 }

func (l *errorLines) Write(p []byte) (int, error) {
	l.wentBack.Add(int64(bytes.Count(p, []byte("went back"))))
	return len(p), nil
}

// sunk is a destination: the campaigns and ids of the events in the order of their first delivery.
type sunk struct {
	mu  sync.Mutex
	ids []string
}

func (s *sunk) Publish(_ context.Context, events []outboxweb.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if id := e.CampaignID + " " + e.EventID; !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
	}
	return nil
}

func (s *sunk) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// failover is two instances on databases of servers of their own, which can lose what they committed. The
// second one reaches the journal through a pooler, connections to which survive the server behind it.
type failover struct {
	t           *testing.T
	journal     *pgtest.Server
	projections *pgtest.Server
	db          *sql.DB // of the journal
	shop        *sql.DB // a service
	engines     []*outboxweb.Engine
	consoles    []http.Handler
	logs        []*errorLines
	sinks       []*sunk // by publisher, of both instances
}

func startFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{t: t, sinks: []*sunk{{}, {}}}
	for _, server := range []**pgtest.Server{&f.journal, &f.projections} {
		*server = must.Get(pgtest.Start()).Or(t)
		t.Cleanup(func() { must.OK(t, (*server).Stop()) })
	}
	direct := dbtest.InSchema(f.journal.URL("postgres"), "journal")
	f.db, f.shop = dbtest.Open(t, direct), dbtest.Open(t, f.projections.URL("postgres"))
	for _, db := range []*sql.DB{f.db, f.shop} {
		db.SetMaxIdleConns(0) // the servers restart
	}
	must.Get(f.shop.Exec(must.Get(intake.Schema("postgres")).Or(t))).Or(t)
	for _, journal := range []string{direct, f.journal.Pooler(t)(direct)} {
		l := &errorLines{}
		e := must.Get(outboxweb.Open(t.Context(), outboxweb.Config{JournalDB: journal, ProjectionsDB: dbtest.InSchema(f.projections.URL("postgres"), "projections"), BasePath: "/", Lease: 5 * time.Second,
			PollInterval: 100 * time.Millisecond, MaxAttempts: 1000, Sources: map[string]outboxweb.Source{"shop": {URL: f.projections.URL("postgres")}},
			Logger: slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelError}))})).Or(t)
		t.Cleanup(func() { e.Close() })
		must.OK(t, e.Project(orders()))
		for i, sink := range f.sinks {
			must.OK(t, e.Publish(outboxweb.Topic{Name: "all", EventTypes: []string{"*"}, PollInterval: 100 * time.Millisecond}, fmt.Sprintf("sink-%d", i), sink))
		}
		console := e.Handler(nil)
		run(t, e)
		f.engines, f.logs, f.consoles = append(f.engines, e), append(f.logs, l), append(f.consoles, console)
	}
	must.Eventually(t, "each instance has a publisher", func() bool {
		return f.number(`select count(distinct lease_owner) from publisher_progress where lease_owner <> ''`) == 2
	})
	return f
}

func (f *failover) number(query string) int {
	f.t.Helper()
	return storetest.Column[int](f.t, f.db, query)[0]
}

// append appends an event with an id of its own to each campaign, through alternating instances and
// through the intake.
func (f *failover) append(word string, campaigns ...string) {
	f.t.Helper()
	for i, campaign := range campaigns {
		id := fmt.Sprintf("%s-%s-%d", word, campaign, i)
		event := outboxweb.Event{CampaignID: campaign, EventID: id, EventType: "order." + word, Payload: json.RawMessage(`{"item":"tea"}`)}
		must.Eventually(f.t, "the event is appended", func() bool {
			_, err := f.engines[i%2].Append(f.t.Context(), event)
			must.Need(f.t, err == nil || errors.Is(err, outboxweb.ErrBusy), "%v", err)
			return err == nil
		})
	}
}

func (f *failover) insert(campaign, word string) {
	f.t.Helper()
	must.OK(f.t, fromService(f.t, f.shop, intake.Event{CampaignID: campaign, EventID: word + "-" + campaign + "-shop", EventType: "order." + word, Payload: []byte(`{"item":"tea"}`)}).Commit())
}

// settled waits until both destinations have got every event of the journal, and says in which order
// of campaigns and seqs they did.
func (f *failover) settled() {
	f.t.Helper()
	must.Eventually(f.t, "every event is moved, applied or diverged, and delivered", func() bool {
		return storetest.Column[int](f.t, f.shop, `select count(*) from outboxweb_intake`)[0] == 0 &&
			f.number(`select count(*) from campaigns where applied_seq < high_water_seq and diverged = ''`) == 0 &&
			f.number(`select count(*) from publisher_progress where position < (select max(position) from events)`) == 0
	})
	ids := storetest.Texts(f.t, f.db, `select campaign_id || ' ' || event_id from events order by campaign_id collate "C", seq`)
	campaign := func(id string) string { return strings.Fields(id)[0] }
	for i, sink := range f.sinks {
		got := slices.DeleteFunc(sink.got(), func(id string) bool { return !slices.Contains(ids, id) })
		slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(campaign(a), campaign(b)) })
		must.Hold(f.t, slices.Equal(got, ids), "destination %d got of the journal's events, by campaign,\n%v\nof\n%v", i, got, ids)
	}
}

func (f *failover) get(i int, path string, into any) {
	f.t.Helper()
	must.Eventually(f.t, "an answer to "+path, func() bool {
		w := httptest.NewRecorder()
		f.consoles[i].ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		return w.Code == 200 && json.Unmarshal(w.Body.Bytes(), into) == nil
	})
}

func (f *failover) order() {
	f.t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://localhost/api/v1/runs", strings.NewReader(`{"kind":"verify","all_campaigns":true,"reason":"looks odd"}`))
	r.Header.Set("Content-Type", "application/json")
	if f.consoles[0].ServeHTTP(w, r); w.Code >= 300 {
		f.t.Fatalf("start a run: %d %s", w.Code, w.Body)
	}
}

// failOver appends events, loses those that came after a copy of the journal, and appends others. also
// loses what was applied since.
func (f *failover) failOver(round int, also bool) {
	t := f.t
	t.Helper()
	campaigns := []string{fmt.Sprintf("a-%d", round), fmt.Sprintf("b-%d", round), fmt.Sprintf("c-%d", round)}
	f.append("placed", campaigns...)
	f.insert(campaigns[0], "packed")
	f.settled()
	said := func() []int64 { return []int64{f.logs[0].wentBack.Load(), f.logs[1].wentBack.Load()} }
	before := said()
	must.OK(t, f.journal.Keep(t.Context()))
	if also {
		must.OK(t, f.projections.Keep(t.Context()))
	}
	waited := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), must.Patience)
		defer cancel()
		err := f.engines[0].WaitApplied(ctx, campaigns[2], 1000)
		waited <- cmp.Or(ctx.Err(), err)
	}()
	f.append("lost", slices.Repeat(campaigns, 3)...)
	f.insert(campaigns[1], "lost")
	f.settled()
	must.Equal(t, said(), before, "how often it was said that the journal went back, after a restart that lost nothing")
	f.order()
	must.OK(t, f.journal.GoBack(t.Context()))
	if also {
		must.OK(t, f.projections.GoBack(t.Context()))
	}
	f.append("sent", slices.Repeat(campaigns, 6)...)
	f.insert(campaigns[0], "sent")
	f.settled()
	f.verify(round, campaigns, also)
	if err := <-waited; !errors.Is(err, outboxweb.ErrBusy) && (!errors.Is(err, outboxweb.ErrNotYet) || !strings.Contains(err.Error(), "went back")) {
		t.Errorf("the caller that waited meanwhile got %v, want that the journal went back, or is away", err)
	}
	must.Equal(t, said(), []int64{before[0] + 1, before[1] + 1}, "how often the logs say that the journal went back")
}

func (f *failover) verify(round int, campaigns []string, also bool) {
	t := f.t
	t.Helper()
	for i := range f.engines {
		must.Equal(t, f.faults(i, "journal"), 1, "how often an instance says that the journal went back")
	}
	var audit struct{ Items []json.RawMessage }
	f.get(0, "/api/v1/audit?action=journal_went_back&limit=100", &audit)
	must.Equal(t, len(audit.Items), 2*(round+1), "audit records say that the journal went back in round")
	for _, item := range audit.Items {
		must.Hold(t, bytes.Contains(item, []byte(`"publisher":"sink-`)), "the audit record names no publisher: %s", item)
	}
	for _, campaign := range campaigns {
		want := "current"
		if !also { // the projections have events that are lost
			want = "diverged"
		}
		var c struct{ State, Why string }
		must.Eventually(t, "campaign "+campaign+" is "+want, func() bool {
			f.get(round%2, "/api/v1/campaigns/"+campaign, &c)
			return c.State == want
		})
	}
	must.Eventually(t, "no run hangs", func() bool { return f.number(`select count(*) from runs where finished_at is null`) == 0 })
}

// A fail-over to a standby that lacked commits takes nothing that the instances remember for the new
// journal: what is in it is delivered, what is not is told. Projections that lack commits in their turn are
// reconciled.
func TestPostgresEngine_noticesFailOversThatLoseCommits(t *testing.T) {
	t.Parallel()
	f := startFailover(t)
	for round := range size.Of(1, 2, 10) {
		f.failOver(round, round%2 == 1)
	}
	f.loseProjections()
}

// loseProjections loses what the projections committed since a copy of them: they catch up at once, and that is told.
func (f *failover) loseProjections() {
	f.t.Helper()
	f.append("placed", "a", "b", "c")
	f.settled()
	must.OK(f.t, f.projections.Keep(f.t.Context()))
	f.append("sent", "a", "b", "c")
	f.settled()
	must.OK(f.t, f.projections.GoBack(f.t.Context()))
	for i := range f.consoles {
		f.get(i, "/api/v1/projections", new(any)) // before another process may have applied again what this one did
	}
	applied := dbtest.Open(f.t, dbtest.InSchema(f.projections.URL("postgres"), "projections"))
	must.Eventually(f.t, "the events are applied again", func() bool {
		return storetest.Column[int](f.t, applied, `select count(*) from orders where state = 'sent' and campaign_id in ('a', 'b', 'c')`)[0] == 3
	})
	must.Eventually(f.t, "an instance says that the projections went back", func() bool { return f.faults(0, "projections")+f.faults(1, "projections") != 0 }) // summaries are shared for a while
}

// faults is how often an instance says that a database went back.
func (f *failover) faults(i int, database string) (n int) {
	f.t.Helper()
	var sum struct {
		Faults []struct{ Database, Kind, Says string } `json:"database_faults"`
	}
	f.get(i, "/api/v1/summary", &sum)
	for _, d := range sum.Faults {
		if d.Database == database && d.Kind == "went_back" && strings.Contains(d.Says, "went back") {
			n++
		}
	}
	return n
}
