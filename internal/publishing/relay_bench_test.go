package publishing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// BenchmarkFanOut delivers a whole journal to five files at a time, each
// synced after every batch, and beside it measures what writing the same lines
// in the same batches costs without anything else. Run it with
//
//	go test ./internal/publishing -run '^$' -bench FanOut -benchtime 3x -db sqlite
func BenchmarkFanOut(b *testing.B) {
	corpus.EachJournal(b, corpus.Heavy, fanOut)
}

func fanOut(b *testing.B, j corpus.Journal) {
	const publishers = 5
	journal := open(b, live)
	events := j.Parse(b)
	journal.appendAll(events...)
	for b.Loop() {
		dir := b.TempDir()
		bare := writeBare(b, journal, dir, publishers)
		text := "everything:\n  match: {event_types: [\"*\"]}\n  publishers:\n"
		topic := filepath.Base(filepath.Dir(dir)) + filepath.Base(dir)
		for i := range publishers {
			text += fmt.Sprintf("    f%s-%d: {url: \"file://%s/%d.ndjson\", rotate_bytes: 0}\n", topic[len(topic)-3:], i, dir, i)
		}
		var node yaml.Node
		if err := yaml.Unmarshal([]byte(text), &node); err != nil {
			b.Fatal(err)
		}
		subs, _, err := destination.Config{Topics: node.Content[0], Getenv: os.LookupEnv}.Parse()
		if err != nil {
			b.Fatal(err)
		}
		c := publishing.RelayConfig{Progress: journal.progress, Pairs: subs, Metrics: metrics.New(journal.Summary), ID: "bench"}
		relay := publishing.NewRelay(c)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		began := time.Now()
		go func() { ended <- relay.Run(ctx) }()
		slowest := 0.0
		for _, sub := range subs {
			storetest.Eventually(b, "all is delivered", func() bool {
				var position int64
				err := journal.JournalDB.QueryRow(`select position from publisher_progress where publisher = $1`, sub.Publisher).Scan(&position)
				return err == nil && position == int64(len(events))
			})
			slowest = time.Since(began).Seconds()
		}
		cancel()
		<-ended
		each := float64(len(events)) / slowest
		b.ReportMetric(each, "events/s/pair")
		b.ReportMetric(float64(len(events)*publishers)/slowest/bare, "of-bare")
		b.ReportMetric(counted(b, c.Metrics.PublisherReads), "reads")
	}
}

// writeBare writes the events as CloudEvents to files, one after the other, in batches that are
// synced, and returns the rate per second.
func writeBare(b *testing.B, journal *fixture, dir string, files int) float64 {
	b.Helper()
	var lines [][]byte
	for after := int64(0); ; {
		events, err := journal.EventsFrom(context.Background(), after, 1000)
		if err != nil {
			b.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		after = events[len(events)-1].Position
		for _, e := range events {
			line, err := destination.NewEvent(e, "bench").CloudEvent()
			if err != nil || !json.Valid(line) {
				b.Fatal(err)
			}
			lines = append(lines, line)
		}
	}
	began := time.Now()
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("bare-%d", i)))
		if err != nil {
			b.Fatal(err)
		}
		var batch []byte
		for n, line := range lines {
			batch = append(append(batch, line...), '\n')
			if (n+1)%destination.DefaultBatchSize > 0 && n+1 < len(lines) {
				continue
			}
			if _, err := f.Write(batch); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
		f.Close()
	}
	return float64(len(lines)*files) / time.Since(began).Seconds()
}
