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

type errorLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *errorLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *errorLines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

type sunk struct {
	mu  sync.Mutex
	all []outboxweb.Event
}

func (s *sunk) Publish(_ context.Context, events []outboxweb.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, events...)
	return nil
}

// got is the ids of the events in the order of their first delivery.
func (s *sunk) got() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range s.all {
		if !seen[e.EventID] {
			seen[e.EventID] = true
			ids = append(ids, e.EventID)
		}
	}
	return ids
}

// failover is two instances on databases of servers of their own, of which that of the journal can
// lose what it committed.
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

func startServer(t *testing.T) *pgtest.Server {
	t.Helper()
	s := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() {
		must.OK(t, s.Stop())
	})
	return s
}

func startFailover(t *testing.T, through func(url string, s *pgtest.Server) string) *failover {
	t.Helper()
	f := &failover{t: t, journal: startServer(t), projections: startServer(t), sinks: []*sunk{{}, {}}}
	journal := dbtest.InSchema(f.journal.URL("postgres"), "journal")
	projections := dbtest.InSchema(f.projections.URL("postgres"), "projections")
	f.db = dbtest.Open(t, journal)
	f.shop = dbtest.Open(t, f.projections.URL("postgres"))
	for _, db := range []*sql.DB{f.db, f.shop} {
		db.SetMaxIdleConns(0) // the servers restart
	}
	schema, err := intake.Schema("postgres")
	if err == nil {
		_, err = f.shop.Exec(schema)
	}
	must.OK(t, err)
	for range 2 {
		l := &errorLines{}
		e := must.Get(outboxweb.Open(t.Context(), outboxweb.Config{JournalDB: through(journal, f.journal), ProjectionsDB: projections, BasePath: "/", Lease: 5 * time.Second,
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
	storetest.Eventually(t, "each instance has a publisher", func() bool {
		return f.number(`select count(distinct lease_owner) from publisher_progress where lease_owner <> ''`) == 2
	})
	return f
}

func (f *failover) number(query string, args ...any) (n int) {
	f.t.Helper()
	must.OK(f.t, f.db.QueryRow(query, args...).Scan(&n))
	return n
}

// append appends an event with an id of its own to each campaign, through alternating instances and
// through the intake.
func (f *failover) append(word string, campaigns ...string) {
	f.t.Helper()
	for i, campaign := range campaigns {
		id := fmt.Sprintf("%s-%s-%d", word, campaign, i)
		event := outboxweb.Event{CampaignID: campaign, EventID: id, EventType: "order." + word, Payload: json.RawMessage(`{"item":"tea"}`)}
		storetest.Eventually(f.t, "the event is appended", func() bool {
			_, err := f.engines[i%2].Append(f.t.Context(), event)
			must.Need(f.t, err == nil || errors.Is(err, outboxweb.ErrBusy), "%v", err)
			return err == nil
		})
	}
}

func (f *failover) insert(campaign, word string) {
	f.t.Helper()
	tx, err := f.shop.Begin()
	if err == nil {
		err = intake.Append(f.t.Context(), tx, intake.Event{CampaignID: campaign, EventID: word + "-" + campaign + "-shop", EventType: "order." + word, Payload: []byte(`{"item":"tea"}`)})
	}
	if err == nil {
		err = tx.Commit()
	}
	must.OK(f.t, err)
}

// settled waits until both destinations have got every event of the journal, and says in which order
// of campaigns and seqs they did.
func (f *failover) settled() {
	f.t.Helper()
	storetest.Eventually(f.t, "every event is moved, applied or diverged, and delivered", func() bool {
		var moved int
		must.OK(f.t, f.shop.QueryRow(`select count(*) from outboxweb_intake`).Scan(&moved))
		return moved == 0 &&
			f.number(`select count(*) from campaigns where applied_seq < high_water_seq and diverged = ''`) == 0 &&
			f.number(`select count(*) from publisher_progress where position < (select max(position) from events)`) == 0
	})
	rows := must.Get(f.db.Query(`select event_id, campaign_id from events order by campaign_id, seq`)).Or(f.t)
	defer rows.Close()
	var ids []string
	of := map[string]string{}
	for rows.Next() {
		var id, campaign string
		must.OK(f.t, rows.Scan(&id, &campaign))
		ids, of[id] = append(ids, id), campaign
	}
	for i, sink := range f.sinks {
		got := slices.DeleteFunc(sink.got(), func(id string) bool { return of[id] == "" })
		slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(of[a], of[b]) })
		must.Hold(f.t, slices.Equal(got, ids), "destination %d got of the journal's events, by campaign,\n%v\nof\n%v", i, got, ids)
	}
}

func (f *failover) get(i int, path string, into any) {
	f.t.Helper()
	storetest.Eventually(f.t, "an answer to "+path, func() bool {
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
	said := func() []int { return []int{f.logs[0].count("went back"), f.logs[1].count("went back")} }
	before := said()
	mustRestart(t, f.journal.Keep)
	if also {
		mustRestart(t, f.projections.Keep)
	}
	waited := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
		defer cancel()
		err := f.engines[0].WaitApplied(ctx, campaigns[2], 1000)
		waited <- cmp.Or(ctx.Err(), err)
	}()
	f.append("lost", slices.Repeat(campaigns, 3)...)
	f.insert(campaigns[1], "lost")
	f.settled()
	must.Equal(t, said(), before, "how often it was said that the journal went back, after a restart that lost nothing")
	f.order()
	mustRestart(t, f.journal.GoBack)
	if also {
		mustRestart(t, f.projections.GoBack)
	}
	f.append("sent", slices.Repeat(campaigns, 6)...)
	f.insert(campaigns[0], "sent")
	f.settled()
	f.verify(round, campaigns, also)
	if err := <-waited; !errors.Is(err, outboxweb.ErrBusy) && (!errors.Is(err, outboxweb.ErrNotYet) || !strings.Contains(err.Error(), "went back")) {
		t.Errorf("the caller that waited meanwhile got %v, want that the journal went back, or is away", err)
	}
	now := said()
	must.Hold(t, now[0] == before[0]+1 && now[1] == before[1]+1, "that the journal went back is in the log %v times, before it was %v", now, before)
}

func mustRestart(t *testing.T, how func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.OK(t, how(ctx))
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
		storetest.Eventually(t, "campaign "+campaign+" is "+want, func() bool {
			f.get(round%2, "/api/v1/campaigns/"+campaign, &c)
			return c.State == want
		})
	}
	storetest.Eventually(t, "no run hangs", func() bool { return f.number(`select count(*) from runs where finished_at is null`) == 0 })
}

// A fail-over to a standby that lacked commits takes nothing that the instances remember for the new
// journal: what is in it is delivered, what is not is told.
func TestPostgresEngine_deliversTheJournalThatIsThereAfterAFailOver(t *testing.T) {
	t.Parallel()
	f := startFailover(t, func(url string, _ *pgtest.Server) string { return url })
	for round := range size.Of(1, 2, 10) {
		f.failOver(round, round%2 == 1)
	}
}

// Connections to a pooler survive the server behind it. Projections that lack commits in their turn are reconciled.
func TestPostgresEngine_noticesAFailOverBehindAPoolerAndProjectionsThatWentBack(t *testing.T) {
	t.Parallel()
	f := startFailover(t, func(url string, s *pgtest.Server) string { return s.Pooler(t)(url) })
	f.failOver(0, false)
	f.loseProjections()
}

// loseProjections loses what the projections committed since a copy of them: they catch up at once, and that is told.
func (f *failover) loseProjections() {
	f.t.Helper()
	f.append("placed", "a", "b", "c")
	f.settled()
	mustRestart(f.t, f.projections.Keep)
	f.append("sent", "a", "b", "c")
	f.settled()
	mustRestart(f.t, f.projections.GoBack)
	applied := dbtest.Open(f.t, dbtest.InSchema(f.projections.URL("postgres"), "projections"))
	storetest.Eventually(f.t, "the events are applied again", func() (done bool) {
		must.OK(f.t, applied.QueryRow(`select count(*) = 3 from orders where state = 'sent' and campaign_id in ('a', 'b', 'c')`).Scan(&done))
		return done
	})
	storetest.Eventually(f.t, "an instance says that the projections went back", func() bool { return f.faults(0, "projections")+f.faults(1, "projections") != 0 }) // summaries are shared for a while
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
