package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

var publishKills = flag.Int("publish-kills", 0, "how often the tests of publishers kill a server; 0 is 15, and 4 in a short run")

// Two servers deliver to five destinations while events are appended, and one or the other is
// killed again and again. The destinations receive the journal in its order, except that the last
// events before a kill may be repeated.
func TestPublishersKill9(t *testing.T) {
	t.Parallel()
	killPublishers(t, newDatabases(t), amount(publishKills, 4, 15))
}

func TestPostgresPublishersKill9(t *testing.T) {
	t.Parallel()
	killPublishers(t, newPostgres(t), max(1, amount(publishKills, 4, 15)/3)) // a start takes longer there
}

func killPublishers(t *testing.T, d databases, kills int) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	hooks, bus, stream := newHooks(t, seed), startNATS(t), startKafka(t)
	file := filepath.Join(d.dir, "out", "events.ndjson")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	quick := "poll_interval: 20ms, timeout: 500ms, max_errors: 3, failed_retry: 100ms, retry_base: 10ms, retry_max: 100ms"
	config := d.config(t, fmt.Sprintf(`
lease: 300ms
poll_interval: 50ms
topics:
  everything:
    match: {event_types: ["*"]}
    publishers:
      file: {url: "file://%s", rotate_bytes: 20000, %s}
      hook: {url: "%s/structured", allow_private: true, %[2]s}
      batch: {url: "%[3]s/batch", format: batch, allow_private: true, %[2]s}
      bus: {url: "%[4]s/events", %[2]s}
      stream: {url: "kafka://%[5]s/events", %[2]s}
`, file, quick, hooks.server.URL, bus.url, stream.address))

	l := startLoad(t, 4, 12)
	l.steady(20 * time.Millisecond)
	servers := []*server{start(t, d, config...), start(t, d, config...)}
	l.point(servers...)
	for range kills {
		wait(50*time.Millisecond + time.Duration(random.Int64N(int64(200*time.Millisecond))))
		i := random.IntN(len(servers))
		servers[i].kill()
		servers[i] = start(t, d, config...)
		l.point(servers...)
	}
	l.awaitProgress(t, 100)
	l.finish(t)
	journal := positions(t, d)
	last := journal[len(journal)-1]
	eventually(t, 2*time.Minute, "everything is delivered", func() (bool, string) {
		behind := scalar[string](t, d.journal(), `select coalesce(min(publisher || ' at ' || position), '') from publisher_progress where position < `+strconv.FormatInt(last, 10))
		return behind == "", behind
	})
	for _, s := range servers {
		if code := s.stop(t); code != 0 {
			t.Errorf("a server ended with exit code %d", code)
		}
	}
	t.Logf("%d kills, %d events", kills, len(journal))
	resent := map[string]int{
		"file": mustBeJournal(t, "file", readFiles(t, file), journal), "hook": mustBeJournal(t, "hook", hooks.took("/structured"), journal),
		"batch": mustBeJournal(t, "batch", hooks.took("/batch"), journal),
	}
	t.Logf("events that came more than once: %v; the webhooks misbehaved %d times", resent, hooks.misdeeds())
	if got := bus.messages(t); !slices.Equal(got, journal) { // the stream keeps no repeats
		t.Errorf("the stream has %d messages of %d events, or in another order", len(got), len(journal))
	}
	var all []int64
	for partition, got := range stream.records(t, last) {
		all = append(all, mustBeOrdered(t, fmt.Sprintf("partition %d", partition), got)...)
	}
	slices.Sort(all)
	if !slices.Equal(all, journal) {
		t.Errorf("the topic has %d different events of %d", len(all), len(journal))
	}
}

// config writes a configuration file and returns the flag that names it.
func (d databases) config(t *testing.T, text string) []string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "outboxweb.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", name}
}

// positions are those of the journal, in order.
func positions(t *testing.T, d databases) []int64 {
	t.Helper()
	var all []int64
	each(t, d.journal(), `select position from events order by position`, func(row map[string]any) {
		all = append(all, row["position"].(int64))
	})
	return all
}

// resendLimit is how far back a delivery may restart: a batch, twice.
const resendLimit = 200

// mustBeJournal fails the test unless the received events are the journal's in order with nothing
// but re-sent suffixes, and returns how many were repeated.
func mustBeJournal(t *testing.T, name string, got, journal []int64) (resent int) {
	t.Helper()
	next, high := 0, 0 // indexes in journal: the next expected event, and the first never received
	for _, position := range got {
		if next == len(journal) || journal[next] != position {
			again, found := slices.BinarySearch(journal, position)
			if !found || again > high || high-again > resendLimit {
				t.Errorf("%s: position %d came where %d new ones had come before", name, position, high)
				return resent
			}
			next = again
		}
		if next < high {
			resent++
		}
		next++
		high = max(high, next)
	}
	if high != len(journal) {
		t.Errorf("%s: %d of %d events came", name, high, len(journal))
	}
	return resent
}

// mustBeOrdered is mustBeJournal for a part of the journal; it returns the received events, once
// each.
func mustBeOrdered(t *testing.T, name string, got []int64) []int64 {
	t.Helper()
	once := slices.Clone(got)
	slices.Sort(once)
	once = slices.Compact(once)
	mustBeJournal(t, name, got, once)
	return once
}

// positionOf is the id of a CloudEvent.
func positionOf(t *testing.T, text []byte) int64 {
	t.Helper()
	var e struct {
		ID   string `json:"id"`
		Data struct {
			Position int64 `json:"position"`
		} `json:"data"`
	}
	err := json.Unmarshal(text, &e)
	if err != nil || e.ID != strconv.FormatInt(e.Data.Position, 10) || e.Data.Position == 0 {
		t.Errorf("not an event of a journal: %v: %s", err, text)
	}
	return e.Data.Position
}

// readFiles reads a file and those it was rotated to, in the order of writing.
func readFiles(t *testing.T, name string) (all []int64) {
	t.Helper()
	rotated, err := filepath.Glob(name + ".*")
	if err != nil || len(rotated) == 0 {
		t.Errorf("the file was never rotated: %v", err)
	}
	slices.Sort(rotated)
	for _, part := range append(rotated, name) {
		text, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			t.Errorf("%s ends in the middle of a line", part)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			all = append(all, positionOf(t, lines.Bytes()))
		}
	}
	return all
}

// hooks are webhooks that drop, delay, refuse and repeat.
type hooks struct {
	server *httptest.Server
	t      *testing.T

	mu     sync.Mutex
	random *rand.Rand
	even   bool // no faults
	bad    int
	got    map[string][]int64
}

func newHooks(t *testing.T, seed uint64) *hooks {
	h := &hooks{t: t, random: rand.New(rand.NewPCG(seed, 1)), got: map[string][]int64{}}
	h.server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.server.CloseClientConnections()
		h.server.Close()
	})
	return h
}

// calm makes the hooks accept everything from now on, each within a moment.
func (h *hooks) calm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.even = true
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	mood := h.random.IntN(200)
	if h.even {
		mood = 199
	}
	if mood < 8 {
		h.bad++
	}
	switch mood {
	case 0, 1: // drop the connection before accepting anything
		panic(http.ErrAbortHandler)
	case 2:
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return
	case 3:
		http.Error(w, "boom", http.StatusInternalServerError)
		return
	case 4:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	}
	h.take(r.URL.Path, body)
	switch mood {
	case 5, 6: // and after it
		panic(http.ErrAbortHandler)
	case 7: // answer after the client has given up
		h.mu.Unlock()
		wait(600 * time.Millisecond)
		h.mu.Lock()
	}
}

func (h *hooks) take(path string, body []byte) {
	events := []json.RawMessage{body}
	if path == "/batch" {
		if err := json.Unmarshal(body, &events); err != nil {
			h.t.Errorf("not a batch: %v", err)
		}
	}
	for _, e := range events {
		h.got[path] = append(h.got[path], positionOf(h.t, e))
	}
}

func (h *hooks) took(path string) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got[path])
}

func (h *hooks) misdeeds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bad
}

// natsBus is a NATS server with a stream for the subject events.
type natsBus struct {
	url    string
	stream jetstream.Stream
}

func startNATS(t *testing.T) natsBus {
	t.Helper()
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events"}, Duplicates: time.Hour, Storage: jetstream.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	return natsBus{url: s.ClientURL(), stream: stream}
}

func (b natsBus) messages(t *testing.T) (all []int64) {
	t.Helper()
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		m, err := b.stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, positionOf(t, m.Data))
	}
	return all
}

// kafkaStream is a Kafka cluster with a topic events.
type kafkaStream struct {
	address string
	cluster *kfake.Cluster
}

func startKafka(t *testing.T) kafkaStream {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kafkaStream{strings.Join(cluster.ListenAddrs(), ","), cluster}
}

// records are the positions of each partition in order, once the last one of
// the journal is among them.
func (k kafkaStream) records(t *testing.T, last int64) map[int32][]int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(k.address, ",")...), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all := map[int32][]int64{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := int64(0)
	for _, p := range k.cluster.PartitionInfos("events") {
		left += p.HighWatermark
	}
	for seen := false; left > 0 || !seen; {
		fetched := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the topic cannot be read to its end: %d records are left, the last event was seen: %v", left, seen)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			p := positionOf(t, r.Value)
			all[r.Partition] = append(all[r.Partition], p)
			seen = seen || p == last
			left--
		})
	}
	return all
}
