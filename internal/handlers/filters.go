package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/request"
)

// paging holds the query parameters of every list.
type paging struct {
	Cursor string `json:"cursor" validate:"text,maxbytes=2000"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit  *int   `json:"limit" validate:"omitnil,pagesize" api:"default=DefaultPage"`
}

func (p paging) limit() int {
	if p.Limit == nil {
		return 0
	}
	return *p.Limit
}

// rowFilter reads the row filter of a request. A text is searched in errors as displayed.
func (s *server) rowFilter(r *http.Request) (f outbox.RowFilter, err error) {
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
	return !outbox.Absolute(q.Get("since")) || !outbox.Absolute(q.Get("until"))
}

// eventsQuery pages through a campaign's events: after_seq and the cursor are the same number, and
// the cursor takes precedence.
type eventsQuery struct {
	AfterSeq int64  `json:"after_seq" validate:"min=0"`
	Cursor   *int64 `json:"cursor" validate:"omitnil,min=0"` // next_cursor of the preceding page, with the same filter
	Limit    *int   `json:"limit" validate:"omitnil,pagesize" api:"default=DefaultPage"`
}

func (q eventsQuery) after() int64 {
	if q.Cursor != nil {
		return *q.Cursor
	}
	return q.AfterSeq
}

func (q eventsQuery) limit() int { return paging{Limit: q.Limit}.limit() }

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
		return q, outbox.Invalid("timeout", "timeout must be at most %s", longestWait)
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

// expected is the state that the caller saw.
type expected struct {
	Status       string     `json:"status" validate:"omitempty,status"`
	AttemptCount *int       `json:"attempt_count" validate:"omitnil,min=0"`
	HeadSeq      int64      `json:"head_seq" validate:"min=0"`
	UpdatedAt    *time.Time `json:"updated_at"` // the row's: another one is a conflict, also with the same status and attempts
}

// actionBody is the body of every action of the API.
type actionBody struct {
	Reason   string    `json:"reason" validate:"reason"`
	Expected *expected `json:"expected"`
}

// confirmedBody is the body of actions on a row that may require a phrase.
type confirmedBody struct {
	actionBody
	// required when more than 1,000 rows are released: the phrase release N rows, with N from the
	// row's blocked_behind
	Confirm string `json:"confirm" validate:"phrase"`
}

// requeueBody selects the rows to requeue, or to retry.
type requeueBody struct {
	CampaignID  string `json:"campaign_id" validate:"id"`
	EventType   string `json:"event_type" validate:"id"`
	Fingerprint string `json:"fingerprint" validate:"fingerprint"`
	Limit       *int   `json:"limit" validate:"omitnil,requeued" api:"default=DefaultRequeue"`
	Reason      string `json:"reason" validate:"reason"`
}

// requeueDeadBody selects the dead rows to requeue, which may require a phrase.
type requeueDeadBody struct {
	requeueBody
	Confirm string `json:"confirm" validate:"phrase"` // required when more than 1,000 rows are requeued or released: the phrase requeue N rows
}

func (b requeueBody) filter() outbox.RequeueFilter {
	f := outbox.RequeueFilter{CampaignID: b.CampaignID, EventType: b.EventType, Fingerprint: b.Fingerprint}
	if b.Limit != nil {
		f.Limit = *b.Limit
	}
	return f
}

// actionForm is actionBody as the pages send it.
type actionForm struct {
	Reason        string `json:"reason" validate:"reason"`
	Confirm       string `json:"confirm" validate:"phrase"`
	Status        string `json:"expected_status" validate:"omitempty,status"`
	AttemptCount  *int   `json:"expected_attempt_count" validate:"omitnil,min=0"`
	HeadSeq       int64  `json:"expected_head_seq" validate:"min=0"`
	UpdatedMicros int64  `json:"expected_updated_micros" validate:"min=0"`
	ReturnTo      string `json:"return_to" validate:"omitempty,oneof=overview campaign row"`
}

// command returns the command for a store method.
func (s *server) command(r *http.Request, via, reason string, seen *expected) outbox.Command {
	o := outbox.Command{
		By:             me(r).Operator(via, remoteHost(r)),
		Reason:         reason,
		RequestID:      requestID(r),
		IdempotencyKey: idempotencyKey(r),
		Confirm:        r.PostForm.Get("confirm"),
	}
	if seen != nil {
		o.Expected = &outbox.Expected{Status: outbox.Status(seen.Status), AttemptCount: seen.AttemptCount, HeadSeq: seen.HeadSeq, UpdatedAt: seen.UpdatedAt}
	}
	if a := attemptOf(r); a != nil {
		a.order = &o
	}
	return o
}

// decodeCommand decodes the body of an action of the API.
func (s *server) decodeCommand(r *http.Request) (outbox.Command, error) {
	var body actionBody
	if err := decode(r, &body); err != nil {
		return outbox.Command{}, err
	}
	return s.command(r, "api", body.Reason, body.Expected), nil
}

// decodeConfirmed is decodeCommand for an action that may require a phrase.
func (s *server) decodeConfirmed(r *http.Request) (outbox.Command, error) {
	var body confirmedBody
	if err := decode(r, &body); err != nil {
		return outbox.Command{}, err
	}
	o := s.command(r, "api", body.Reason, body.Expected)
	o.Confirm = body.Confirm
	return o, nil
}
