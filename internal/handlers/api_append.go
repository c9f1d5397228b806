package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
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

// applied tells how far the projections are, when the append waited for them.
type applied struct {
	AppliedSeq *int64 `json:"applied_seq,omitempty"`
	// ApplyError says why the events, though appended, are not applied yet in
	// inline mode. They have rows, which workers apply; appending the same
	// events again changes nothing.
	ApplyError string `json:"apply_error,omitempty"`
}

// appendedLate is the refusal of a wait that took too long, with what was
// appended all the same.
type appendedLate struct {
	cause    error
	appended []store.Appended
}

func (e *appendedLate) Unwrap() error { return e.cause }

func (e *appendedLate) Error() string { return e.cause.Error() }

// apiAppend appends one event or a batch. Once the journal has the events they
// stay there, whatever becomes of applying them; only waiting can fail then.
func (s *server) apiAppend(w http.ResponseWriter, r *http.Request) error {
	campaign, err := campaignParam(r)
	if err != nil {
		return err
	}
	wait, err := readWait(r)
	if err != nil {
		return err
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	request, batch, err := parseAppend(campaign, body)
	if err != nil {
		return err
	}
	done, err := s.Store.Append(r.Context(), request)
	if err != nil {
		return inBatch(err, batch)
	}
	progress, err := s.afterAppend(r, campaign, done, wait)
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
		return writeJSON(w, status, batchAnswer{Events: done, applied: progress})
	}
	return writeJSON(w, status, appendAnswer{Appended: done[0], applied: progress})
}

// afterAppend applies in inline mode, and waits for the projections when asked to.
func (s *server) afterAppend(r *http.Request, campaign string, done []store.Appended, wait waitQuery) (applied, error) {
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
	seq, err := s.Store.WaitApplied(ctx, campaign, last)
	if errors.Is(err, outbox.ErrNotYet) {
		return result, late(err, done)
	}
	result.AppliedSeq = &seq
	return result, err
}

// inlineText is what a writer may know of a failure to apply inline; the rest
// goes to the log.
func (s *server) inlineText(r *http.Request, err error) string {
	var refusal *outbox.Refusal
	if errors.As(err, &refusal) {
		return s.Redact.Text(refusal.Detail)
	}
	s.Logger.Error("apply inline", "path", r.URL.Path, "request_id", requestID(r), "err", err)
	return "applying failed; the server's log has it under request " + requestID(r)
}

func late(err error, done []store.Appended) error {
	what := fmt.Sprintf("the event is appended as seq %d", done[0].Seq)
	if len(done) > 1 {
		what = fmt.Sprintf("the %d events are appended up to seq %d", len(done), done[len(done)-1].Seq)
	}
	return &appendedLate{appended: done, cause: &outbox.Refusal{Err: outbox.ErrNotYet, Detail: what + ", but " + personText(err)}}
}

// batchBody is the body of an append of several events.
type batchBody struct {
	Events      []json.RawMessage `json:"events"`
	ExpectedSeq *int64            `json:"expected_seq"`
	Condition   json.RawMessage   `json:"condition"`
}

// parseAppend reads an append's body: one event, or a batch when it has a
// field "events". Each event is read as the command line reads its lines, and
// belongs to the campaign of the address.
func parseAppend(campaign string, body []byte) (request store.Append, batch bool, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		_, batch = fields["events"]
	}
	if !batch {
		event, err := parseEvent(campaign, body)
		return store.Append{Events: []outbox.Event{event}}, false, err
	}
	var b batchBody
	if err := strictJSON(body, &b); err != nil {
		return request, true, err
	}
	if b.ExpectedSeq != nil && *b.ExpectedSeq < 0 {
		return request, true, outbox.Invalid("expected_seq", "expected_seq must be 0 or more: the campaign's last seq before the append")
	}
	request.ExpectedSeq = b.ExpectedSeq
	if given := string(b.Condition); given != "" && given != "null" {
		condition, err := outbox.ParseCondition(b.Condition)
		if err != nil {
			return request, true, err
		}
		request.Condition = &condition
	}
	for i, raw := range b.Events {
		event, err := parseEvent(campaign, raw)
		if err != nil {
			var refusal *outbox.Refusal
			if errors.As(err, &refusal) {
				refusal.Index = i
			}
			return request, true, inBatch(err, true)
		}
		request.Events = append(request.Events, event)
	}
	return request, true, nil
}

func parseEvent(campaign string, raw []byte) (outbox.Event, error) {
	event, err := outbox.ParseEvent(raw)
	if err != nil {
		return event, err
	}
	if event.CampaignID == "" {
		event.CampaignID = campaign
	}
	if event.CampaignID != campaign {
		return event, outbox.Invalid("campaign_id", "campaign_id is %q, but the address says %q; leave it out, or make them agree", event.CampaignID, campaign)
	}
	return event, nil
}

// inBatch makes a refusal say which event of a batch it is about.
func inBatch(err error, batch bool) error {
	var refusal *outbox.Refusal
	if !batch || !errors.As(err, &refusal) || refusal.Field == "events" || refusal.Field == "expected_seq" || aboutCondition(refusal) {
		return err
	}
	named := *refusal
	named.Detail = fmt.Sprintf("event %d of the batch: %s", refusal.Index+1, refusal.Detail)
	named.Field = fmt.Sprintf("events[%d]", refusal.Index)
	if refusal.Field != "" {
		named.Field += "." + refusal.Field
	}
	return &named
}

// aboutCondition reports whether a refusal is about the whole append: its
// condition does not hold, or cannot be judged.
func aboutCondition(r *outbox.Refusal) bool {
	return r.InTheWay != nil || strings.HasPrefix(r.Field, "condition")
}

// journalView is the journal as a writer asks for it.
type journalView struct {
	Position int64 `json:"position"`
}

// apiJournal tells the position that a writer takes before reading what a
// conditional append rests on.
func (s *server) apiJournal(w http.ResponseWriter, r *http.Request) error {
	position, err := s.Store.Position(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, journalView{position})
}
