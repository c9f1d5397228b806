package handlers

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

var (
	curlCommand = regexp.MustCompile(`(?s)^curl .*?"\$URL(/[^"]*)"(?: -d '(.*?)')?\n(.*)$`)
	promise     = regexp.MustCompile(`(?m)^# prints: (.*)$`)
)

// The examples in the document work as described.
func TestAppendingDocument_isTrue(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../docs/appending.md")).Or(t)
	s := newSite(t)
	blocks := strings.Split(string(text), "```sh\n")[1:]
	if len(blocks) != 4 {
		t.Errorf("the document has %d commands", len(blocks))
	}
	for _, block := range blocks {
		command, _, _ := strings.Cut(block, "```")
		parts := curlCommand.FindStringSubmatch(command)
		if parts == nil {
			t.Fatalf("this is no curl as the test reads it: %s", command)
		}
		var prints []string
		for _, p := range promise.FindAllStringSubmatch(parts[3], -1) {
			prints = append(prints, p[1])
		}
		switch {
		case len(prints) == 0:
			t.Errorf("nothing is said to be printed by %s", command)
		case parts[2] == "":
			s.get(parts[1]).want(t, 200, prints...)
		case strings.Contains(command, "curl -fsS"):
			s.post(parts[1], parts[2]).want(t, 201, prints...)
		default:
			s.post(parts[1], parts[2]).want(t, 409, prints...)
		}
	}
}

func TestAppend_underAnIdempotencyKeyIsDoneOnce(t *testing.T) {
	s := ownSite(t)
	under := func(key, body string) answer {
		return s.post("/api/v1/campaigns/c-1/events", body, func(r *http.Request) { r.Header.Set("Idempotency-Key", key) })
	}
	one := `{"event_type":"a","payload":{}}`
	first := under("k-1", one).want(t, 201, `"seq":1`)
	again := under("k-1", one).want(t, 201, first.body)
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the answers say %v and %v", first.Header, again.Header)
	}
	under("k-1", `{"event_type":"b","payload":{}}`).want(t, 422, `"Idempotency-Key":`, "used for another append", "use a new key")
	under("k-1", `{"events":[{"event_type":"b","payload":{}}]}`).want(t, 422, `"Idempotency-Key":`)
	under("k-2", `{"events":[{"event_type":"b","payload":{}},{"event_type":"b","payload":{}}]}`).want(t, 201, `"seq":2`, `"seq":3`)
	under("k-3", `{"event_type":"a"}`).want(t, 422)
	under("k-3", one).want(t, 201, `"seq":4`) // a refused append leaves its key free
	under(strings.Repeat("k", 201), one).want(t, 422, "the limit is 200")
}
