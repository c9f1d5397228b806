package handlers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
)

func connect(t *testing.T, server *httptest.Server, text string) net.Conn {
	conn := must.Get(net.Dial("tcp", server.Listener.Addr().String())).Or(t)
	t.Cleanup(func() { conn.Close() })
	must.OK(t, conn.SetDeadline(time.Now().Add(must.Patience)))
	must.Get(io.WriteString(conn, text)).Or(t)
	return conn
}

// saying sends a text to a server on its own connection and returns the status and the body of the answer.
func saying(t *testing.T, server *httptest.Server, text string) (status int, body string) {
	response := must.Get(http.ReadResponse(bufio.NewReader(connect(t, server, text)), nil)).Or(t)
	defer response.Body.Close()
	all := must.Get(io.ReadAll(response.Body)).Or(t)
	return response.StatusCode, string(all)
}

func TestHead_hasLimits(t *testing.T) {
	server := ownSite(t).listenWith(Patience{})
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "X-H%d: 1\r\n", i)
		}
		return b.String()
	}
	const host = "Host: 127.0.0.1\r\nConnection: close\r\n"
	for name, c := range map[string]struct {
		head   string
		status int
		text   string
	}{
		"as it should be":       {"GET /api/v1/about HTTP/1.1\r\n" + host, 200, "version"},
		"bytes":                 {"GET /api/v1/about HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", maxHeader+8<<10) + "\r\n", 431, ""},
		"headers":               {"GET /api/v1/about HTTP/1.1\r\n" + host + many(maxHeaders), 431, "urn:outboxweb:headers"},
		"as many as there may":  {"GET /api/v1/about HTTP/1.1\r\n" + host + many(maxHeaders-1), 200, "version"}, // Connection is one
		"one header many times": {"GET /api/v1/about HTTP/1.1\r\n" + host + strings.Repeat("X: 1\r\n", 4*maxHeaders), 200, "version"},
		"groups as proxies do":  {"GET /api/v1/about HTTP/1.1\r\n" + host + "Remote-Groups: " + strings.Repeat(strings.Repeat("g", 60)+",", 400) + "\r\n", 200, "version"},
		"address":               {"GET /api/v1/rows?q=" + strings.Repeat("x", maxAddress) + " HTTP/1.1\r\n" + host, 414, "urn:outboxweb:address"},
		"address of a page":     {"GET /rows?q=" + strings.Repeat("x", maxAddress) + " HTTP/1.1\r\n" + host, 414, "the limit is 16384"},
	} {
		status, body := saying(t, server, c.head+"\r\n")
		must.Hold(t, status == c.status && strings.Contains(body, c.text), "%s: %d %.300s", name, status, body)
	}
}

// closedBy waits until the server closes a connection, and returns what it sent.
func closedBy(t *testing.T, conn net.Conn) string {
	said, err := io.ReadAll(conn)
	timeout := net.Error(nil)
	must.Hold(t, !errors.As(err, &timeout) || !timeout.Timeout(), "the connection is still open after %s", must.Patience)
	return string(said)
}

// trickle sends a byte at a time on a connection until that fails.
func trickle(conn net.Conn) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := conn.Write([]byte("x")); err != nil {
			return
		}
	}
}

const headOfRequest = " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

// slowClients are the ways to keep a server waiting: what such a client sends, how it goes on, the
// short patience that ends it, and the answer before that.
var slowClients = map[string]struct {
	text    string
	further func(net.Conn)
	short   Patience
	want    string
}{
	"says nothing":          {short: Patience{Header: moment}},
	"never ends its header": {text: "GET /rows" + headOfRequest + "X-Slow: ", further: trickle, short: Patience{Header: moment}},
	"never ends its body": {text: "POST /api/v1/campaigns/c-1/pause" + headOfRequest + "Content-Length: 1000\r\n\r\n{\"reason\":\"", further: trickle,
		short: Patience{Read: moment}, want: "408 Request Timeout"},
	"asks for nothing more": {text: "GET /healthz" + headOfRequest + "\r\n", short: Patience{Idle: moment}, want: "200 OK"},
}

// moment is the patience that clients are to exceed. No test expects an answer within it.
const moment = 100 * time.Millisecond

const slowEach = 25

func TestSlowClients_areCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range slowClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t).seed("c-1", "a")
			server := s.listenWith(c.short)
			var ends sync.WaitGroup
			for range slowEach {
				conn := connect(t, server, c.text)
				if c.further != nil {
					go c.further(conn)
				}
				ends.Go(func() {
					said := closedBy(t, conn)
					must.Hold(t, strings.Contains(said, c.want), "it ends with %.300q", said)
				})
			}
			ends.Wait()
			s.get("/api/v1/campaigns/c-1").want(t, 200, `"paused":null`)
		})
	}
}

// The server waits for all slow clients, and for slow readers of exports and payloads, while others are answered.
func TestSlowClients_doNotHoldOthersUp(t *testing.T) {
	s := ownSite(t)
	s.append("c-1", "a", `{"long":"`+strings.Repeat("x", 260_000)+`"}`)
	s.serveExport("/test/endless", func(yield func([]int, error) bool) {
		numbers := make([]int, 50_000)
		for yield(numbers, nil) {
		}
	})
	server := s.listenWith(Patience{})
	for range slowEach {
		for _, c := range slowClients {
			connect(t, server, c.text)
		}
	}
	few := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { // limits what the system buffers for a client that reads nothing
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048) })
	}}
	for path, readers := range map[string]int{"/test/endless?format=json": exportsAtATime + 1, "/campaigns/c-1/events/1/payload": documentReaders} {
		for range readers {
			conn := must.Get(few.Dial("tcp", server.Listener.Addr().String())).Or(t)
			defer conn.Close()
			must.OK(t, conn.SetReadDeadline(time.Now().Add(must.Patience)))
			must.Get(fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)).Or(t)
			must.Get(io.CopyN(io.Discard, conn, 100)).Or(t)
		}
	}
	for _, path := range []string{"/", "/rows", "/campaigns/c-1", "/api/v1/summary", "/export/rows?format=csv", "/campaigns/c-1/events/1/tree"} {
		response := must.Get(http.Get(server.URL + path)).Or(t)
		response.Body.Close()
		must.Equal(t, response.StatusCode, http.StatusOK, path)
	}
}

// An answer is not produced far ahead of what its client reads, and one that reads nothing is cut off.
func TestSlowClients_areNotSentMegabytesAhead(t *testing.T) {
	s, sent := ownSite(t), make(chan int, 1)
	s.srv.router.Get("/test/large", func(w http.ResponseWriter, _ *http.Request) {
		part, n := make([]byte, 4<<10), 0
		for n < 64<<20 {
			more, err := w.Write(part)
			if n += more; err != nil {
				break
			}
		}
		sent <- n
	})
	conn := connect(t, s.listenWith(Patience{Write: moment}), "")
	must.OK(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	must.Get(io.WriteString(conn, "GET /test/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).Or(t)
	n := must.Receive(t, sent, "the handler still writes")
	must.Hold(t, n <= 6*sendAhead, "%d bytes were taken for a client that read none", n)
}

// Once an answer has begun, a panic cuts the connection; before, it is a refusal with the request's id.
func TestPanic_isNeverTakenForAWholeAnswer(t *testing.T) {
	var log bytes.Buffer
	s := ownSite(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	server := s.listenWith(Patience{})
	half := func(w http.ResponseWriter) { io.WriteString(w, "<p>half a page") }
	for _, c := range []struct {
		path  string
		begin func(http.ResponseWriter)
		says  string // empty if it is cut off
	}{
		{"/test/panic", func(http.ResponseWriter) {}, "<html"},
		{apiPrefix + "/panic", func(http.ResponseWriter) {}, "urn:outboxweb:internal"},
		{"/test/written", half, ""},
		{"/test/flushed", func(w http.ResponseWriter) { half(w); w.(http.Flusher).Flush() }, ""},
		{"/test/status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, ""},
	} {
		path := c.path
		s.srv.router.Get(path, func(w http.ResponseWriter, _ *http.Request) {
			if c.says != "" {
				w.Header().Set("Content-Disposition", "attachment")
				w.Header().Set("Content-Length", "3")
			}
			c.begin(w)
			panic("secret")
		})
		response, err := http.Get(server.URL + path)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if c.says == "" {
			must.Hold(t, err != nil && !bytes.Contains(body, []byte("request id")), "%s looks whole, or an error page is behind what was written: %v, %s", path, err, body)
			continue
		}
		must.OK(t, err)
		h := response.Header
		id := h.Get("X-Request-Id")
		must.Hold(t, response.StatusCode == 500 && id != "" && strings.Contains(string(body), id) && strings.Contains(string(body), c.says) && !strings.Contains(string(body), "secret"), "%s: %s: %s", path, response.Status, body)
		must.Hold(t, h.Get("Content-Disposition") == "" && h.Get("Content-Security-Policy") != "", "%s: headers %v", path, h)
		must.Hold(t, strings.Contains(log.String(), "secret") && strings.Contains(log.String(), id), "%s: the log has %s", path, &log)
	}
	s.get("/healthz").want(t, 200)
}

func TestRooms_fullAreBusyAndNotForLong(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.DryRun = func(_ context.Context, t replay.Trial) (replay.RunResult, error) {
			return tried(t), nil
		}
	}).seed("c-1", "a")
	large := `{"event_type":"a","payload":{"x":"` + strings.Repeat("x", smallBody-100) + `"},"metadata":{"x":"` + strings.Repeat("x", 100) + `"}}`
	const appending = "POST /api/v1/campaigns/c-1/events"
	for name, c := range map[string]struct {
		room         *admission.Room
		places, each int64
		asks         [][]string // method and target, then bodies
		told         string
	}{
		"documents": {s.srv.reading, documentReaders, 1, [][]string{{"GET /api/v1/campaigns/c-1/events/1/payload", ""}, {"GET /campaigns/c-1/events/1/tree", ""}, {"GET /campaigns/c-1/events/2/tree", ""}, {"GET /campaigns/c-1/events/1/tree?at=/x", ""}}, "reading large documents; try again in a moment"},
		"dry runs":  {s.srv.trying, dryRunsAtATime, 1, [][]string{{"GET /rows/c-1/1/dry-run", ""}}, "try again in a moment"},
		"exports":   {s.srv.exporting, exportsAtATime, 1, [][]string{{"GET /api/v1/export/rows", ""}, {"GET /export/campaigns", ""}}, "try again in a moment"},
		"previews":  {s.srv.previewing, previewsAtATime, 1, [][]string{{"GET /operations/new", ""}, {"GET /runs/new?kind=verify&all_campaigns=true", ""}, {"POST /api/v1/operations/preview", `{"filter":{}}`}}, "try again in a moment"},
		"bodies":    {s.srv.bodies, bodyRoom, maxAppendBody, [][]string{{appending, large, large[:len(large)-1]}}, "too many large appends are in progress; nothing was appended. Try again in a moment"},
		"waits":     {s.srv.waiting, waitsAtATime, 1, [][]string{{"GET /api/v1/campaigns/c-1?min_seq=99&timeout=1ms", ""}, {appending + "?wait=applied&timeout=1ms", `{"event_type":"a","payload":{}}`}}, "2000 requests are waiting for projections"},
	} {
		c.room.Wait = 0
		must.Get(c.room.Enter(t.Context(), c.places-c.each)).Or(t)
		leave := must.Get(c.room.Enter(t.Context(), c.each)).Or(t)
		var asks []sent
		for _, ask := range c.asks {
			method, target, _ := strings.Cut(ask[0], " ")
			for _, body := range ask[1:] {
				asks = append(asks, sent{method: method, target: target, body: body, kind: "application/json"})
			}
		}
		for _, ask := range asks {
			h := s.send(ask).want(t, 503, c.told).Header
			must.Hold(t, h.Get("Retry-After") == "1" && h.Get("Content-Disposition") == "", "%s: %v", name, h)
		}
		leave()
		for _, ask := range slices.Repeat(asks, 2) {
			a := s.send(ask)
			must.Hold(t, a.StatusCode != 503, "%s: %s", name, a.body)
		}
		must.Get(c.room.Enter(t.Context(), c.each)).Or(t)() // each place is given back
	}
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{}}`).want(t, 201) // small, and does not wait
	s.get("/export/rows?format=xml").want(t, 422)
}

func TestShares_limitOneIdentity(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	const wait, appending = "/api/v1/campaigns/c-1?min_seq=1&timeout=1ms", "/api/v1/campaigns/c-1/events?wait=applied&timeout=1ms"
	event := `{"event_type":"a","payload":{}}`
	local := admission.CallerOf(operator.Identity{Auth: operator.AuthLocal, Name: "local"})
	for range waitsOfOne - 1 {
		s.srv.waitsOf.Enter(local)
	}
	leave, _ := s.srv.waitsOf.Enter(local)
	for _, a := range []answer{s.get(wait), s.post(appending, event)} {
		a.want(t, 429, "500 requests by local are waiting for projections", "nothing was done").header(t, "Retry-After", "1")
	}
	leave()
	s.get(wait).want(t, 504)
	s.post(appending, event).want(t, 504, "is appended as seq 2")
	key := appendKey{local, "k"}
	leave, _ = s.srv.appending.Enter(key)
	s.post(appending, event, header("Idempotency-Key", "k")).want(t, 409, "is in progress")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"high_water_seq":2`)
	leave()
	s.post(appending, event, header("Idempotency-Key", "k")).want(t, 504)
	_, free := s.srv.waitsOf.Enter(local)
	_, more := s.srv.waitsOf.Enter(local)
	_, done := s.srv.appending.Enter(key)
	must.Hold(t, free && !more && done, "a request that has ended still counts, or one that has not does not: %t, %t, %t", free, more, done)
}

func TestActRate_holdsEachIdentityToItAndIsToldWithTheLimits(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.ActRate = 2.5 }).seed("c-1", "a")
	const burst = 5
	act := func(i int) answer { return s.post("/api/v1/campaigns/c-1/"+[]string{"pause", "resume"}[i%2], "{}") }
	for i := range burst {
		act(i).want(t, 200)
	}
	over := act(burst).want(t, 429, "urn:outboxweb:rate", "too many actions by local: this server accepts 2.5 per second per identity; nothing was done")
	over.header(t, "Retry-After", "1")
	s.submit("/campaigns/c-1/resume", "").want(t, 429, "oo many actions by local")
	s.get("/api/v1/audit?action=pause").want(t, 200)
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{}}`).want(t, 201) // no action
	s.post("/api/v1/operations/preview", `{"filter":{}}`).want(t, 200)                     // no action
	s.clock = s.clock.Add(400 * time.Millisecond)                                          // one more
	act(burst).want(t, 200)
	act(burst+1).want(t, 429)
	acts := decodeAs[struct{ Items []json.RawMessage }](t, s.get("/api/v1/audit"))
	must.Hold(t, len(acts.Items) >= burst+1, "%d acts are recorded", len(acts.Items))
	s.get("/about").want(t, 200, "16 MiB", "128 KiB, 100 names", "2.5 per second, bursts of 5", "exports 30 s per page", "10,000, with 20,000 tags in total", "32 MiB in memory at a time", "2,000 requests at a time, 500 per identity", "4 exports")
}
