package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// hugePayload is a payload of 25 MB that the seats projection cannot apply.
func hugePayload() string {
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := 0; b.Len() < 25_000_000; i++ {
		fmt.Fprintf(&b, `{"id":%d,"n":9007199254740993,"text":"item %d"},`, i, i)
	}
	b.WriteString(`0],"last":true}`)
	return b.String()
}

// fetch reads a path whole.
func fetch(t *testing.T, s *server, path string) answer {
	t.Helper()
	a, err := s.do(t.Context(), http.MethodGet, path, nil)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", path, a.status, err)
	}
	return a
}

// A payload of 25 MB is appended and returned unchanged, on either database.
func TestDocuments_of25MBAreAppendedAndComeBack(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d databases) {
		payload := hugePayload()
		line := `{"campaign_id":"large","event_type":"seat.taken","payload":` + payload + "}\n"
		refusal := command(t, d, strings.NewReader(line), "append", "-")
		if refusal.code != 1 || !strings.Contains(refusal.stderr, "line 1") {
			t.Errorf("without --max-payload: %d, %s", refusal.code, refusal.stderr)
		}
		mustCommand(t, d, strings.NewReader(line), "append", "--max-payload", "33554432", "-")
		s := start(t, d, append(quickDeath, writeProjections(t, seatProjections)...)...)
		awaitCounts(t, s, "", 0, 0, 1)
		for _, path := range []string{"/campaigns/large/events/1/payload", "/api/v1/campaigns/large/events/1/payload"} {
			if a := fetch(t, s, path); string(a.body) != payload || a.header.Get("Content-Disposition") != `attachment; filename="large-1.json"` {
				t.Errorf("%s has %d bytes, want %d; %v", path, len(a.body), len(payload), a.header)
			}
		}
		for _, path := range []string{"/campaigns/large/events/1", "/campaigns/large", "/campaigns/large/events/1?tab=payload", "/rows"} {
			if length := len(fetch(t, s, path).body); length > 100_000 {
				t.Errorf("%s has %d bytes", path, length)
			}
		}
	})
}
