package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// historyProjections are made for the tests: a tally kept by an upsert, and a history that shows in
// which order events were applied and, having no key on seq, when one was applied twice.
var historyProjections = map[string]string{
	"tally.sql": `
-- projection: tally
-- tables: tally

-- schema
create table tally (
  campaign_id text primary key,
  events bigint not null,
  total bigint not null
);

-- on: *
insert into tally (campaign_id, events, total)
values (:campaign_id, 1, :payload.n!)
on conflict (campaign_id) do update set
  events = tally.events + 1,
  total = tally.total + excluded.total;
`,
	"history.sql": `
-- projection: history
-- tables: history

-- schema @sqlite
create table history (
  id integer primary key autoincrement,
  campaign_id text not null,
  seq bigint not null
);

-- schema @postgres
create table history (
  id bigint generated always as identity primary key,
  campaign_id text not null,
  seq bigint not null
);

-- on: *
insert into history (campaign_id, seq) values (:campaign_id, :seq);

-- The ids of campaigns interleave as it happens, so they are no part of what a
-- campaign's read model says.

-- digest: select seq from history where campaign_id = :campaign_id order by id
`,
}

func writeProjections(t *testing.T, files map[string]string) []string {
	dir := t.TempDir()
	rewrite(t, dir, files)
	return []string{"--projections", dir}
}

type event struct {
	CampaignID string         `json:"campaign_id,omitempty"`
	EventID    string         `json:"event_id,omitempty"`
	EventType  string         `json:"event_type"`
	Payload    map[string]any `json:"payload"`
}

type appended struct {
	CampaignID    string `json:"campaign_id"`
	Seq, Position int64
	EventID       string `json:"event_id"`
	Existed       bool
}

// load is writers that append over HTTP, somewhat less than the servers can take, and the record of
// their answers. A writer without an answer sends the same events again until it gets one, if
// necessary to the server that replaces a dead one.
type load struct {
	campaigns []string
	ending    chan struct{} // closed when no more events are to be made
	writers   sync.WaitGroup

	mu      sync.Mutex
	servers []*server           // servers to send to, distributed among the writers
	sent    int                 // events made
	acked   map[string]appended // by event id
	retold  int                 // acknowledged events that were already there when sent again
	wrong   []string            // invalid answers
}

// startLoad starts writers to some campaigns. Every fourth writer sends batches of three. They wait
// until point names the servers, and stop at the end of the test at the latest.
func startLoad(t *testing.T, writers int, campaigns []string) *load {
	l := &load{campaigns: campaigns, ending: make(chan struct{}), acked: map[string]appended{}}
	ctx, cancel := context.WithCancel(context.Background())
	for number := range writers {
		l.writers.Go(func() { l.write(ctx, number) })
	}
	t.Cleanup(func() {
		cancel()
		l.writers.Wait()
	})
	return l
}

func (l *load) point(servers ...*server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.servers = servers
}

func (l *load) progress() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

func (l *load) awaitProgress(t *testing.T, more int) {
	target := l.progress() + more
	eventually(t, fmt.Sprintf("%d events are acknowledged", target), func() (bool, string) {
		n := l.progress()
		return n >= target, fmt.Sprint(n, " are")
	})
}

func (l *load) finish(t *testing.T) {
	close(l.ending)
	idle := make(chan struct{})
	go func() {
		l.writers.Wait()
		close(idle)
	}()
	must.Receive(t, idle, "writers are still not answered a minute after the last event was made")
	must.Hold(t, len(l.acked) == l.sent || len(l.wrong) != 0, "%d events were made and %d acknowledged", l.sent, len(l.acked))
	for _, wrong := range l.wrong {
		t.Error(wrong)
	}
}

func (l *load) write(ctx context.Context, number int) {
	for round := 0; ctx.Err() == nil; round++ {
		select {
		case <-l.ending:
			return
		default:
		}
		size := 1
		if number%4 == 3 {
			size = 3
		}
		events := make([]event, size)
		for i := range events {
			n := number*1_000_000 + round*10 + i
			events[i] = event{EventID: fmt.Sprintf("event-%08d", n), EventType: "load.made", Payload: map[string]any{"n": n, "by": number}}
		}
		l.deliver(ctx, number, l.campaigns[(number*5+round)%len(l.campaigns)], events)
		pause(ctx, 50*time.Millisecond)
	}
}

func pause(ctx context.Context, rest time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rest):
	}
}

func (l *load) deliver(ctx context.Context, number int, campaign string, events []event) {
	l.mu.Lock()
	l.sent += len(events)
	l.mu.Unlock()
	for tries := 1; ctx.Err() == nil; tries++ {
		s := l.ask(number)
		if s != nil {
			a, err := s.do(ctx, http.MethodPost, "/api/v1/campaigns/"+campaign+"/events", map[string]any{"events": events})
			switch {
			case err == nil && (a.status == http.StatusOK || a.status == http.StatusCreated):
				l.record(campaign, events, a, tries)
				return
			case err == nil && a.status < http.StatusInternalServerError:
				l.complain("append to %s was answered with %d %s", campaign, a.status, a.body)
				return
			}
		}
		pause(ctx, 5*time.Millisecond) // while there is no server
	}
}

// ask is the server that a writer uses; nil if there is none, or if it has ended: another process
// may have its port by now.
func (l *load) ask(number int) *server {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.servers) == 0 {
		return nil
	}
	s := l.servers[number%len(l.servers)]
	select {
	case <-s.exited:
		return nil
	default:
		return s
	}
}

func (l *load) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *load) record(campaign string, events []event, a answer, tries int) {
	var body struct{ Events []appended }
	if err := json.Unmarshal(a.body, &body); err != nil || len(body.Events) != len(events) {
		l.complain("append of %d events was answered with %s (%v)", len(events), a.body, err)
		return
	}
	existed := a.status == http.StatusOK
	for i, got := range body.Events {
		switch {
		case got.CampaignID != campaign || got.EventID != events[i].EventID || got.Seq != body.Events[0].Seq+int64(i):
			l.complain("append of %v to %s was answered with %+v", events, campaign, body.Events)
		case got.Existed != existed:
			l.complain("a batch was half there, with status %d: %+v", a.status, body.Events)
		case existed && tries == 1:
			l.complain("event %s was said to be there before it was sent", got.EventID)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, got := range body.Events {
		l.acked[got.EventID] = got
		if existed {
			l.retold++
		}
	}
}

// verifyJournal fails the test unless every acknowledged event is in the journal exactly once, at
// the acknowledged place, and every campaign's seqs are dense.
func (l *load) verifyJournal(t *testing.T, d databases) {
	missing, next, seen := maps.Clone(l.acked), map[string]int64{}, map[string]bool{}
	each(t, d.journal(), "select campaign_id, seq, position, event_id from events order by campaign_id, seq", func(row map[string]any) {
		campaign, seq, position, id := row["campaign_id"].(string), row["seq"].(int64), row["position"].(int64), row["event_id"].(string)
		next[campaign]++
		must.Equal(t, seq, next[campaign], "the next seq of campaign", campaign)
		must.Hold(t, !seen[campaign+id], "event %s is in campaign %s twice", id, campaign)
		seen[campaign+id] = true
		told, was := missing[id]
		must.Hold(t, !was || told.CampaignID == campaign && told.Seq == seq && told.Position == position, "event %s stands at %v, its writer was told %+v", id, row, told)
		delete(missing, id)
	})
	for id, told := range missing {
		t.Errorf("event %s was acknowledged (%+v) and is not in the journal", id, told)
	}
}

// verifyApplied fails the test unless, in every campaign, exactly 1, 2, …, k were applied in this
// order, where k is the campaign's last event, and the tally has each of them.
func verifyApplied(t *testing.T, d databases) {
	type tally struct{ events, total, applied int64 }
	want, got := map[string]tally{}, map[string]tally{}
	each(t, d.journal(), "select campaign_id, payload from events", func(row map[string]any) {
		campaign, payload := row["campaign_id"].(string), struct{ N int64 }{}
		must.OK(t, json.Unmarshal([]byte(row["payload"].(string)), &payload))
		sum := want[campaign]
		want[campaign] = tally{sum.events + 1, sum.total + payload.N, sum.applied + 1}
	})
	each(t, d.projections(), "select campaign_id, events, total from tally", func(row map[string]any) {
		got[row["campaign_id"].(string)] = tally{row["events"].(int64), row["total"].(int64), 0}
	})
	each(t, d.projections(), "select id, campaign_id, seq from history order by id", func(row map[string]any) {
		campaign, seq := row["campaign_id"].(string), row["seq"].(int64)
		sum := got[campaign]
		sum.applied++
		must.Equal(t, seq, sum.applied, "the next event applied of campaign", campaign)
		got[campaign] = sum
	})
	must.Equal(t, got, want, "the tallies and histories by campaign")
}
