package main

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/web/templates"
)

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

// drainable is a deep queue whose first events are real and can be applied.
func drainable(b *testing.B) (*engine.Engine, *projection.Set) {
	b.Helper()
	s := deepQueue(b, *benchRows, *benchCampaigns)
	definitions := b.TempDir()
	must.OK(b, os.WriteFile(filepath.Join(definitions, "places.sql"), []byte(placesProjection), 0o600))
	set := must.Get(projection.Load("sqlite", definitions)).Or(b)
	must.OK(b, runs.Install(b.Context(), s.Store, set))
	return s, set
}

// appliedDuring is how many events were applied while f ran.
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
