package auth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// keyServer serves its keys and counts the requests.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	mu    sync.Mutex
	reply http.HandlerFunc
}

func newKeyServer(t testing.TB, signers ...signer) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.holds(keySet(t, signers...))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		reply := s.reply
		s.mu.Unlock()
		reply(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) answers(reply http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

func (s *keyServer) holds(set []byte) {
	s.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
}

// handClock is a clock that changes only when set.
type handClock struct{ micros atomic.Int64 }

func newHandClock() *handClock {
	c := &handClock{}
	c.micros.Store(now.UnixMicro())
	return c
}

func (c *handClock) now() time.Time           { return time.UnixMicro(c.micros.Load()) }
func (c *handClock) advance(by time.Duration) { c.micros.Add(by.Microseconds()) }

func TestKeys_areAskedForOnceInTenSecondsWhateverArrives(t *testing.T) {
	t.Parallel()
	known, next, stranger := newSigner(t, "k-1", jose.ES256), newSigner(t, "k-2", jose.ES256), newSigner(t, "k-1", jose.ES256)
	server, clock := newKeyServer(t, known), newHandClock()
	c := jwtConfig(server.URL)
	c.Now = clock.now
	g, _ := gate(t, c)
	storm := func(text func(i int) string) {
		t.Helper()
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range 250 {
					if who, err := g.Identify(asserting(text(worker*250 + i))); err == nil {
						t.Errorf("identified %+v", who)
					}
				}
			})
		}
		all.Wait()
	}
	asked := func(want int64) {
		t.Helper()
		if n := server.asked.Load(); n != want {
			t.Fatalf("the key server was asked %d times, want %d", n, want)
		}
	}
	forged := stranger.sign(t, good())
	payload := forged[strings.IndexByte(forged, '.'):]
	unknown := func(i int) string {
		return encoded([]byte(fmt.Sprintf(`{"alg":"ES256","kid":"u-%d"}`, i))) + payload
	}
	storm(unknown)
	asked(1)
	storm(func(int) string { return forged })
	asked(1)
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	asked(1)

	server.holds(keySet(t, known, next))
	rotated := next.sign(t, good())
	clock.advance(fetchPause - time.Second)
	if _, err := g.Identify(asserting(rotated)); err == nil {
		t.Fatal("a key was read before its time")
	}
	asked(1)
	clock.advance(time.Second)
	wantUser(t, g, asserting(rotated), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	asked(2)
	clock.advance(fetchPause)
	storm(unknown)
	asked(3)
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
}

func TestKeys_thatWereWithdrawnAreForgotten(t *testing.T) {
	t.Parallel()
	stolen, next := newSigner(t, "k-1", jose.ES256), newSigner(t, "k-2", jose.ES256)
	server, clock := newKeyServer(t, stolen), newHandClock()
	c := jwtConfig(server.URL)
	c.Now = clock.now
	g, told := gate(t, c)
	lasting := map[string]any{"exp": now.Unix() + 86_400}
	text := stolen.sign(t, good(lasting))
	wantUser(t, g, asserting(text), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	clock.advance(keysAge)
	server.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	wantUser(t, g, asserting(text), "ana@example.org", outbox.RoleOperator, "ops", "dev") // old keys are better than none
	server.holds(keySet(t, next))
	clock.advance(fetchPause)
	wantDenied(t, g, told, asserting(text), whySignature, "not signed with one of the issuer's keys")
	wantUser(t, g, asserting(next.sign(t, good(lasting))), "ana@example.org", outbox.RoleOperator, "ops", "dev")
}

// A session stays valid when the issuer has changed keys while its server does not answer.
func TestKeys_thatCannotBeReadAfterARotationPutOff(t *testing.T) {
	t.Parallel()
	known, next := newSigner(t, "k-1", jose.ES256), newSigner(t, "k-2", jose.ES256)
	server, clock := newKeyServer(t, known), newHandClock()
	c := jwtConfig(server.URL)
	c.Now = clock.now
	g, told := gate(t, c)
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	server.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	clock.advance(fetchPause)
	for range 2 {
		wantDenied(t, g, told, asserting(next.sign(t, good())), whyUnavailable, "keys cannot be read at the moment")
	}
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	server.holds(keySet(t, next))
	clock.advance(fetchPause)
	wantUser(t, g, asserting(next.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
	wantDenied(t, g, told, asserting(newSigner(t, "k-3", jose.ES256).sign(t, good())), whySignature, "not signed with one of the issuer's keys")
}

func TestKeys_thatCannotBeReadPutEverybodyOff(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.ES256)
	elsewhere := newKeyServer(t, s)
	t.Cleanup(func() { // after the parallel tests
		if n := elsewhere.asked.Load(); n != 0 {
			t.Errorf("a redirect was followed %d times", n)
		}
	})
	for name, reply := range map[string]http.HandlerFunc{
		"error":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>log in</html>")) },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
		"a secret": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`))
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[],"filler":"` + strings.Repeat("x", maxKeySet) + `"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := newKeyServer(t), newHandClock()
			server.answers(reply)
			c := jwtConfig(server.URL)
			c.Now = clock.now
			g, told := gate(t, c)
			for range 5 {
				wantDenied(t, g, told, asserting(s.sign(t, good())), whyUnavailable, "keys cannot be read at the moment")
			}
			if n := server.asked.Load(); n != 1 {
				t.Errorf("the key server was asked %d times", n)
			}
			server.holds(keySet(t, s))
			clock.advance(fetchPause)
			wantUser(t, g, asserting(s.sign(t, good())), "ana@example.org", outbox.RoleOperator, "ops", "dev")
		})
	}
}
