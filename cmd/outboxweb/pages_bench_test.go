package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
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

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/web/templates"
)

var (
	benchRows      = flag.Int("bench.rows", 200_000, "outbox rows beside which pages are measured")
	benchCampaigns = flag.Int("bench.campaigns", 2_000, "campaigns they are spread over")
	benchReal      = flag.Int("bench.real", 250, "events of each campaign that can be applied")
)

// deepQueue is a store with very many rows: the first events of each campaign are real, the rows
// behind them are inserted with SQL, since no page and no claim reads their events.
func deepQueue(b *testing.B, rows, campaigns int) *engine.Engine {
	b.Helper()
	return deepQueueIn(b, b.TempDir(), rows, campaigns)
}

func deepQueueIn(b *testing.B, dir string, rows, campaigns int) *engine.Engine {
	b.Helper()
	path := filepath.Join(dir, "journal.db")
	opened := must.Get(store.Open(b.Context(), store.Options{Journal: "sqlite:" + path, Projections: "sqlite:" + filepath.Join(dir, "projections.db")})).Or(b)
	s := engine.Wire(opened)
	b.Cleanup(func() { s.Close() })
	each := rows / campaigns
	real := min(each, *benchReal)
	var events []outbox.Event
	for c := range campaigns {
		for i := range real {
			events = append(events, outbox.Event{CampaignID: fmt.Sprintf("c-%05d", c), EventType: "character.moved",
				EntityID: fmt.Sprint(i), Payload: []byte(`{"x":1,"y":2,"note":"a step to the side"}`)})
		}
		if len(events) >= 5_000 || c == campaigns-1 {
			must.Get(s.Append(b.Context(), store.Append{Events: events})).Or(b)
			events = events[:0]
		}
	}
	db := must.Get(sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_txlock=immediate")).Or(b)
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
	b.Helper()
	server := httptest.NewServer(handlers.New(handlers.Config{Facts: s.Facts, Store: s.Store, Search: s.Search, Operations: s.Operations, Runs: s.Runs, Publishers: s.Publishing, Intake: s.Intake, Mode: outbox.ModeOutbox, Version: "bench", Metrics: metrics.New(s.Summary)}))
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(shell), chromedp.DisableGPU,
		chromedp.UserDataDir(filepath.Join(b.TempDir(), "profile")))
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
			if err != nil {
				b.Fatalf("open %s: %v", path, err)
			}
			painted[name] = append(painted[name], took)
		}
	}
	visit() // the caches of browser and database are cold
	clear(painted)
	for b.Loop() {
		visit()
	}
	limit := max(paintLimit, paintsOfText*p50(painted["text alone"]))
	for name, path := range paths {
		b.ReportMetric(p50(painted[name]), strings.ReplaceAll(name, " ", "-")+"-ms")
		b.Logf("%s paints after %.0f ms", path, p50(painted[name])) // of a failed benchmark go test prints no metrics
		if got := p50(painted[name]); got > limit {
			b.Errorf("%s paints after %.0f ms, limit %.0f", path, got, limit)
		}
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
	benchRate  = flag.Int("bench.rate", 3000, "requests a second of BenchmarkTabs at rest")
	benchTurns = flag.Int("bench.turns", 6, "turns of BenchmarkTabs, each two seconds without tabs and two with them")
)

// turnTime is how long a turn lasts: one poll of each tab.
const turnTime = 2 * time.Second

// consolePages are one page of each kind.
var consolePages = map[string]string{
	"overview": "/", "rows": "/rows", "dead": "/rows?status=dead", "campaigns": "/campaigns", "campaign": "/campaigns/c-00001",
	"row": "/campaigns/c-00001/events/1", "failures": "/failures", "operations": "/operations", "audit": "/audit",
}

// BenchmarkTabs measures the console overhead: how much slower the worker drains with open
// overviews that poll, how long any page takes while it drains, and how long the overview takes at
// rest under many requests per second. The worker's speed is compared with its own without open
// pages, in turns, since machines are noisy.
func BenchmarkTabs(b *testing.B) {
	tuneCollector(0)
	s, set := drainable(b)
	server := offering(b, s)
	b.Run("rest", func(b *testing.B) {
		b.ReportMetric(p99(atRate(b, server.URL, *benchRate, 5*time.Second)), "p99-ms")
	})
	b.Run("draining", func(b *testing.B) {
		var alone, watched int64
		times := map[string][]time.Duration{}
		working(b, s, set, func() {
			for turn := range *benchTurns {
				nobody := func() { alone += appliedDuring(b, s, func() { time.Sleep(turnTime) }) }
				tabs := func() { watched += appliedDuring(b, s, func() { openTabs(b, server.URL, turnTime, nil, times) }) }
				if turn%2 == 1 { // the effect of a shrinking queue is shared by both
					nobody, tabs = tabs, nobody
				}
				nobody()
				tabs()
			}
			openTabs(b, server.URL, 5*time.Second, consolePages, times)
		})
		b.ReportMetric(float64(alone)/(turnTime.Seconds()*float64(*benchTurns)), "alone-events/s")
		b.ReportMetric(100*(1-float64(watched)/float64(alone)), "slower-%")
		for name, t := range times {
			b.ReportMetric(p99(t), name+"-p99-ms")
		}
	})
}

func drainable(b *testing.B) (*engine.Engine, *projection.Set) {
	b.Helper()
	s := deepQueue(b, *benchRows, *benchCampaigns)
	definitions := b.TempDir()
	must.OK(b, os.WriteFile(filepath.Join(definitions, "places.sql"), []byte(placesProjection), 0o600))
	set := must.Get(projection.Load("sqlite", definitions)).Or(b)
	must.OK(b, runs.Install(b.Context(), s.Store, set))
	return s, set
}

func appliedDuring(b *testing.B, s *engine.Engine, f func()) int64 {
	b.Helper()
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

func allCampaigns(b *testing.B, s *engine.Engine) []outbox.Campaign {
	b.Helper()
	var all []outbox.Campaign
	for page, err := range s.CampaignsInPages(b.Context(), outbox.CampaignFilter{}) {
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, page...)
	}
	return all
}

// openTabs keeps overviews open that poll like the page's script, and meanwhile opens pages five
// times a second, recording how long each takes.
func openTabs(b *testing.B, url string, d time.Duration, pages map[string]string, times map[string][]time.Duration) {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * *benchTabs}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	note := func(name string, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		times[name] = append(times[name], took)
	}
	var readers sync.WaitGroup
	for tab := range *benchTabs {
		readers.Go(func() {
			etag := ""
			every(ctx, time.Duration(tab)*2*time.Second/time.Duration(*benchTabs), 2*time.Second, func() {
				etag = poll(b, client, url, etag, func(took time.Duration) { note("poll", took) })
			})
		})
	}
	for name, path := range pages {
		readers.Go(func() {
			every(ctx, 0, 200*time.Millisecond, func() { note(name, openPage(b, client, url+path)) })
		})
	}
	readers.Wait()
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

func openPage(b *testing.B, client *http.Client, url string) time.Duration {
	began := time.Now()
	resp, err := client.Get(url)
	if err != nil {
		b.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("%s: %s, %v", url, resp.Status, err)
	}
	return time.Since(began)
}

// poll requests the live part of the overview as the page does, and returns its tag.
func poll(b *testing.B, client *http.Client, url, etag string, took func(time.Duration)) string {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return etag
	}
	r.Header.Set("HX-Target", templates.LiveTarget)
	r.Header.Set("If-None-Match", etag)
	began := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		b.Error(err)
		return etag
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode >= 400 {
		b.Errorf("poll: %s, %v", resp.Status, err)
	}
	took(time.Since(began))
	return resp.Header.Get("ETag")
}

// atRate requests the overview so many times a second, whether or not earlier requests have been
// answered: half of the time the whole page, and half of the time as polling tabs do. A request's
// time counts from when it was to be sent.
func atRate(b *testing.B, url string, perSecond int, d time.Duration) []time.Duration {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	etag := poll(b, client, url, "", func(time.Duration) {})
	n := int(d.Seconds() * float64(perSecond))
	due := make(chan time.Time, n)
	var mu sync.Mutex
	var times []time.Duration
	var readers sync.WaitGroup
	for reader := range 64 {
		readers.Go(func() {
			for at := range due {
				if reader%2 == 0 {
					openPage(b, client, url)
				} else {
					poll(b, client, url, etag, func(time.Duration) {})
				}
				mu.Lock()
				times = append(times, time.Since(at))
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	for i := range n {
		at := began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		due <- at
	}
	close(due)
	readers.Wait()
	return times
}

func p99(times []time.Duration) float64 { return percentile(times, 99) }
func p50(times []time.Duration) float64 { return percentile(times, 50) }

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

// slowKinds are the kinds of slow clients: what is sent on a connection, and what happens there
// afterwards, until it fails. Each is restarted when the server has cut it off.
var slowKinds = []struct {
	says string
	then func(context.Context, *net.TCPConn) error
}{
	{"GET /rows HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", sendSlowly},
	{"POST /api/v1/campaigns/c-00001/pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{\"reason\":\"", sendSlowly},
	{"GET /rows?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n", takeSlowly},
	{"GET /export/rows?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n", takeSlowly},
	{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", stayIdle},
}

// BenchmarkSlow measures what slow connections cost others: response times of ordinary clients,
// which request one page after another without a pause, with and without slow ones, in turns, and
// how much the server grows.
func BenchmarkSlow(b *testing.B) {
	dir := b.TempDir()
	must.OK(b, deepQueueIn(b, dir, *benchRows, *benchCampaigns).Close())
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
		b.ReportMetric(p99(times), name+"-p99-ms")
		b.ReportMetric(p50(times), name+"-p50-ms")
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
				times[i] = append(times[i], openPage(b, client, url+askedBeside[n%len(askedBeside)]))
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
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				open.now.Add(1)
				first()
				_ = kind.then(ctx, conn.(*net.TCPConn)) // the server has cut it off, or the turn has ended
				open.now.Add(-1)
				conn.Close()
			}
		})
	}
	opened.Wait()
	return open
}

// slowPause is how long a slow client rests after each byte.
const slowPause = 200 * time.Millisecond

func sendSlowly(ctx context.Context, conn *net.TCPConn) error {
	return slowly(ctx, func() error {
		_, err := conn.Write([]byte("x"))
		return err
	})
}

func takeSlowly(ctx context.Context, conn *net.TCPConn) error {
	taken := make([]byte, 1)
	return slowly(ctx, func() error {
		_, err := conn.Read(taken)
		return err
	})
}

func stayIdle(ctx context.Context, conn *net.TCPConn) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, err := io.Copy(io.Discard, conn)
	return err
}

func slowly(ctx context.Context, step func() error) error {
	rest := time.NewTicker(slowPause)
	defer rest.Stop()
	for {
		if err := step(); err != nil {
			return err
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
