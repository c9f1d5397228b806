package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

var (
	benchRows      = flag.Int("bench.rows", 200_000, "outbox rows beside which pages are measured")
	benchCampaigns = flag.Int("bench.campaigns", 2_000, "campaigns they are spread over")
	benchReal      = flag.Int("bench.real", 250, "events of each campaign that can be applied")
)

// deepQueue is a store with very many rows: the first events of each campaign are real, the rows behind them are
// inserted with SQL, since no page and no claim reads their events.
func deepQueue(b *testing.B, dir string, rows, campaigns int) *engine.Engine {
	s := benched(b, dbtest.Files(dir))
	each := rows / campaigns
	real := min(each, *benchReal)
	var events []event.Event
	for n := range campaigns * real {
		events = append(events, event.Event{CampaignID: fmt.Sprintf("c-%05d", n/real), EventType: "character.moved",
			EntityID: fmt.Sprint(n % real), Payload: []byte(`{"x":1,"y":2,"note":"a step to the side"}`)})
	}
	appendAll(b, s, events)
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(dir, "journal.db")+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_txlock=immediate")).Or(b)
	defer db.Close()
	for _, statement := range []string{
		fmt.Sprintf(`insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
			select c.campaign_id, n.value, 'character.moved', c.oldest_enqueued_at, c.oldest_enqueued_at, c.oldest_enqueued_at
			from campaigns c cross join generate n where n.value > %d`, real),
		fmt.Sprintf(`update campaigns set high_water_seq = %d, pending = %d`, each, each),
		// A few campaigns with problems, so that the overview is not empty.
		`update projection_apply_outbox set status = 'dead', attempt_count = 8, last_error = 'UNIQUE constraint failed', fingerprint = 'UNIQUE constraint failed'
			where seq = 1 and campaign_id in (select campaign_id from campaigns order by campaign_id limit 40)`,
		`update campaigns set pending = pending - 1, dead = 1, head_status = 'dead', due_at = null
			where campaign_id in (select campaign_id from campaigns order by campaign_id limit 40)`,
	} {
		statement = "with recursive generate(value) as (select 1 union all select value + 1 from generate where value < " + fmt.Sprint(each) + ") " + statement
		must.Get(db.ExecContext(b.Context(), statement)).Or(b)
	}
	return s
}

func offering(b *testing.B, s *engine.Engine) *httptest.Server {
	server := httptest.NewServer(handlers.New(handlers.Config{Facts: s.Facts, Queue: s.Queue, Samples: s.Samples, Search: s.Search, Operations: s.Operations, Runs: s.Runs, Publishers: s.Publishing, Intake: s.Intake, Mode: campaign.ModeOutbox, Version: "bench", Metrics: metrics.New(s.Summary)}))
	b.Cleanup(server.Close)
	return server
}

const placesProjection = `-- projection: places
-- tables: places

-- schema
create table places (campaign_id text not null, entity_id text not null, x bigint not null, y bigint not null, primary key (campaign_id, entity_id));

-- on: character.moved
insert into places (campaign_id, entity_id, x, y) values (:campaign_id, :entity_id, :payload.x, :payload.y)
on conflict (campaign_id, entity_id) do update set x = excluded.x, y = excluded.y;
`

// How long a page may take from the click to its first paint: so many milliseconds or, where the machine
// is slow or busy, so many times what a page of text alone takes.
const (
	paintLimit    = 100
	paintsOfText  = 3
	paintTextPath = "/healthz"
)

// BenchmarkPaint opens pages of each kind in Chromium over a deep queue, reports their median first
// contentful paint from the start of the navigation, and fails if one is beyond the limits.
func BenchmarkPaint(b *testing.B) {
	tuneCollector(0)
	shell, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		b.Skipf("without a browser there is nothing to measure: %v", err)
	}
	s, _ := drainable(b)
	server := offering(b, s)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(shell), chromedp.DisableGPU, chromedp.UserDataDir(filepath.Join(b.TempDir(), "profile")))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(b.Context(), options...)
	defer stopAllocator()
	tab, stop := chromedp.NewContext(allocator)
	defer stop()

	paths := map[string]string{
		"text alone": paintTextPath, "lagging": "/campaigns?sort=lag", "events": "/events", "event": "/events?q=character.moved",
		"search": "/search?q=c-00001", "charts": "/charts", "week": "/charts?range=7d", "runs": "/runs", "projections": "/projections",
		"publishers": "/publishers", "instances": "/instances",
	}
	for name, path := range consolePages {
		paths[name] = path
	}
	painted := make(map[string][]time.Duration)
	visit := func() { // every page in turn, so that a busy moment of the machine is not one page's
		for name, path := range paths {
			took, err := firstPaint(tab, server.URL+path)
			must.Need(b, err == nil, "open %s: %v", path, err)
			painted[name] = append(painted[name], took)
		}
	}
	visit() // the caches of browser and database are cold
	clear(painted)
	for b.Loop() {
		visit()
	}
	limit := max(paintLimit, paintsOfText*percentile(painted["text alone"], 50))
	for name, path := range paths {
		got := percentile(painted[name], 50)
		b.ReportMetric(got, strings.ReplaceAll(name, " ", "-")+"-ms")
		b.Logf("%s paints after %.0f ms", path, got) // of a failed benchmark go test prints no metrics
		must.Hold(b, got <= limit, "%s paints after %.0f ms, limit %.0f", path, got, limit)
	}
	b.ReportMetric(0, "ns/op")
}

// firstPaint opens a page and returns how long it took from the start of the navigation until
// something of it was seen. It leaves the browser at rest: nobody clicks before the rest of a page
// has come.
func firstPaint(tab context.Context, url string) (time.Duration, error) {
	if err := chromedp.Do(tab, chromedp.Navigate(url)); err != nil {
		return 0, err
	}
	ms, err := chromedp.Run(tab, chromedp.Evaluate[float64](`new Promise(seen =>
		new PerformanceObserver(list => list.getEntriesByName("first-contentful-paint").forEach(p =>
			setTimeout(() => requestIdleCallback(() => seen(p.startTime))))).observe({type: "paint", buffered: true}))`,
		chromedp.EvalAwaitPromise))
	return time.Duration(ms * float64(time.Millisecond)), err
}

var (
	benchTabs  = flag.Int("bench.tabs", 20, "open overviews of BenchmarkTabs, each polling every two seconds")
	benchTurns = flag.Int("bench.turns", 6, "turns of BenchmarkTabs, each two seconds without tabs and two with them")
)

// timings are how long something took each time, by its name. They are safe for concurrent use.
type timings struct {
	mu sync.Mutex
	of map[string][]time.Duration
}

func (t *timings) note(name string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[name] = append(t.of[name], took)
}

func (t *timings) report(b *testing.B) {
	for name, took := range t.of {
		b.ReportMetric(percentile(took, 99), name+"-p99-ms")
	}
}

// turnTime is how long a turn lasts: one poll of each tab.
const turnTime = 2 * time.Second

// consolePages are one page of each kind.
var consolePages = map[string]string{
	"overview": "/", "rows": "/rows", "dead": "/rows?status=dead", "campaigns": "/campaigns", "campaign": "/campaigns/c-00001",
	"row": "/campaigns/c-00001/events/1", "failures": "/failures", "operations": "/operations", "audit": "/audit",
}

// BenchmarkTabs measures the console overhead: how much slower the worker drains with open overviews that poll, and
// how long any page takes while it drains. The worker's speed is compared with its own without open pages, in turns,
// since machines are noisy.
func BenchmarkTabs(b *testing.B) {
	tuneCollector(0)
	s, set := drainable(b)
	server := offering(b, s)
	var alone, watched int64
	times := timings{of: map[string][]time.Duration{}}
	working(b, s, set, func() {
		for turn := range *benchTurns {
			nobody := func() { alone += appliedDuring(b, s, func() { time.Sleep(turnTime) }) }
			tabs := func() { watched += appliedDuring(b, s, func() { openTabs(b, server.URL, turnTime, nil, &times) }) }
			if turn%2 == 1 { // the effect of a shrinking queue is shared by both
				nobody, tabs = tabs, nobody
			}
			nobody()
			tabs()
		}
		openTabs(b, server.URL, 5*time.Second, consolePages, &times)
	})
	b.ReportMetric(float64(alone)/(turnTime.Seconds()*float64(*benchTurns)), "alone-events/s")
	b.ReportMetric(100*(1-float64(watched)/float64(alone)), "slower-%")
	times.report(b)
}

func drainable(b *testing.B) (*engine.Engine, *projection.Set) {
	s := deepQueue(b, b.TempDir(), *benchRows, *benchCampaigns)
	definitions := b.TempDir()
	must.OK(b, os.WriteFile(filepath.Join(definitions, "places.sql"), []byte(placesProjection), 0o600))
	set := must.Get(projection.Load("sqlite", definitions)).Or(b)
	must.OK(b, runs.Install(b.Context(), s.Store, set))
	return s, set
}

func appliedDuring(b *testing.B, s *engine.Engine, f func()) int64 {
	applied := func() (n int64) {
		for _, c := range allCampaigns(b, s) {
			n += c.AppliedSeq
		}
		return n
	}
	before := applied()
	f()
	return applied() - before
}

func allCampaigns(b *testing.B, s *engine.Engine) (all []campaign.Campaign) {
	for page, err := range s.CampaignsInPages(b.Context(), campaign.CampaignFilter{}) {
		must.OK(b, err)
		all = append(all, page...)
	}
	return all
}

// openTabs keeps overviews open that poll like the page's script, and in the meantime opens pages.
func openTabs(b *testing.B, url string, d time.Duration, pages map[string]string, times *timings) {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * *benchTabs}}
	defer client.CloseIdleConnections()
	var readers sync.WaitGroup
	for tab := range *benchTabs {
		readers.Go(func() {
			etag := ""
			every(ctx, time.Duration(tab)*2*time.Second/time.Duration(*benchTabs), 2*time.Second, func() {
				var took time.Duration
				took, etag = fetch(b, client, url, polling(etag))
				times.note("poll", took)
			})
		})
	}
	openPages(ctx, b, client, url, pages, times, &readers)
	readers.Wait()
}

// openPages opens each of the pages five times a second, until ctx ends.
func openPages(ctx context.Context, b *testing.B, client *http.Client, url string, pages map[string]string, times *timings, readers *sync.WaitGroup) {
	for name, path := range pages {
		readers.Go(func() {
			every(ctx, 0, 200*time.Millisecond, func() {
				took, _ := fetch(b, client, url+path, nil)
				times.note(name, took)
			})
		})
	}
}

// every calls f after first and then in intervals, until ctx ends.
func every(ctx context.Context, first, interval time.Duration, f func()) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(interval)
			f()
		}
	}
}

// fetch reads a page, and returns how long that took and the page's tag.
func fetch(b *testing.B, client *http.Client, url string, header http.Header) (time.Duration, string) {
	began := time.Now()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return 0, ""
	}
	maps.Copy(r.Header, header)
	resp, err := client.Do(r)
	if err != nil {
		b.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 400 {
		b.Errorf("%s: %s, %v", url, resp.Status, err)
	}
	return time.Since(began), resp.Header.Get("ETag")
}

// polling are the headers with which the page's script requests the live part of an overview.
func polling(etag string) http.Header {
	return http.Header{"Hx-Target": {ui.LiveTarget}, "If-None-Match": {etag}}
}

// percentile is in milliseconds.
func percentile(times []time.Duration, percent int) float64 {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return float64(times[len(times)*percent/100].Microseconds()) / 1000
}

var (
	benchSlow      = flag.Int("bench.slow", 500, "slow connections of BenchmarkSlow")
	benchSlowTurns = flag.Int("bench.slowturns", 3, "turns of BenchmarkSlow, each five seconds without slow connections and five with them")
)

const (
	slowTurn    = 5 * time.Second
	slowReaders = 4
)

// askedBeside are the pages that ordinary clients request in BenchmarkSlow.
var askedBeside = []string{"/", "/rows", "/rows/c-00001/1", "/campaigns/c-00001", "/api/v1/summary", "/api/v1/rows", "/api/v1/campaigns/c-00001"}

// slowKinds are the kinds of slow clients: what is sent on a connection, and what happens there again and again with
// one byte, until it fails. Each is restarted when the server has cut it off.
var slowKinds = []struct {
	says string
	then func(net.Conn, []byte) (int, error)
}{
	{"GET /rows HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", net.Conn.Write},
	{"POST /api/v1/campaigns/c-00001/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{\"reason\":\"", net.Conn.Write},
	{"GET /rows?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n", net.Conn.Read},
	{"GET /export/rows?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n", net.Conn.Read},
	{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", net.Conn.Read}, // and then it is idle
}

// BenchmarkSlow measures what slow connections cost others: response times of ordinary clients,
// which request one page after another without a pause, with and without slow ones, in turns, and
// how much the server grows.
func BenchmarkSlow(b *testing.B) {
	dir := b.TempDir()
	must.OK(b, deepQueue(b, dir, *benchRows, *benchCampaigns).Close())
	s := serve(b, "--worker=false", "--journal-db", "sqlite:"+filepath.Join(dir, "journal.db"), "--projections-db", "sqlite:"+filepath.Join(dir, "projections.db"))
	var alone, beside []time.Duration
	askFor(b, s.url, time.Second) // one-time reads are done
	before := residentMB(b, s.cmd.Process.Pid)
	for range *benchSlowTurns {
		alone = append(alone, askFor(b, s.url, slowTurn)...)
		ctx, end := context.WithCancel(b.Context())
		open := openSlow(ctx, b, strings.TrimPrefix(s.url, "http://"))
		beside = append(beside, askFor(b, s.url, slowTurn)...)
		b.ReportMetric(float64(open.now.Load()), "open-slow")
		b.ReportMetric(residentMB(b, s.cmd.Process.Pid)-before, "grown-MB")
		end()
		open.all.Wait()
	}
	for name, times := range map[string][]time.Duration{"alone": alone, "beside": beside} {
		b.ReportMetric(percentile(times, 99), name+"-p99-ms")
		b.ReportMetric(percentile(times, 50), name+"-p50-ms")
		b.ReportMetric(float64(len(times))/(slowTurn.Seconds()*float64(*benchSlowTurns)), name+"-pages/s")
	}
}

// askFor has ordinary clients request pages for some time, and returns the duration of each answer.
func askFor(b *testing.B, url string, d time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var clients sync.WaitGroup
	times := make([][]time.Duration, slowReaders)
	for i := range times {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := i; ctx.Err() == nil; n++ {
				took, _ := fetch(b, client, url+askedBeside[n%len(askedBeside)], nil)
				times[i] = append(times[i], took)
			}
		})
	}
	clients.Wait()
	return slices.Concat(times...)
}

// slowConnections are the slow connections of a turn.
type slowConnections struct {
	now atomic.Int64 // how many are open
	all sync.WaitGroup
}

// openSlow opens slow connections, until ctx ends. It returns once all of them
// have been opened.
func openSlow(ctx context.Context, b *testing.B, address string) *slowConnections {
	open := new(slowConnections)
	var opened sync.WaitGroup
	for i := range *benchSlow {
		opened.Add(1)
		kind := slowKinds[i%len(slowKinds)]
		open.all.Go(func() {
			first := sync.OnceFunc(opened.Done)
			defer first()
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err == nil {
					conn.(*net.TCPConn).SetReadBuffer(2048)
					_, err = io.WriteString(conn, kind.says)
				}
				if err != nil {
					must.Hold(b, ctx.Err() != nil, "%v", err)
					return
				}
				open.now.Add(1)
				first()
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				for one := []byte("x"); err == nil; _, err = kind.then(conn, one) { // the server has not cut it off, and the turn has not ended
					time.Sleep(slowPause)
				}
				open.now.Add(-1)
				stop()
				conn.Close()
			}
		})
	}
	opened.Wait()
	return open
}

// slowPause is how long a slow client rests after each byte.
const slowPause = 200 * time.Millisecond
