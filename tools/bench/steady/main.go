// Command steady appends single events to a running server at a steady rate, and measures how long each call takes
// until it is answered, and one of twenty until its event is applied, by GET /campaigns/{id}?min_seq=.
//
//	go run ./steady -url http://127.0.0.1:8080 -rate 2000 -callers 16 -for 1m -campaigns 100000
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

type load struct {
	url                      string
	rate, callers, campaigns int
	lasts                    time.Duration

	client  http.Client
	begun   atomic.Int64
	mu      sync.Mutex
	appends []time.Duration
	applied []time.Duration
}

func main() {
	l := &load{}
	flag.StringVar(&l.url, "url", "http://127.0.0.1:8080", "the server's `URL`")
	flag.IntVar(&l.rate, "rate", 2000, "appends a second")
	flag.IntVar(&l.callers, "callers", 16, "concurrent callers")
	flag.IntVar(&l.campaigns, "campaigns", 100_000, "campaigns with random ids")
	flag.DurationVar(&l.lasts, "for", time.Minute, "how long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := l.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
		os.Exit(1)
	}
}

func (l *load) run(ctx context.Context) error {
	l.client.Transport = &http.Transport{MaxIdleConnsPerHost: 4 * l.callers}
	all := int64(l.rate) * int64(l.lasts/time.Second)
	errs := make([]error, l.callers)
	var callers, waits sync.WaitGroup
	began := time.Now()
	for c := range l.callers {
		callers.Go(func() {
			for errs[c] == nil {
				n := l.begun.Add(1) - 1
				if n >= all {
					return
				}
				// Measured from when the call was due, so that a slow server does not lower its own load.
				due := began.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
				select {
				case <-time.After(time.Until(due)):
					errs[c] = l.append(ctx, n, due, &waits)
				case <-ctx.Done():
					errs[c] = ctx.Err()
				}
			}
		})
	}
	callers.Wait()
	waits.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Printf("%d appends at %.0f/s; milliseconds p50, p99, longest: append %s, applied %s\n", len(l.appends), float64(len(l.appends))/time.Since(began).Seconds(), percentiles(l.appends), percentiles(l.applied))
	return nil
}

func (l *load) append(ctx context.Context, n int64, due time.Time, waits *sync.WaitGroup) error {
	campaign := uuid.NewSHA1(uuid.Nil, fmt.Append(nil, rand.IntN(l.campaigns))).String()
	var appended struct {
		Seq int64 `json:"seq"`
	}
	body := fmt.Sprintf(`{"event_type":"bench.moved","entity_type":"token","entity_id":"t-1","payload":{"amount":%d}}`, n%97)
	if err := l.call(ctx, "POST", "/api/v1/campaigns/"+campaign+"/events", body, &appended); err != nil {
		return err
	}
	l.record(&l.appends, due)
	if n%20 == 0 {
		waits.Go(func() {
			if l.call(ctx, "GET", fmt.Sprintf("/api/v1/campaigns/%s?min_seq=%d", campaign, appended.Seq), "", nil) == nil {
				l.record(&l.applied, due)
			}
		})
	}
	return nil
}

func (l *load) call(ctx context.Context, method, path, body string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, l.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answered, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer answered.Body.Close()
	text, err := io.ReadAll(answered.Body)
	if err == nil && answered.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answered.Status, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return err
}

func (l *load) record(all *[]time.Duration, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*all = append(*all, time.Since(since))
}

func percentiles(all []time.Duration) string {
	slices.Sort(all)
	if len(all) == 0 {
		return "none"
	}
	at := func(percent int) float64 { return all[(len(all)-1)*percent/100].Seconds() * 1000 }
	return fmt.Sprintf("%.1f %.1f %.1f (%d)", at(50), at(99), at(100), len(all))
}
