package auth

import (
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
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/event"
)

const (
	fetchPause = 10 * time.Second // the least time between the starts of two fetches
	fetchTime  = 5 * time.Second  // timeout of one fetch
	maxKeySet  = 512 << 10        // bytes of an answer
	keysAge    = time.Hour        // after which keys are fetched again, so that withdrawn ones are dropped
)

// openKeys opens the issuer's keys and reads them if they are in a file.
func openKeys(c Config) (oidc.KeySet, error) {
	switch {
	case c.JWKS == "" && !fetchable(c.Issuer):
		return nil, event.Invalid("auth-jwks", "it is missing: set where the issuer's public keys are, an https address or a file; only an issuer that is an https address can name them itself")
	case c.JWKS != "" && !strings.Contains(c.JWKS, "://"):
		return readKeyFile(c.JWKS, c.Algorithms)
	case c.JWKS != "" && !fetchable(c.JWKS):
		return nil, event.Invalid("auth-jwks", "%q is neither a file nor an https address; http is allowed on this machine alone", c.JWKS)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // a request on a dead connection would be sent twice
	k := &remoteKeys{Config: c, client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	k.last.Store(&fetched{})
	return k, nil
}

// fetchable reports whether keys may be fetched from an address: by https, or by http on this
// machine.
func fetchable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && IsLoopback(u.Hostname()))
}

// IsLoopback reports whether a host is certainly this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// publicKeys are public keys of an issuer, and the algorithms that they may sign with.
type publicKeys struct {
	keys       []jose.JSONWebKey
	algorithms []jose.SignatureAlgorithm
}

// parseKeys parses the signature keys of a JWK set, ignoring unknown kinds.
func parseKeys(text []byte, algorithms []string) (publicKeys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return publicKeys{}, errors.New("it is not a JSON Web Key Set")
	}
	var found publicKeys
	for i, raw := range set.Keys {
		var key jose.JSONWebKey
		switch err := json.Unmarshal(raw, &key); {
		case errors.Is(err, jose.ErrUnsupportedKeyType):
		case err != nil:
			return publicKeys{}, fmt.Errorf("its key %d is not well formed", i+1)
		case key.IsPublic() && key.Valid() && key.Use != "enc":
			found.keys = append(found.keys, key)
		}
	}
	if len(found.keys) == 0 {
		return publicKeys{}, errors.New("it holds no public key")
	}
	for _, a := range algorithms {
		found.algorithms = append(found.algorithms, jose.SignatureAlgorithm(a))
	}
	return found, nil
}

func readKeyFile(name string, algorithms []string) (oidc.KeySet, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, event.Invalid("auth-jwks", "cannot read %s: %v", name, event.Cause(err))
	}
	set, err := parseKeys(text, algorithms)
	if err != nil {
		return nil, event.Invalid("auth-jwks", "%s: %v", name, err)
	}
	return set, nil
}

// VerifySignature implements oidc.KeySet.
func (s publicKeys) VerifySignature(_ context.Context, text string) ([]byte, error) {
	payload, _, err := s.verify(text)
	return payload, err
}

// verify checks the signature of an assertion. named reports whether a key has the id that the
// assertion names.
func (s publicKeys) verify(text string) (payload []byte, named bool, err error) {
	signed, err := jose.ParseSignedCompact(text, s.algorithms)
	if err != nil {
		return nil, false, err
	}
	head := signed.Signatures[0].Header
	for _, key := range s.keys {
		if head.KeyID != "" && key.KeyID != head.KeyID {
			continue
		}
		named = head.KeyID != ""
		if key.Algorithm != "" && key.Algorithm != head.Algorithm {
			continue
		}
		if payload, err := signed.Verify(&key); err == nil {
			return payload, named, nil
		}
	}
	return nil, named, errors.New("no key matches")
}

// remoteKeys are keys fetched from the address of the configuration, or from the one that the
// issuer's discovery document names.
type remoteKeys struct {
	Config
	client *http.Client
	turn   sync.Mutex // held while fetching
	last   atomic.Pointer[fetched]
}

// fetched is the outcome of the last fetch.
type fetched struct {
	publicKeys           // of the last fetch that succeeded
	read       time.Time // start of that one; zero if there is none
	asked      time.Time // start of the last fetch
	err        error     // of the last fetch
}

// pause is how long to wait until the next fetch.
func (f *fetched) pause(now time.Time) time.Duration {
	return max(0, fetchPause-now.Sub(f.asked))
}

// VerifySignature implements oidc.KeySet. Its error is a *denial when no known key fits and the
// current keys are unknown: the issuer may have signed with one of those.
func (k *remoteKeys) VerifySignature(ctx context.Context, text string) ([]byte, error) {
	seen, now := k.last.Load(), k.Now()
	payload, _, err := seen.verify(text)
	if err == nil && (now.Sub(seen.read) < keysAge || seen.pause(now) > 0) {
		return payload, nil
	}
	last := k.refresh(context.WithoutCancel(ctx)) // others wait for the outcome too
	payload, named, err := last.verify(text)
	if err == nil {
		return payload, nil
	}
	var denied *denial
	pause := last.pause(k.Now())
	switch again := event.Age(pause + time.Second - 1); {
	case last.err != nil:
		denied = temporaryDenial(last.err, "the issuer's keys cannot be read at the moment, so the signature cannot be checked; try again in %s", again)
	case last == seen && !named:
		denied = temporaryDenial(err, "the assertion in the header %s is signed with a key that was not among the issuer's keys %s ago; they are read again in %s: try again then", k.Header, event.Age(k.Now().Sub(last.asked)), again)
	default:
		return nil, err
	}
	denied.refusal.RetryAfter = pause
	return nil, denied
}

// refresh fetches the keys, unless that was begun less than fetchPause ago, and returns the last
// outcome.
func (k *remoteKeys) refresh(ctx context.Context) *fetched {
	k.turn.Lock()
	defer k.turn.Unlock()
	last, now := k.last.Load(), k.Now()
	if last.pause(now) > 0 {
		return last
	}
	k.last.Store(&fetched{last.publicKeys, last.read, now, last.err}) // whose key is known does not wait
	found, err := k.fetch(ctx)
	if ctx.Err() != nil { // the server ends
		k.last.Store(last)
		return last
	}
	done := fetched{found, now, now, nil}
	if err != nil {
		done = fetched{last.publicKeys, last.read, now, err}
	}
	k.last.Store(&done)
	switch {
	case err != nil && last.err == nil:
		k.Logger.Warn(done.trouble())
	case err == nil && last.err != nil:
		k.Logger.Info("the issuer's keys have been read")
	}
	return &done
}

// trouble says why the current keys are unknown; empty when they are known.
func (f *fetched) trouble() string {
	next := event.Second(f.asked.Add(fetchPause))
	switch {
	case f.err == nil:
		return ""
	case f.read.IsZero():
		return fmt.Sprintf("the issuer's keys have not been read yet, so every user is refused: %v; the next try is at %s", f.err, next)
	}
	return fmt.Sprintf("the issuer's keys cannot be read again: %v; those of %s are used, and the next try is at %s", f.err, event.Second(f.read), next)
}

func (k *remoteKeys) fetch(ctx context.Context) (found publicKeys, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	address := k.JWKS
	if address == "" {
		at := strings.TrimSuffix(k.Issuer, "/") + "/.well-known/openid-configuration"
		if address, err = read(ctx, k.client, at, k.keysAddress); err != nil {
			return found, err
		}
	}
	return read(ctx, k.client, address, func(text []byte) (publicKeys, error) { return parseKeys(text, k.Algorithms) })
}

// keysAddress returns the address of the keys in a discovery document; see OpenID Connect Discovery
// 1.0, section 4.
func (k *remoteKeys) keysAddress(text []byte) (string, error) {
	var document oidc.ProviderConfig
	switch err := json.Unmarshal(text, &document); {
	case err != nil:
		return "", errors.New("it is not a discovery document")
	case document.IssuerURL != k.Issuer:
		return "", fmt.Errorf("it is the document of the issuer %.200q, and --auth-issuer is %q", document.IssuerURL, k.Issuer)
	case !fetchable(document.JWKSURL) || strings.HasPrefix(k.Issuer, "https:") && !strings.HasPrefix(document.JWKSURL, "https:"):
		return "", fmt.Errorf("its jwks_uri %.200q is not an https address", document.JWKSURL)
	}
	return document.JWKSURL, nil
}

// read parses what an address answers. It follows no redirect.
func read[T any](ctx context.Context, client *http.Client, address string, parse func([]byte) (T, error)) (found T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", address, event.Cause(err))
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return found, err
	}
	response, err := client.Do(r)
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet+1))
	switch {
	case response.StatusCode != http.StatusOK:
		return found, fmt.Errorf("the answer is %s", response.Status)
	case err != nil:
		return found, err
	case len(text) > maxKeySet:
		return found, fmt.Errorf("the answer is larger than %d bytes", maxKeySet)
	}
	return parse(text)
}

// remote returns the keys that are fetched, or nil.
func (g *Gate) remote() *remoteKeys {
	if g == nil || g.assert == nil {
		return nil
	}
	k, _ := g.assert.keys.(*remoteKeys)
	return k
}

// Run keeps the issuer's keys current until ctx ends. Without it they are fetched when a request
// needs them.
func (g *Gate) Run(ctx context.Context) {
	k := g.remote()
	for k != nil && ctx.Err() == nil {
		last := k.refresh(ctx)
		next := last.asked.Add(keysAge)
		if last.err != nil {
			next = last.asked.Add(fetchPause)
		}
		select {
		case <-ctx.Done():
		case <-time.After(next.Sub(k.Now())):
		}
	}
}

// Trouble says why users may be refused or withdrawn keys still count, and is empty when nothing is
// known to be wrong.
func (g *Gate) Trouble() string {
	if k := g.remote(); k != nil {
		return k.last.Load().trouble()
	}
	return ""
}
