package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/request"
)

// paging holds the query parameters of every list.
type paging struct {
	Cursor string `json:"cursor" validate:"cursor"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit  int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// rowFilter reads the row filter of a request. A text is searched in errors as displayed.
func (s *server) rowFilter(r *http.Request) (f campaign.RowFilter, err error) {
	err = fill(&f, r.URL.Query())
	f.Shown = s.Redact
	return f, err
}

// filter reads the filter of a request, whose times may be relative.
func filter[F any](s *server) func(*http.Request) (F, error) {
	return func(r *http.Request) (f F, err error) {
		err = request.Fill(&f, r.URL.Query(), s.Now())
		return f, err
	}
}

// relativeTimes reports whether a time of a request's range depends on when it is read.
func relativeTimes(r *http.Request) bool {
	q := r.URL.Query()
	return !event.Absolute(q.Get("since")) || !event.Absolute(q.Get("until"))
}

// eventsQuery pages through a campaign's events: after_seq and the cursor are the same number, and
// the cursor takes precedence.
type eventsQuery struct {
	AfterSeq int64  `json:"after_seq" validate:"min=0"`
	Cursor   *int64 `json:"cursor" validate:"omitnil,min=0"` // next_cursor of the preceding page, with the same filter
	Limit    int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

func (q eventsQuery) after() int64 {
	if q.Cursor != nil {
		return *q.Cursor
	}
	return q.AfterSeq
}

// longestWait bounds how long a request may wait for the projections.
const (
	longestWait = 30 * time.Second
	defaultWait = 2 * time.Second
)

// waitQuery requests that the answer waits until the projections have applied a seq.
type waitQuery struct {
	MinSeq  int64         `json:"min_seq" validate:"min=0"`
	Wait    string        `json:"wait" validate:"omitempty,oneof=applied"` // answer once the projections have applied the events
	Timeout time.Duration `json:"timeout" api:"default=2s"`                // a duration such as 500ms or 2s, at most 30s
}

func readWait(r *http.Request) (waitQuery, error) {
	var q waitQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return q, err
	}
	if q.Timeout == 0 {
		q.Timeout = defaultWait
	}
	if q.Timeout > longestWait {
		return q, event.Invalid("timeout", "timeout must be at most %s", longestWait)
	}
	return q, nil
}

// limited returns a context for the wait: it ends with its timeout, or when the server begins to
// shut down.
func (s *server) limited(ctx context.Context, wait waitQuery) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, wait.Timeout)
	go func() {
		select {
		case <-s.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
