package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

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
			if peak > shape.limitMB {
				b.Errorf("the server grew to %.0f MB; the limit is %.0f", peak, shape.limitMB)
			}
		})
	}
}

func appendLarge(b *testing.B, dir string, events, campaigns, bytes int) {
	b.Helper()
	st := must.Get(store.Open(b.Context(), store.Options{Journal: "sqlite:" + filepath.Join(dir, "journal.db"), Projections: "sqlite:" + filepath.Join(dir, "projections.db"), MaxPayload: bytes + 100})).Or(b)
	defer st.Close()
	payload := json.RawMessage(`{"x":"` + strings.Repeat("x", bytes-len(`{"x":""}`)) + `"}`)
	for i := range events {
		e := outbox.Event{CampaignID: fmt.Sprintf("c-%02d", i%campaigns), EventType: "blob", Payload: payload}
		must.Get(st.Append(b.Context(), store.Append{Events: []outbox.Event{e}})).Or(b)
	}
}

var lagEvents = regexp.MustCompile(`(?m)^outboxweb_lag_events (\S+)$`)

// emptied waits until the server has applied everything.
func (s *served) emptied() {
	s.t.Helper()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for range look.C {
		_, text := s.get("/metrics")
		if lag := lagEvents.FindSubmatch(text); lag != nil && string(lag[1]) == "0" {
			return
		}
	}
}
