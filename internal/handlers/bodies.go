package handlers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"outboxweb/internal/outbox"
)

// How large bodies share memory, and how long they may take to arrive.
const (
	smallBody     = 256 << 10         // bytes: these are read without asking for room
	bodyRoom      = 2 * maxAppendBody // bytes of larger ones at a time
	bodiesWaiting = 32                // requests that wait for room; more are put off at once
	bodyStep      = 1 << 20           // bytes of a body with room that arrive within bodyPace
	bodyPace      = 2 * time.Second
)

// bodies is the memory that large bodies share. It is safe for concurrent use.
type bodies struct {
	room    *semaphore.Weighted // bytes
	waiting atomic.Int64
}

func newBodies() *bodies { return &bodies{room: semaphore.NewWeighted(bodyRoom)} }

// read reads the body that jsonBody has limited. A large one waits for room
// first, which leave gives back once nothing of the body is needed any more. No
// room in time is outbox.ErrBusy.
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
		body, err = readOn(w, r, append(make([]byte, 0, size+1), body...)) // and its end
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

// acquire waits for room for so many bytes.
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

// readOn reads the rest of a body into what is there of it, as long as it
// arrives at a pace: a client that sends slowly holds up others.
func readOn(w http.ResponseWriter, r *http.Request, body []byte) ([]byte, error) {
	conn := http.NewResponseController(w)
	for next := 0; ; {
		if len(body) >= next {
			next = len(body) + bodyStep
			_ = conn.SetReadDeadline(time.Now().Add(bodyPace)) // where there is no connection there is no pace
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
