package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

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
