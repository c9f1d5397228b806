package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/store"
)

// appendKey is an idempotency key of one caller.
type appendKey struct {
	by  admission.Caller
	key string
}

// enterAppend registers an append under a request's key until leave is called. If one is in progress
// already, it returns event.ErrConflict. Requests without a key never conflict.
func (m rooms) enterAppend(r *http.Request) (leave func(), err error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return func() {}, nil
	}
	leave, ok := m.appending.Enter(appendKey{admission.CallerOf(me(r)), key})
	if !ok {
		return nil, event.Conflict("an append with this Idempotency-Key is in progress; retry in a moment to get its result")
	}
	return leave, nil
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
