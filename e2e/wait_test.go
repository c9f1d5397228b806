package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// problem is the body of an error of the API.
type problem struct {
	Type      string
	Title     string
	Status    int
	Detail    string
	RequestID string `json:"request_id"`
	Errors    map[string]string
	Appended  []appended
}

// refused reads an answer as a problem and fails the test unless it is a complete one with this
// status, and the words in its detail.
func refused(t *testing.T, a answer, status int, words ...string) problem {
	t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("answered with %d %s %s, want problem %d", a.status, a.header.Get("Content-Type"), a.body, status)
	}
	var p problem
	a.decode(t, &p)
	if p.Status != status || p.Type == "" || p.Title != http.StatusText(status) || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("the problem is not complete: %s", a.body)
	}
	for _, word := range words {
		if !strings.Contains(p.Detail, word) {
			t.Errorf("the detail %q does not say %q", p.Detail, word)
		}
	}
	return p
}

// A writer reads its own writes: after the wait the read model has them, in the file, at once.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d, append([]string{"--poll-interval", "1h"}, writeProjections(t, historyProjections)...)...)
	db := openReader(t, d.projections())
	const path = "/api/v1/campaigns/c-1"
	for n := int64(1); n <= 200; n++ {
		var got struct {
			Seq        int64
			AppliedSeq int64 `json:"applied_seq"`
		}
		s.post(t, http.StatusCreated, path+"/events?wait=applied&timeout=30s", event{EventType: "one.made", Payload: map[string]any{"n": 1}}).decode(t, &got)
		var total int64
		if err := db.QueryRow("select total from tally where campaign_id = 'c-1'").Scan(&total); err != nil {
			t.Fatal(err)
		}
		if got.Seq != n || got.AppliedSeq < n || total != n {
			t.Fatalf("event %d: the answer is %+v, the read model has %d", n, got, total)
		}
	}

	s.post(t, http.StatusCreated, path+"/events", event{EventType: "one.made", Payload: map[string]any{"n": 1}})
	var c campaign
	s.get(t, path+"?min_seq=201&timeout=30s", &c)
	if c.AppliedSeq < 201 {
		t.Errorf("waited for event 201 and got %+v", c)
	}
	began := time.Now()
	refused(t, do(t, s, http.MethodGet, path+"?min_seq=999&timeout=50ms", nil), http.StatusGatewayTimeout, "event 999", "last one is 201")
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("gave up after %s, before its 50 ms were over", took)
	}
	refused(t, do(t, s, http.MethodGet, "/api/v1/campaigns/nobody?min_seq=1&timeout=50ms", nil), http.StatusNotFound, "nobody")
}

// do is server.do for a connection that must not fail.
func do(t *testing.T, s *server, method, path string, body any) answer {
	t.Helper()
	a, err := s.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A wait that times out is answered with what is missing and why, and that the event is in the
// journal nonetheless.
func TestReadYourWrites_saysWhatIsMissing(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d, append([]string{"--max-attempts", "1"}, writeProjections(t, historyProjections)...)...)
	good := event{EventType: "one.made", Payload: map[string]any{"n": 1}}
	bad := event{EventType: "one.made", Payload: map[string]any{}}

	t.Run("paused", func(t *testing.T) {
		const path = "/api/v1/campaigns/paused"
		s.post(t, http.StatusCreated, path+"/events?wait=applied&timeout=30s", good)
		s.post(t, http.StatusOK, path+"/pause", map[string]any{"reason": "inspection"})
		p := refused(t, do(t, s, http.MethodPost, path+"/events?wait=applied&timeout=100ms", good),
			http.StatusGatewayTimeout, "appended as seq 2", "not yet at event 2", "Paused by", "inspection")
		if len(p.Appended) != 1 || p.Appended[0].Seq != 2 || p.Appended[0].EventID == "" {
			t.Errorf("appended is %+v", p.Appended)
		}
		refused(t, do(t, s, http.MethodGet, path+"?min_seq=2&timeout=50ms", nil), http.StatusGatewayTimeout, "Paused by")
		if n := scalar[int64](t, d.projections(), "select applied_seq from projection_watermarks where campaign_id = 'paused'"); n != 1 {
			t.Errorf("a paused campaign went on to event %d", n)
		}
		s.post(t, http.StatusOK, path+"/resume", map[string]any{"reason": "done"})
		var c campaign
		s.get(t, path+"?min_seq=2&timeout=30s", &c)
	})

	t.Run("poisoned", func(t *testing.T) {
		const path = "/api/v1/campaigns/poisoned"
		a := do(t, s, http.MethodPost, path+"/events?wait=applied&timeout=100ms", map[string]any{"events": []event{good, bad, good}})
		if p := refused(t, a, http.StatusGatewayTimeout, "3 events are appended", "not yet at event 3"); len(p.Appended) != 3 {
			t.Errorf("appended is %+v", p.Appended)
		}
		eventually(t, patience, "the second event is dead", func() (bool, string) {
			c := campaignState(t, s, "poisoned")
			return c.State == "blocked", c.Why
		})
		a = do(t, s, http.MethodPost, path+"/events?wait=applied&timeout=100ms", good)
		refused(t, a, http.StatusGatewayTimeout, "appended as seq 4", "not yet at event 4", "Event 2 has been dead for", "2 rows wait behind it")
		if n := scalar[int64](t, d.projections(), "select applied_seq from projection_watermarks where campaign_id = 'poisoned'"); n != 1 {
			t.Errorf("the campaign stands at event %d, want 1", n)
		}
	})

	for query, field := range map[string]string{"wait=soon": "wait", "wait=applied&timeout=fast": "timeout", "wait=applied&timeout=1h": "timeout"} {
		p := refused(t, do(t, s, http.MethodPost, "/api/v1/campaigns/c-1/events?"+query, good), http.StatusUnprocessableEntity)
		if p.Errors[field] == "" {
			t.Errorf("%s: the errors %v do not name %s", query, p.Errors, field)
		}
	}
	if n := scalar[int64](t, d.journal(), "select count(*) from events where campaign_id = 'c-1'"); n != 0 {
		t.Errorf("a request with a wrong query appended %d events", n)
	}
}

// Concurrent waiting writers are each answered as soon as their own event is applied.
func TestReadYourWrites_manyAtOnce(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	s := start(t, d, append([]string{"--poll-interval", "1h"}, writeProjections(t, historyProjections)...)...)
	const writers, rounds = 16, 20
	wrong := make(chan string, writers)
	for w := range writers {
		go func() {
			path := fmt.Sprintf("/api/v1/campaigns/c-%d/events?wait=applied&timeout=30s", w%4)
			for range rounds {
				a, err := s.do(t.Context(), http.MethodPost, path, event{EventType: "one.made", Payload: map[string]any{"n": 1}})
				if err != nil || a.status != http.StatusCreated {
					wrong <- fmt.Sprintf("%v: %d %s", err, a.status, a.body)
					return
				}
			}
			wrong <- ""
		}()
	}
	for range writers {
		if text := <-wrong; text != "" {
			t.Error(text)
		}
	}
	if n := scalar[int64](t, d.projections(), "select sum(total) from tally"); n != writers*rounds {
		t.Errorf("everybody was answered, and the read model has %d of %d events", n, writers*rounds)
	}
	verifyApplied(t, d)
}
