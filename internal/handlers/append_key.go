package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// appendKeys are the idempotency keys of the appends under way. It is safe for
// concurrent use; the zero value is ready.
type appendKeys struct {
	mu    sync.Mutex
	under map[appendKey]bool
}

// appendKey is a key as one caller's.
type appendKey struct {
	by  paced
	key string
}

// begin notes that an append under a request's key is under way, until leave is
// called. One that is under way already is outbox.ErrConflict. A request without
// a key is never in the way.
func (k *appendKeys) begin(r *http.Request) (leave func(), err error) {
	key := appendKey{paced{me(r).Auth, me(r).Name}, r.Header.Get("Idempotency-Key")}
	if key.key == "" {
		return func() {}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.under[key] {
		return nil, outbox.Conflict("an append with this Idempotency-Key is in progress; retry in a moment to get its result")
	}
	if k.under == nil {
		k.under = map[appendKey]bool{}
	}
	k.under[key] = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.under, key)
	}, nil
}

// requestHash tells an append's request from another.
func requestHash(campaign string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(campaign + "\n")) // which no campaign's name has
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// append appends, once for all requests with the same key; then repeated is
// true.
func (s *server) append(r *http.Request, request store.Append, hash string) (done []store.Appended, repeated bool, err error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		done, err = s.Store.Append(r.Context(), request)
		return done, false, err
	}
	return s.Store.AppendOnce(r.Context(), request, store.AppendKey{By: me(r), Key: key, Request: hash})
}
