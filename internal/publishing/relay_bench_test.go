package publishing_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// BenchmarkFanOut delivers a whole journal to five files at a time, each
// synced after every batch. Run it with
//
//	go test ./internal/publishing -run '^$' -bench FanOut -benchtime 3x -db sqlite
func BenchmarkFanOut(b *testing.B) { corpus.EachJournal(b, corpus.Heavy, fanOut) }

func fanOut(b *testing.B, j corpus.Journal) {
	const publishers = 5
	journal := open(b, live)
	events := j.Parse(b)
	journal.MustAppend(events...)
	for b.Loop() {
		dir := b.TempDir()
		text := "everything:\n  match: {event_types: [\"*\"]}\n  publishers:\n"
		topic := filepath.Base(filepath.Dir(dir)) + filepath.Base(dir)
		for i := range publishers {
			text += fmt.Sprintf("    f%s-%d: {url: \"file://%s/%d.ndjson\", rotate_bytes: 0}\n", topic[len(topic)-3:], i, dir, i)
		}
		var node yaml.Node
		must.OK(b, yaml.Unmarshal([]byte(text), &node))
		subs, _, err := destination.Config{Topics: node.Content[0], Getenv: os.LookupEnv}.Parse()
		must.OK(b, err)
		c := publishing.RelayConfig{Progress: journal.progress, Pairs: subs, Metrics: metrics.New(journal.Summary), ID: "bench"}
		relay := publishing.NewRelay(c)
		ctx, cancel := context.WithCancel(context.Background())
		ended, began := make(chan error, 1), time.Now()
		go func() { ended <- relay.Run(ctx) }()
		slowest := 0.0
		for _, sub := range subs {
			must.Eventually(b, "all is delivered", func() bool {
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

		b.ReportMetric(counted(b, c.Metrics.PublisherReads), "reads")
	}
}
