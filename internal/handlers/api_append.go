package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/appendbody"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
)

// appendAnswer is the answer to an append of one event.
type appendAnswer struct {
	store.Appended
	applied
}

// batchAnswer is the answer to an append of several events.
type batchAnswer struct {
	Events []store.Appended `json:"events"`
	applied
}

// applied reports the progress of the projections, if the append waited for them.
type applied struct {
	AppliedSeq *int64 `json:"applied_seq,omitempty"` // with wait=applied
	// in inline mode: why the appended events are not applied yet. They are queued and workers will
	// apply them; appending them again changes nothing
	ApplyError string `json:"apply_error,omitempty"`
}

// appendedLate is a wait that timed out, with the events that were appended nonetheless.
type appendedLate struct {
	error
	appended []store.Appended
}

func (e *appendedLate) Unwrap() error { return e.error }

// apiAppend appends one event or a batch. Events stay in the journal even if applying them fails;
// only waiting can fail after that.
func (s *server) apiAppend(w http.ResponseWriter, r *http.Request) error {
	campaign, err := campaignParam(r)
	if err != nil {
		return err
	}
	wait, err := readWait(r)
	if err != nil {
		return err
	}
	if wait.Wait != "" { // before anything is appended
		leave, err := s.enterWait(r)
		if err != nil {
			return err
		}
		defer leave()
	}
	lineage := s.Store.Lineage()
	done, batch, err := s.appendBody(w, r, campaign)
	if err != nil {
		return err
	}
	progress, err := s.afterAppend(r, lineage, campaign, done, wait)
	if err != nil {
		return err
	}
	status := http.StatusOK
	for _, a := range done {
		if !a.Existed {
			status = http.StatusCreated
		}
	}
	if batch {
		return s.writeJSON(w, status, batchAnswer{Events: done, applied: progress})
	}
	return s.writeJSON(w, status, appendAnswer{Appended: done[0], applied: progress})
}

// appendBody appends the events of the body. It holds memory for a large body until it returns.
func (s *server) appendBody(w http.ResponseWriter, r *http.Request, campaign string) (done []store.Appended, batch bool, err error) {
	end, err := s.enterAppend(r)
	if err != nil {
		return nil, false, err
	}
	defer end()
	body, leave, err := s.readBody(w, r)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	request, batch, err := appendbody.Parse(campaign, body, s.MaxPayload, s.MaxAppendEvents)
	if err != nil {
		return nil, batch, err
	}
	done, repeated, err := s.append(r, request, requestHash(campaign, body))
	if repeated {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if batch {
		err = appendbody.InBatch(err)
	}
	return done, batch, err
}

// afterAppend applies the events in inline mode, and waits for the projections on request.
func (s *server) afterAppend(r *http.Request, lineage int64, campaign string, done []store.Appended, wait waitQuery) (applied, error) {
	var result applied
	if s.InlineApply != nil {
		if err := s.InlineApply(context.WithoutCancel(r.Context()), campaign); err != nil {
			result.ApplyError = s.inlineText(r, err)
		}
	}
	if wait.Wait == "" {
		return result, nil
	}
	var last int64
	for _, a := range done {
		last = max(last, a.Seq)
	}
	ctx, cancel := s.limited(r.Context(), wait)
	defer cancel()
	seq, err := s.Store.WaitAppliedSince(ctx, lineage, campaign, last)
	if errors.Is(err, event.ErrNotYet) {
		return result, late(err, done)
	}
	result.AppliedSeq = &seq
	return result, err
}

// inlineText returns the part of an inline apply failure that a writer may see; the rest is logged.
func (s *server) inlineText(r *http.Request, err error) string {
	if refusal, ok := errors.AsType[*event.Refusal](err); ok {
		return refusal.Detail
	}
	s.Logger.Error("apply inline", "path", r.URL.Path, operator.RequestIDs(r.Context()), "err", err)
	return "applying failed; see the server's log for request " + requestID(r)
}

func late(err error, done []store.Appended) error {
	what := fmt.Sprintf("the event is appended as seq %d", done[0].Seq)
	if len(done) > 1 {
		what = fmt.Sprintf("the %d events are appended up to seq %d", len(done), done[len(done)-1].Seq)
	}
	return &appendedLate{appended: done, error: &event.Refusal{Err: event.ErrNotYet, Detail: what + ", but " + personText(err)}}
}

// journalView is the state of the journal for writers.
type journalView struct {
	Position int64 `json:"position"` // 0 when the journal is empty
}

// readJournal returns the current position. A writer reads it before the data that its conditional
// append depends on.
func (s *server) readJournal(r *http.Request) (journalView, error) {
	position, err := s.Store.Position(r.Context())
	return journalView{position}, err
}
