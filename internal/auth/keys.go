package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

const (
	fetchPause = 10 * time.Second // the least time between two requests to a key server
	fetchTime  = 5 * time.Second  // timeout of one request
	maxKeySet  = 512 << 10        // bytes
	keysAge    = time.Hour        // after which keys are fetched again, so that withdrawn ones are dropped
)

var (
	errNoKeys     = errors.New("no keys could be read")
	errNotFetched = errors.New("the keys were not fetched")
	errTooSoon    = fmt.Errorf("%w: the key server was queried a moment ago", errNotFetched)
)

// openKeys opens the issuer's keys and reads them if they are in a file.
func openKeys(c Config) (oidc.KeySet, error) {
	if !strings.Contains(c.JWKS, "://") {
		return readKeyFile(c.JWKS, c.Algorithms)
	}
	u, err := url.Parse(c.JWKS)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && IsLoopback(u.Hostname())) {
		return nil, outbox.Invalid("auth-jwks", "%q is neither a file nor an https address; http is allowed on this machine alone", c.JWKS)
	}
	return newRemoteKeys(c.JWKS, c.Now), nil
}

// IsLoopback reports whether a host is certainly this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parseKeys parses the signature keys of a JWK set, ignoring unknown kinds.
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("it is not a JSON Web Key Set")
	}
	var keys []jose.JSONWebKey
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		switch err := json.Unmarshal(raw, &key); {
		case errors.Is(err, jose.ErrUnsupportedKeyType):
		case err != nil:
			return nil, fmt.Errorf("its key %d is not well formed", i+1)
		case key.IsPublic() && key.Valid() && key.Use != "enc":
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no public key")
	}
	return keys, nil
}

// fileKeys are keys read from a file.
type fileKeys struct {
	keys       []jose.JSONWebKey
	algorithms []jose.SignatureAlgorithm
}

func readKeyFile(name string, algorithms []string) (*fileKeys, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, outbox.Invalid("auth-jwks", "cannot read %s: %v", name, outbox.Cause(err))
	}
	f := &fileKeys{}
	if f.keys, err = parseKeys(text); err != nil {
		return nil, outbox.Invalid("auth-jwks", "%s: %v", name, err)
	}
	for _, a := range algorithms {
		f.algorithms = append(f.algorithms, jose.SignatureAlgorithm(a))
	}
	return f, nil
}

// VerifySignature implements oidc.KeySet.
func (f *fileKeys) VerifySignature(_ context.Context, text string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(text, f.algorithms)
	if err != nil {
		return nil, err
	}
	head := signed.Signatures[0].Header
	for _, key := range f.keys {
		if head.KeyID != "" && key.KeyID != head.KeyID || key.Algorithm != "" && key.Algorithm != head.Algorithm {
			continue
		}
		if payload, err := signed.Verify(&key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key matches")
}

// remoteKeys are keys fetched from a URL.
type remoteKeys struct {
	url  string
	ctx  context.Context // with the HTTP client, as oidc requires
	pace *paced

	mu  sync.Mutex
	set *oidc.RemoteKeySet
}

func newRemoteKeys(address string, now func() time.Time) *remoteKeys {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // a request on a dead connection would be sent twice
	pace := &paced{next: transport, now: now}
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: pace, Timeout: fetchTime})
	return &remoteKeys{url: address, ctx: ctx, pace: pace, set: oidc.NewRemoteKeySet(ctx, address)}
}

// VerifySignature implements oidc.KeySet. Its error is errNoKeys when no known key fits and the
// current keys cannot be fetched: the issuer may have signed with one of those.
func (k *remoteKeys) VerifySignature(ctx context.Context, text string) ([]byte, error) {
	set := k.current(ctx, text)
	payload, err := set.VerifySignature(ctx, text)
	// Keys just fetched for another request may fit. While a fetch was allowed, the set's answer
	// may come from an earlier fetch, which the set is about to drop.
	for again := true; errors.Is(err, errNotFetched) && again; again = k.pace.ready() {
		payload, err = set.VerifySignature(ctx, text)
	}
	if err != nil && k.pace.failed() {
		return nil, fmt.Errorf("%w: %w", errNoKeys, err)
	}
	return payload, err
}

// current returns the key set to use: a new one when the keys have expired and could be fetched
// again.
func (k *remoteKeys) current(ctx context.Context, text string) *oidc.RemoteKeySet {
	k.mu.Lock()
	set := k.set
	k.mu.Unlock()
	read := k.pace.lastRead()
	if read.IsZero() || k.pace.now().Sub(read) < keysAge || !k.pace.ready() {
		return set
	}
	fresh := oidc.NewRemoteKeySet(k.ctx, k.url)
	_, _ = fresh.VerifySignature(ctx, text) // the result is checked again by the caller
	if !k.pace.lastRead().After(read) {
		return set
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set = fresh
	return fresh
}

// paced allows one request per fetchPause, for all callers together, and passes on only
// responses with keys.
type paced struct {
	next http.RoundTripper
	now  func() time.Time

	mu    sync.Mutex
	asked time.Time // time of the last request
	read  time.Time // last time that keys were fetched
	err   error     // result of the last request
}

func (p *paced) lastRead() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

// failed reports whether the last request returned no keys, or there was none yet.
func (p *paced) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read.IsZero() || p.err != nil
}

func (p *paced) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mayAsk(p.now())
}

// mayAsk must be called with the lock held.
func (p *paced) mayAsk(now time.Time) bool {
	return p.asked.IsZero() || now.Sub(p.asked) >= fetchPause
}

// RoundTrip implements http.RoundTripper. A redirect counts as a response without keys.
func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	now := p.now()
	if !p.mayAsk(now) {
		err := errors.Join(errTooSoon, p.err)
		p.mu.Unlock()
		return nil, err
	}
	p.asked = now
	p.mu.Unlock()
	response, err := p.fetch(r)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotFetched, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == nil {
		p.read = now
	}
	return response, err
}

func (p *paced) fetch(r *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the key server answered %s", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeySet {
		return nil, fmt.Errorf("the key server's answer is larger than %d bytes", maxKeySet)
	}
	if _, err := parseKeys(text); err != nil {
		return nil, fmt.Errorf("the key server's answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, nil
}
