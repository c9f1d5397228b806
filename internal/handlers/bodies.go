package handlers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Memory shared by large bodies, and the time they may take to arrive.
const (
	smallBody     = 256 << 10         // bytes: such bodies are read without reserving memory
	bodyRoom      = 2 * maxAppendBody // bytes of larger bodies in memory at a time
	bodiesWaiting = 32                // requests waiting for memory; further ones are refused at once
	bodyStep      = 1 << 20           // bytes of a large body that must arrive within bodyPace
	bodyPace      = 2 * time.Second
)

// bodies is the memory shared by large bodies. It is safe for concurrent use.
type bodies struct {
	room    *semaphore.Weighted // bytes
	waiting atomic.Int64
}

func newBodies() *bodies { return &bodies{room: semaphore.NewWeighted(bodyRoom)} }

// read reads the body that jsonBody has limited. A large body first waits for memory, which leave
// releases; call it once the body is no longer used. If none is free in time, it returns
// outbox.ErrBusy.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) (body []byte, leave func(), err error) {
	leave = func() {}
	if r.ContentLength > maxAppendBody {
		return nil, nil, bodyError(&http.MaxBytesError{Limit: maxAppendBody})
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if err == nil && len(body) > smallBody {
		size := r.ContentLength
		if size < 0 {
			size = maxAppendBody
		}
		if leave, err = b.acquire(r.Context(), size); err != nil {
			return nil, nil, err
		}
		body, err = readOn(w, r, append(make([]byte, 0, size+1), body...)) // one more byte to see the end
	}
	if err != nil {
		err = bodyError(err)
	} else {
		err = checkBody(body)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return body, leave, nil
}

// acquire waits until size bytes are free.
func (b *bodies) acquire(ctx context.Context, size int64) (leave func(), err error) {
	defer b.waiting.Add(-1)
	if b.waiting.Add(1) > bodiesWaiting {
		return nil, errFull()
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if b.room.Acquire(ctx, size) != nil {
		return nil, errFull()
	}
	return func() { b.room.Release(size) }, nil
}

func errFull() error {
	return &outbox.Refusal{Err: outbox.ErrBusy, Detail: "too many large appends are in progress; nothing was appended. Try again in a moment"}
}

// readOn reads the rest of a body, appending to body. It enforces a minimum rate, because a slow
// client holds up others.
func readOn(w http.ResponseWriter, r *http.Request, body []byte) ([]byte, error) {
	conn := http.NewResponseController(w)
	for next := 0; ; {
		if len(body) >= next {
			next = len(body) + bodyStep
			_ = conn.SetReadDeadline(time.Now().Add(bodyPace)) // without a connection, as in tests, no rate applies
		}
		n, err := r.Body.Read(body[len(body):min(next, cap(body))])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			_ = conn.SetReadDeadline(time.Time{})
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
