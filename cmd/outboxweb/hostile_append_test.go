package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
)

// hostileBody is the largest body of an append, in bytes.
const hostileBody = 16 << 20

// The maximum cost of any append: memory of the whole process, and waiting time of other writers.
const (
	hostilePeakMB = 250
	hostileWait   = time.Second
)

// hostileAppends are bodies of the largest size, made to be as expensive as possible, and the
// expected answers.
var hostileAppends = []struct {
	name   string
	status int
	body   func() string
}{
	{"empty events", 422, func() string { return batchOf(`{}`, 0) }},
	{"tiny events", 413, func() string { return batchOf(`{"event_type":"a","payload":{}}`, 0) }},
	{"most events", 201, func() string { return batchOf(`{"event_type":"a","payload":{}}`, 10_000) }},
	{"most events, most bytes", 201, func() string {
		return batchOf(`{"event_type":"a","payload":{"x":"`+strings.Repeat("y", 1600)+`"}}`, 10_000)
	}},
	{"largest events", 201, func() string {
		return batchOf(`{"event_type":"a","payload":{"x":"`+strings.Repeat("y", 260_000)+`"}}`, 0)
	}},
	{"most tags", 413, func() string {
		return batchOf(`{"event_type":"a","payload":{},"tags":{"a":"","b":"","c":"","d":""}}`, 10_000)
	}},
	{"an event of many tags", 413, func() string {
		return batchOf(`{"event_type":"a","payload":{},"tags":{`+strings.Repeat(`"a":"",`, 30_000)+`"b":""}}`, 0)
	}},
	{"one event", 413, func() string { return filled(`{"event_type":"a","payload":{"x":"`, "y", `"}}`) }},
	{"one event of a batch", 413, func() string { return filled(`{"events":[{"event_type":"a","payload":{"x":"`, "y", `"}}]}`) }},
	{"one number", 413, func() string { return filled(`{"events":[{"event_type":"a","payload":{"x":1`, "0", `}}]}`) }},
	{"one key", 413, func() string { return filled(`{`, `"a":1,`, `"events":[]}`) }},
	{"one key of an event", 413, func() string { return filled(`{"events":[{`, `"payload":{},`, `"event_type":"a"}]}`) }},
	{"depth", 422, func() string { return filled(`{"events":[`, `[`, ``) }},
	{"depth of a payload", 422, func() string { return filled(`{"events":[{"event_type":"a","payload":`, `{"a":`, ``) }},
	{"brackets", 413, func() string { return filled(``, `[`, ``) }},
	{"spaces", 422, func() string { return filled(``, ` `, ``) }},
	{"spaces between events", 413, func() string { return filled(`{"events":[`, ` `, `{}]}`) }},
	{"spaces in an event", 413, func() string { return filled(`{"events":[{`, ` `, `}]}`) }},
	{"a condition", 413, func() string { return filled(`{"events":[],"condition":{"items":[`, `{"event_types":["a"]},`, `{}]}}`) }},
}

// batchOf is a batch of the same event, repeated so many times or to the maximum size.
func batchOf(event string, times int) string {
	most := (hostileBody - 100) / (len(event) + 1)
	if times == 0 || times > most {
		times = most
	}
	return `{"events":[` + strings.Repeat(event+",", times-1) + event + `]}`
}

// filled is a text of the largest size, with unit repeated in its middle.
func filled(first, unit, last string) string {
	return first + strings.Repeat(unit, (hostileBody-len(first)-len(last))/len(unit)) + last
}

// No append, and no three together, exceed the memory of a reasonable server.
func TestServe_noAppendExhaustsMemory(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the peak of a process is read from /proc")
	}
	s := serve(t, "--worker=false")
	for i, shape := range hostileAppends {
		atOnce := size.Of(0, 1, 3)
		switch {
		case shape.name == "most events, most bytes": // it is appended, and costs most
			atOnce = 3
		case i%4 == 3:
			atOnce = size.Of(1, 3, 3)
		case atOnce == 0:
			continue
		}
		body := shape.body()
		var senders sync.WaitGroup
		for n := range atOnce {
			senders.Go(func() {
				status := s.append(fmt.Sprintf("hostile-%d-%d", i, n), body)
				must.Hold(t, status == shape.status || status == http.StatusServiceUnavailable, "%s: status %d, want %d", shape.name, status, shape.status) // 503 asks to retry
			})
		}
		senders.Wait()
		peak := s.peakMB()
		must.Need(t, peak <= hostilePeakMB, "%s: the process had %d MB at its peak, more than %d", shape.name, peak, hostilePeakMB)
	}
}

func (s *served) append(campaign, body string) int {
	answer, err := http.Post(s.url+"/api/v1/campaigns/"+campaign+"/events", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// peakMB is the process's peak memory since its start, or since forgetPeak.
func (s *served) peakMB() int {
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))).Or(s.t)
	var kB int
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	must.Get(fmt.Sscan(after, &kB)).Or(s.t)
	return kB * 1024 / 1_000_000
}

func (s *served) forgetPeak() {
	must.OK(s.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0))
}

// BenchmarkHostileAppend measures what each of the hostile appends costs: the
// server's peak of memory, and the longest wait of another writer, who appends
// one small event after another. It fails beyond the limits.
func BenchmarkHostileAppend(b *testing.B) {
	s := serve(b, "--worker=false")
	for _, shape := range hostileAppends {
		b.Run(strings.ReplaceAll(shape.name, " ", "-"), func(b *testing.B) {
			body := shape.body()
			var waits []time.Duration
			s.forgetPeak()
			for b.Loop() {
				waits = append(waits, s.besideAppend(body, shape.status)...)
			}
			longest, peak := slices.Max(waits), s.peakMB()
			b.ReportMetric(float64(peak), "peak-MB")
			b.ReportMetric(hostilePeakMB, "peak-limit-MB")
			b.ReportMetric(float64(longest.Milliseconds()), "wait-ms")
			b.ReportMetric(float64(hostileWait.Milliseconds()), "wait-limit-ms")
			must.Hold(b, peak <= hostilePeakMB && longest <= hostileWait, "the peak was %d MB and the limit is %d; another writer waited for %s and the limit is %s", peak, hostilePeakMB, longest, hostileWait)
		})
	}
}

// besideAppend sends a hostile append and returns the duration of each append of another writer
// meanwhile.
func (s *served) besideAppend(body string, want int) (waits []time.Duration) {
	done := make(chan int, 1)
	go func() { done <- s.append("hostile", body) }()
	for {
		began := time.Now()
		must.Equal(s.t, s.append("another", `{"event_type":"a","payload":{}}`), http.StatusCreated, "another writer is answered with")
		waits = append(waits, time.Since(began))
		select {
		case status := <-done:
			must.Hold(s.t, status == want, "status %d, want %d", status, want)
			return waits
		default:
		}
	}
}

const lengthOfPayload = `-- projection: blobs
-- tables: blobs

-- schema
create table blobs (campaign_id text primary key, n bigint not null, bytes bigint not null);

-- on: blob
insert into blobs (campaign_id, n, bytes) values (:campaign_id, 1, length(:payload.x))
on conflict (campaign_id) do update set n = blobs.n + 1, bytes = blobs.bytes + excluded.bytes;
`

// BenchmarkLargeEvents measures how much a server grows while it drains large events that are all
// due at once, compared with an idle one, and fails beyond the limits: a wave is bounded in bytes,
// and so is the garbage of earlier waves.
func BenchmarkLargeEvents(b *testing.B) {
	for _, shape := range []struct {
		events, campaigns, bytes int
		limitMB                  float64
	}{{2_500, 50, 256 << 10, 200}, {500, 50, 25e6, 400}} {
		b.Run(fmt.Sprintf("%dx%dKB", shape.events, shape.bytes/1000), func(b *testing.B) {
			dir := b.TempDir()
			appendLarge(b, dir, shape.events, shape.campaigns, shape.bytes)
			must.OK(b, os.WriteFile(filepath.Join(dir, "blobs.sql"), []byte(lengthOfPayload), 0o600))
			databases := []string{"--projections", dir, "--journal-db", "sqlite:" + filepath.Join(dir, "journal.db"), "--projections-db", "sqlite:" + filepath.Join(dir, "projections.db")}
			b.ResetTimer()
			resting := serve(b, append([]string{"--worker=false"}, databases...)...)
			rest := float64(resting.peakMB())
			resting.cmd.Process.Kill()
			<-resting.ended
			s := serve(b, append([]string{"--max-payload", "26000000"}, databases...)...)
			s.emptied()
			peak := float64(s.peakMB())
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rest, "rest-MB")
			b.ReportMetric(peak, "peak-MB")
			b.ReportMetric(peak/shape.limitMB, "of-limit")
			must.Hold(b, peak <= shape.limitMB, "the server grew to %.0f MB; the limit is %.0f", peak, shape.limitMB)
		})
	}
}

func appendLarge(b *testing.B, dir string, events, campaigns, bytes int) {
	st := must.Get(store.Open(b.Context(), store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db"), MaxPayload: bytes + 100})).Or(b)
	defer st.Close()
	payload := json.RawMessage(`{"x":"` + strings.Repeat("x", bytes-len(`{"x":""}`)) + `"}`)
	for i := range events {
		e := event.Event{CampaignID: fmt.Sprintf("c-%02d", i%campaigns), EventType: "blob", Payload: payload}
		must.Get(st.Append(b.Context(), store.Append{Events: []event.Event{e}})).Or(b)
	}
}

func (s *served) emptied() {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for text := ""; !strings.Contains(text, "\noutboxweb_lag_events 0\n"); _, text = s.ask("/metrics") {
		<-look.C
	}
}
