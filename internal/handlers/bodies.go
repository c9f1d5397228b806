package handlers

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Bodies that need no room in memory, and the time that larger ones may take to arrive.
const (
	smallBody = 256 << 10 // bytes
	bodyStep  = 1 << 20   // bytes of a large body that must arrive within bodyPace
	bodyPace  = 2 * time.Second
)

// readBody reads the body that jsonBody has limited. A large body first waits for memory, which leave
// releases; call it once the body is no longer used. If none is free in time, it returns
// event.ErrBusy.
func (m rooms) readBody(w http.ResponseWriter, r *http.Request) (body []byte, leave func(), err error) {
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
		if leave, err = m.bodies.Enter(r.Context(), size); err != nil {
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
