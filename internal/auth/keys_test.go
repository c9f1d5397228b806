package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// keyServer serves its keys and counts the requests.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	mu    sync.Mutex
	reply http.HandlerFunc
}

func newKeyServer(t testing.TB, signers ...signer) *keyServer {
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

func (s *keyServer) holds(set []byte) { s.answers(writes(string(set))) }

func writes(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// timed is a gate whose clock changes only by advance, which is called while nobody asks.
func timed(t *testing.T, c Config) (g *Gate, told *refusals, advance func(time.Duration)) {
	clock := now
	c.Now = func() time.Time { return clock }
	g, told = gate(t, c)
	return g, told, func(by time.Duration) { clock = clock.Add(by) }
}

func TestKeys_areAskedForOnceInTenSecondsWhateverArrives(t *testing.T) {
	t.Parallel()
	known, next, stranger := newSigner(t, "k-1", jose.ES256), newSigner(t, "k-2", jose.ES256), newSigner(t, "k-1", jose.ES256)
	server := newKeyServer(t, known)
	g, told, advance := timed(t, jwtConfig(server.URL))
	storm := func(text func(i int) string) {
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range 250 {
					who, err := g.Identify(asserting(text(worker*250 + i)))
					must.Hold(t, err != nil, "identified %+v", who)
				}
			})
		}
		all.Wait()
	}
	asked := func(want int64) {
		n := server.asked.Load()
		must.Need(t, n == want, "the key server was asked %d times, want %d", n, want)
	}
	forged := stranger.sign(t, good())
	payload := forged[strings.IndexByte(forged, '.'):]
	unknown := func(i int) string { return encoded([]byte(fmt.Sprintf(`{"alg":"ES256","kid":"u-%d"}`, i))) + payload }
	storm(unknown)
	asked(1)
	storm(func(int) string { return forged })
	asked(1)
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", operator.RoleOperator, "ops")
	asked(1)

	server.holds(keySet(t, known, next))
	rotated := next.sign(t, good())
	advance(fetchPause - time.Second)
	wantDenied(t, g, told, asserting(rotated), whyUnavailable, "not among the issuer's keys 9 s ago; they are read again in 1 s")
	wantDenied(t, g, told, asserting(forged), whySignature, "not signed with one of the issuer's keys")
	asked(1)
	advance(time.Second)
	wantUser(t, g, asserting(rotated), "ana@example.org", operator.RoleOperator, "ops")
	asked(2)
	advance(fetchPause)
	storm(unknown)
	asked(3)
	wantUser(t, g, asserting(known.sign(t, good())), "ana@example.org", operator.RoleOperator, "ops")
}

func TestKeys_thatWereWithdrawnAreForgotten(t *testing.T) {
	t.Parallel()
	stolen, next := newSigner(t, "k-1", jose.ES256), newSigner(t, "k-2", jose.ES256)
	server := newKeyServer(t, stolen)
	g, told, advance := timed(t, jwtConfig(server.URL))
	lasting := map[string]any{"exp": now.Unix() + 86_400}
	text := stolen.sign(t, good(lasting))
	wantUser(t, g, asserting(text), "ana@example.org", operator.RoleOperator, "ops")
	server.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	advance(fetchPause)
	for range 2 { // a session stays valid when the issuer has changed keys while its server does not answer
		wantDenied(t, g, told, asserting(next.sign(t, good(lasting))), whyUnavailable, "keys cannot be read at the moment")
	}
	wantUser(t, g, asserting(text), "ana@example.org", operator.RoleOperator, "ops")
	advance(keysAge)
	wantUser(t, g, asserting(text), "ana@example.org", operator.RoleOperator, "ops") // old keys are better than none
	server.holds(keySet(t, next))
	advance(fetchPause)
	wantDenied(t, g, told, asserting(text), whySignature, "not signed with one of the issuer's keys")
	wantUser(t, g, asserting(next.sign(t, good(lasting))), "ana@example.org", operator.RoleOperator, "ops")
	wantDenied(t, g, told, asserting(text), whyUnavailable, "not among the issuer's keys 0 s ago; they are read again in 10 s")
	advance(fetchPause)
	wantDenied(t, g, told, asserting(text), whySignature, "not signed with one of the issuer's keys")
}

// While a fetch hangs, users whose key is known are let in.
func TestKeys_thatAreKnownDoNotWaitForOthers(t *testing.T) {
	t.Parallel()
	known := newSigner(t, "k-1", jose.ES256)
	g, _, advance := timed(t, jwtConfig(newKeyServer(t, known).URL))
	r := asserting(known.sign(t, good(map[string]any{"exp": now.Unix() + 86_400})))
	wantUser(t, g, r, "ana@example.org", operator.RoleOperator, "ops")
	advance(keysAge)
	asked, answered := make(chan bool), make(chan bool)
	g.remote().client.Transport = transport(func(*http.Request) (*http.Response, error) {
		asked <- true
		<-answered
		return nil, errors.New("no answer")
	})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(answered)
	running.Go(func() { _, _ = g.Identify(r) })
	<-asked
	told := make(chan error, 1)
	running.Go(func() {
		_, err := g.Identify(r)
		told <- err
	})
	must.OK(t, must.Receive(t, told, "a user whose key is known waits for a fetch"))
}

// documents makes the server answer with a discovery document of an issuer and the address of its keys,
// and with keys at any other path.
func (s *keyServer) documents(t testing.TB, issuer, keys string, set []byte) {
	text := asJSON(t, map[string]string{"issuer": issuer, "jwks_uri": keys})
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(map[bool][]byte{true: text, false: set}[r.URL.Path == wellKnown])
	})
}

const wellKnown = "/.well-known/openid-configuration"

func TestKeys_areFoundByTheIssuersDocument(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.RS256)
	server := newKeyServer(t)
	server.documents(t, server.URL, server.URL+"/keys", keySet(t, s))
	g, told, advance := timed(t, Config{Kind: KindJWT, Preset: "oauth2-proxy", Issuer: server.URL, Audience: []string{"outboxweb"}, Grants: operator.Grants{operator.RoleViewer: {"*"}}})
	from := func(text string) *http.Request { return request("192.0.2.1:80", "X-Outboxweb-Id-Token", text) }
	text := s.sign(t, good(map[string]any{"iss": server.URL}))
	wantUser(t, g, from(text), "ana@example.org", operator.RoleViewer)
	wantUser(t, g, from("Bearer "+text), "ana@example.org", operator.RoleViewer)
	wantDenied(t, g, told, from("ana@example.org"), whyMalformed, "not a signed JWT")
	wantDenied(t, g, told, from(newSigner(t, "k-1", jose.RS256).sign(t, good(map[string]any{"iss": server.URL}))), whySignature, "not signed with one of the issuer's keys")
	wantDenied(t, g, told, from(s.sign(t, good(map[string]any{"iss": server.URL, "exp": now.Unix() - 300}))), whyOutlived, "let the proxy refresh it (oauth2-proxy: cookie_refresh below the token's lifetime,")
	must.Equal(t, server.asked.Load(), 2, "how often the issuer was asked")
	for _, c := range []struct{ issuer, keys, text string }{
		{server.URL + "/", server.URL + "/keys", `it is the document of the issuer "` + server.URL + `/", and --auth-issuer is "` + server.URL + `"`},
		{"", server.URL + "/keys", `it is the document of the issuer ""`},
		{server.URL, "", `its jwks_uri "" is not an https address`},
		{server.URL, "http://sso.example.org/keys", "is not an https address"},
		{server.URL, "https://ana:secret@sso.example.org/keys", "is not an https address"},
		{server.URL, "/keys", "is not an https address"},
	} {
		advance(keysAge)
		server.documents(t, c.issuer, c.keys, keySet(t, s))
		_, _ = g.Identify(from(text)) // whose time is past
		trouble := g.Trouble()
		must.Hold(t, strings.Contains(trouble, c.text) && strings.Contains(trouble, "cannot be read again: "+server.URL+wellKnown+": it"), "issuer %q and keys at %q: %q", c.issuer, c.keys, trouble)
	}
	advance(fetchPause)
	server.documents(t, server.URL, server.URL+"/elsewhere", keySet(t, s))
	_, _ = g.Identify(from(text))
	must.Equal(t, g.Trouble(), "")
}

// A document that came by https does not lead to keys that come by http.
func TestKeys_areNotFetchedByHTTPForAnIssuerByHTTPS(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.ES256)
	plain, document := newKeyServer(t, s), []byte(nil)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	defer secure.Close()
	document = asJSON(t, map[string]any{"issuer": secure.URL, "jwks_uri": plain.URL})
	c := jwtConfig("")
	c.Issuer = secure.URL
	g, told := gate(t, c)
	g.remote().client.Transport = secure.Client().Transport
	wantDenied(t, g, told, asserting(s.sign(t, good(map[string]any{"iss": secure.URL}))), whyUnavailable, "keys cannot be read at the moment")
	must.Hold(t, strings.Contains(g.Trouble(), "is not an https address") && plain.asked.Load() == 0, "%q, and the keys were fetched %d times", g.Trouble(), plain.asked.Load())
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRun_readsTheKeysBeforeAnybodyAsks(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.ES256)
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var asked []string
		start, away, hangs := time.Now(), true, false
		c := jwtConfig(issuer + "/keys")
		c.Now, c.Logger = time.Now, slog.New(slog.NewTextHandler(&log, nil))
		g, told := gate(t, c)
		g.remote().client.Transport = transport(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, time.Since(start).String())
			if hangs {
				<-r.Context().Done()
			}
			if away || hangs {
				return nil, errors.New("connection refused")
			}
			w := httptest.NewRecorder()
			_, _ = w.Write(keySet(t, s))
			return w.Result(), nil
		})
		at := time.Now().Unix()
		r := asserting(s.sign(t, good(map[string]any{"iat": at, "nbf": at, "exp": at + 86_400})))
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { g.Run(ctx) })
		after := func(wait time.Duration, trouble string) {
			time.Sleep(wait)
			synctest.Wait()
			must.Equal(t, g.Trouble(), trouble, "trouble")
		}
		const never = "the issuer's keys have not been read yet, so every user is refused: https://sso.example.org/keys: connection refused; the next try is at "
		after(0, never+"2000-01-01 00:00:10 UTC")
		after(25*time.Second, never+"2000-01-01 00:00:30 UTC")
		wantDenied(t, g, told, r, whyUnavailable, "cannot be read at the moment, so the signature cannot be checked; try again in 5 s")
		away = false
		after(5*time.Second, "")
		wantUser(t, g, r, "ana@example.org", operator.RoleOperator, "ops")
		away = true
		after(keysAge, "the issuer's keys cannot be read again: https://sso.example.org/keys: connection refused; those of 2000-01-01 00:00:30 UTC are used, and the next try is at 2000-01-01 01:00:40 UTC")
		wantUser(t, g, r, "ana@example.org", operator.RoleOperator, "ops")
		away = false
		after(fetchPause, "")
		hangs = true
		after(keysAge, "")
		end()
		running.Wait()
		got := strings.Join(asked, " ") + ", until " + time.Since(start).String() + g.Trouble()
		must.Hold(t, got == "0s 10s 20s 30s 1h0m30s 1h0m40s 2h0m40s, until 2h0m40s", "the keys were asked for at %s", got)
		lines := log.String()
		must.Hold(t, strings.Count(lines, "have not been read yet") == 1 && strings.Count(lines, "keys have been read") == 2 && strings.Count(lines, "cannot be read again") == 1, "the log:\n%s", lines)
	})
}

func TestKeys_thatCannotBeReadPutEverybodyOff(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.ES256)
	elsewhere := newKeyServer(t, s)
	t.Cleanup(func() { // after the parallel tests
		must.Equal(t, elsewhere.asked.Load(), 0, "how often a redirect was followed")
	})
	for name, reply := range map[string]http.HandlerFunc{
		"error":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) },
		"no JSON":  writes("<html>log in</html>"), "no keys": writes(`{"keys":[]}`), "a secret": writes(`{"keys":[{"kty":"oct","k":"AAAA"}]}`),
		"huge": writes(`{"keys":[],"filler":"` + strings.Repeat("x", maxKeySet) + `"}`),
	} {
		for _, discovered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, discovered %t", name, discovered), func(t *testing.T) {
				t.Parallel()
				server := newKeyServer(t)
				server.answers(reply)
				c := jwtConfig(server.URL)
				if c.Issuer = server.URL; discovered {
					c.JWKS = ""
				}
				g, told, advance := timed(t, c)
				r := asserting(s.sign(t, good(map[string]any{"iss": server.URL})))
				for range 5 {
					wantDenied(t, g, told, r, whyUnavailable, "keys cannot be read at the moment")
				}
				must.Equal(t, server.asked.Load(), 1, "how often the key server was asked")
				server.documents(t, server.URL, server.URL+"/keys", keySet(t, s))
				advance(fetchPause)
				wantUser(t, g, r, "ana@example.org", operator.RoleOperator, "ops")
			})
		}
	}
}
