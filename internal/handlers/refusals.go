package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"outboxweb/internal/outbox"
)

// attempt is the action that a request asks for, as it is recorded when it is
// refused.
type attempt struct {
	action   outbox.Action
	order    *outbox.Command // nil until the request was read
	question bool            // it asks what the action would do, and changes nothing
	recorded bool            // its refusal
}

type attemptKey struct{}

// attempting notes that a request asks for an action that leaves a record.
func attempting(ctx context.Context, action outbox.Action) context.Context {
	if !action.Audited() {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, &attempt{action: action})
}

// attemptOf is the action that a request asks for; nil when it asks for none.
func attemptOf(r *http.Request) *attempt {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	return a
}

// onlyAsks notes that a request to the address of an action changes nothing.
func onlyAsks(r *http.Request) {
	if a := attemptOf(r); a != nil {
		a.question = true
	}
}

// refusalAction is the audit record that a refusal left already; 0 when there is
// none.
func refusalAction(err error) int64 {
	var refusal *outbox.Refusal
	if errors.As(err, &refusal) {
		return refusal.AuditEntryID
	}
	return 0
}

// isRefused reports whether an answer says that an action was refused, and not that
// nobody knows who asks, that it comes too soon, or that it could not be done.
func isRefused(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests
}

// recordRefusal records an action that is refused by an answer, where it is known
// who asked for it and the store has not recorded it. What cannot be recorded is
// logged and answered all the same; the store sums up what somebody is refused
// again and again.
func (s *server) recordRefusal(r *http.Request, p problem, err error) {
	a := attemptOf(r)
	if a == nil || a.question || a.recorded || !isRefused(p.Status) {
		return
	}
	a.recorded = true
	if refusalAction(err) != 0 {
		return
	}
	if s.ReadOnly {
		s.Logger.Info("action refused", "action", a.action, "actor", me(r).Name, "from", remoteHost(r), "request_id", requestID(r), "why", p.Detail)
		return
	}
	refused := refusedAction(r, a.action)
	refused.Refusal = p.Detail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTime) // also of who did not wait for the answer
	defer cancel()
	if _, err := s.Store.RecordRefusal(ctx, s.refusedCommand(r, a), refused); err != nil {
		s.Logger.Warn("a refused action could not be recorded", "action", a.action, "request_id", requestID(r), "err", err)
	}
}

// refusedCommand is what the request ordered, as far as it was read.
func (s *server) refusedCommand(r *http.Request, a *attempt) outbox.Command {
	if a.order != nil {
		return *a.order
	}
	via := "page"
	if s.wantsJSON(r) {
		via = "api"
	}
	return outbox.Command{By: me(r).Operator(via, remoteHost(r)), Reason: r.PostForm.Get("reason"), RequestID: requestID(r)}
}

// refusedAction is what the address names; what it does not name well is left out.
func refusedAction(r *http.Request, action outbox.Action) outbox.RefusedAction {
	refused := outbox.RefusedAction{Action: action}
	text := func(name string) string {
		value, err := param(r, name)
		if err != nil {
			return ""
		}
		return value
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(text(name), 10, 64)
		if err != nil || n < 1 {
			return 0
		}
		return n
	}
	refused.CampaignID, refused.Seq = text("campaign"), number("seq")
	switch {
	case number("run") > 0:
		refused.Target = outbox.RunTarget(number("run"))
	case number("operation") > 0:
		refused.Target = outbox.OperationTarget(number("operation"))
	case number("token") > 0:
		refused.Target = outbox.TokenTarget(number("token"))
	case text("name") != "":
		refused.Target = outbox.ProjectionTarget(text("name"))
	case text("topic") != "" && text("publisher") != "":
		refused.Target = outbox.PublisherTarget(outbox.SubscriptionName{Topic: text("topic"), Publisher: text("publisher")})
	}
	return refused
}
