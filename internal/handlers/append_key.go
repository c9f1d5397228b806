package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// appendKeys are the idempotency keys of appends in progress. It is safe for concurrent use; the
// zero value is ready.
type appendKeys struct {
	mu    sync.Mutex
	under map[appendKey]bool
}

// appendKey is an idempotency key of one caller.
type appendKey struct {
	by  paced
	key string
}

// begin registers an append under a request's key until leave is called. If one is in progress
// already, it returns outbox.ErrConflict. Requests without a key never conflict.
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

// requestHash identifies an append by campaign and body.
func requestHash(campaign string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(campaign + "\n")) // no campaign's name contains a line feed
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// append appends once for all requests with the same key; repeated is true for a repeat.
func (s *server) append(r *http.Request, request store.Append, hash string) (done []store.Appended, repeated bool, err error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		done, err = s.Store.Append(r.Context(), request)
		return done, false, err
	}
	return s.Store.AppendOnce(r.Context(), request, store.AppendKey{By: me(r), Key: key, Request: hash})
}
