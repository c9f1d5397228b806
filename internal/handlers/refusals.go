package handlers

import (
	"context"
	"errors"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
)

// attempt is the action that a request asks for, recorded if it is refused.
type attempt struct {
	action   operator.Action
	order    *operator.Command // nil until the request is parsed
	question bool              // a preview, which changes nothing
	recorded bool              // the refusal has an audit record
}

type attemptKey struct{}

// attempting marks a request as asking for an audited action.
func attempting(ctx context.Context, action operator.Action) context.Context {
	if !action.Audited() {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, &attempt{action: action})
}

// attemptOf returns the action that a request asks for; nil without one.
func attemptOf(r *http.Request) *attempt {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	return a
}

// onlyAsks marks a request to an action's address as changing nothing.
func onlyAsks(r *http.Request) {
	if a := attemptOf(r); a != nil {
		a.question = true
	}
}

// isRefused reports whether a status means that an action was refused, as opposed to an
// unauthenticated, rate-limited or failed request.
func isRefused(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests
}

// recordRefusal records a refused action if the actor is known and the store has not recorded it. A
// failure to record is logged and does not change the answer; the store sums up repeated refusals
// of one actor.
func (s *server) recordRefusal(r *http.Request, p problem, err error) {
	a := attemptOf(r)
	if a == nil || a.question || a.recorded || !isRefused(p.Status) {
		return
	}
	a.recorded = true
	if refusal, ok := errors.AsType[*event.Refusal](err); ok && refusal.AuditEntryID != 0 {
		return
	}
	if s.ReadOnly {
		s.Logger.Info("action refused", "action", a.action, "actor", me(r).Name, "from", auth.Peer(r), operator.RequestIDs(r.Context()), "why", p.Detail)
		return
	}
	refused := refusedAction(r, a.action)
	refused.Refusal = p.Detail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), store.DoneTime) // also if the client has disconnected
	defer cancel()
	if _, err := s.Store.RecordRefusal(ctx, s.refusedCommand(r, a), refused); err != nil {
		s.Logger.Warn("a refused action could not be recorded", "action", a.action, operator.RequestIDs(r.Context()), "err", err)
	}
}

// refusedCommand returns the request's command, as far as it was parsed.
func (s *server) refusedCommand(r *http.Request, a *attempt) operator.Command {
	if a.order != nil {
		return *a.order
	}
	via := "page"
	if s.wantsJSON(r) {
		via = "api"
	}
	return operator.Command{By: me(r).Operator(via, auth.Peer(r)), Reason: r.PostForm.Get("reason"), RequestID: requestID(r)}
}

// refusedAction returns the object that the address names, without invalid parts.
func refusedAction(r *http.Request, action operator.Action) operator.RefusedAction {
	refused := operator.RefusedAction{Action: action}
	text := func(name string) string {
		value, _ := param(r, name)
		return value
	}
	number := func(name string) int64 {
		n, _ := numberParam(name, "")(r)
		return n
	}
	refused.CampaignID, refused.Seq = text("campaign"), number("seq")
	switch {
	case number("run") > 0:
		refused.Target = operator.RunTarget(number("run"))
	case number("operation") > 0:
		refused.Target = operator.OperationTarget(number("operation"))
	case number("token") > 0:
		refused.Target = operator.TokenTarget(number("token"))
	case text("name") != "":
		refused.Target = operator.ProjectionTarget(text("name"))
	case text("source") != "":
		refused.Target = operator.IntakeTarget(text("source"))
	case text("rule") != "":
		refused.Target = operator.AlertTarget(text("rule"))
	case text("receiver") != "":
		refused.Target = operator.AlertReceiverTarget(text("receiver"))
	case text("topic") != "" && text("publisher") != "":
		refused.Target = operator.PublisherTarget(operator.SubscriptionName{Topic: text("topic"), Publisher: text("publisher")})
	case text("publisher") != "":
		refused.Target = operator.PublishersTarget(text("publisher"))
	}
	return refused
}
