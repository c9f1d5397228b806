package handlers

import (
	"cmp"
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// target is what actions are about: an address names it, and after a form its page is shown.
type target[K any] struct {
	of   func(*http.Request) (K, error)
	page func(ui.Links, K) ui.URL
}

// actionCall performs an action that is asked for with a B, for pages and the API alike.
type actionCall[B, K, R any] func(context.Context, operator.Command, K, B) (R, error)

// addAction registers an action for both a page's form and the API. The API answers with the call's
// result; e adds to its description.
func addAction[B, K, R any](s *server, action operator.Action, on target[K], do actionCall[B, K, R], e endpoint) {
	s.formAction(action, func(w http.ResponseWriter, r *http.Request) error {
		about, _, err := perform(s, r, "page", fillForm, on.of, do)
		if err != nil {
			return err
		}
		to, err := s.after(r, on.page(s.linksOf(r), about))
		if err != nil {
			return err
		}
		return s.done(w, r, to)
	})
	addAPIAction(s, action, on.of, do, e)
}

// starter starts work that goes on after the answer, which is asked for with a B.
type starter[B, R any] struct {
	form  func(*http.Request) (B, error) // reads a page's form
	start func(context.Context, operator.Command, B) (R, error)
	// page and api are where the work is shown.
	page, api func(ui.Links, R) ui.URL
}

// addStart registers an action that starts work for both a page's form and the API.
func addStart[B, R any](s *server, action operator.Action, work starter[B, R], e endpoint) {
	s.formAction(action, func(w http.ResponseWriter, r *http.Request) error {
		asked, err := work.form(r)
		if err != nil {
			return err
		}
		started, err := work.start(r.Context(), s.command(r, "page", asked), asked)
		if err != nil {
			return err
		}
		return s.done(w, r, work.page(s.linksOf(r), started))
	})
	e.body, e.answers = takes[B](), starts[R]()
	s.apiAction(action, func(w http.ResponseWriter, r *http.Request) error {
		var asked B
		if err := decode(r, &asked); err != nil {
			return err
		}
		started, err := work.start(r.Context(), s.command(r, "api", asked), asked)
		if err != nil {
			return err
		}
		w.Header().Set("Location", string(work.api(s.linksOf(r).API(), started)))
		return s.writeJSON(w, http.StatusAccepted, started)
	}, e)
}

// Where what was started is shown.
func operationStarted(l ui.Links, o operations.Operation) ui.URL {
	return l.OperationOf(o.ID)
}
func runStarted(l ui.Links, r replay.Run) ui.URL { return l.RunOf(r.ID) }

// rehearsalStarted is a rehearsal, or the run that compares all campaigns.
func rehearsalStarted(l ui.Links, r replay.Run) ui.URL {
	if r.Kind != replay.RunRehearse {
		return l.RunOf(r.ID)
	}
	return l.Rehearsal(r.ID)
}

// addAPIAction is addAction for an action whose form is not the API's.
func addAPIAction[B, K, R any](s *server, action operator.Action, of func(*http.Request) (K, error), do actionCall[B, K, R], e endpoint) {
	if e.answers == nil {
		e.answers = gives[R]("done and audited")
	}
	if e.body.types == nil {
		e.body = asks[B]()
	}
	s.apiAction(action, func(w http.ResponseWriter, r *http.Request) error {
		_, result, err := perform(s, r, "api", decode, of, do)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, result)
	}, e)
}

// perform reads what an action is about and what it is asked for with, and performs it.
func perform[B, K, R any](s *server, r *http.Request, via string, read func(*http.Request, any) error, of func(*http.Request) (K, error), do actionCall[B, K, R]) (about K, result R, err error) {
	if about, err = of(r); err != nil {
		return about, result, err
	}
	var asked B
	if err = read(r, &asked); err == nil {
		result, err = do(r.Context(), s.command(r, via, asked), about, asked)
	}
	return about, result, err
}

// with adapts a call that needs no more than the command, which has what it is asked for with.
func with[B, K, R any](do func(context.Context, operator.Command, K) (R, error)) actionCall[B, K, R] {
	return func(ctx context.Context, o operator.Command, about K, _ B) (R, error) { return do(ctx, o, about) }
}

// command returns the command for a store method that a request asks for.
func (s *server) command(r *http.Request, via string, asked any) operator.Command {
	o := request.Command(asked, me(r).Operator(via, auth.Peer(r)))
	o.RequestID, o.IdempotencyKey = requestID(r), idempotencyKey(r)
	if a := attemptOf(r); a != nil {
		a.order = &o
	}
	return o
}

// afterForm is the page that a form asks for afterwards.
type afterForm struct {
	ReturnTo   string `json:"return_to" validate:"omitempty,oneof=overview campaign row"`
	CampaignID string `json:"campaign_id"`
}

// after is the page to show after a form: the object's own, unless the form was on another.
func (s *server) after(r *http.Request, own ui.URL) (ui.URL, error) {
	var form afterForm
	err := fillForm(r, &form)
	switch id, _ := campaignParam(r); form.ReturnTo {
	case "overview":
		return s.linksOf(r).Overview(), err
	case "campaign":
		return s.linksOf(r).Campaign(cmp.Or(id, form.CampaignID)), err
	}
	return own, err
}

func fillForm(r *http.Request, form any) error { return fill(form, r.PostForm) }

// What actions are about.
var (
	onRows           = target[event.RowKey]{rowParam, func(l ui.Links, row event.RowKey) ui.URL { return l.Event(row.CampaignID, row.Seq) }}
	onCampaigns      = target[string]{campaignParam, ui.Links.Campaign}
	onTokens         = target[int64]{tokenParam, func(l ui.Links, _ int64) ui.URL { return l.Tokens() }}
	onOperations     = target[int64]{operationParam, ui.Links.OperationOf}
	onRuns           = target[int64]{runParam, ui.Links.RunOf}
	onProjections    = target[string]{pathParam("name"), ui.Links.Projection}
	onPublishers     = target[operator.SubscriptionName]{subscriptionParam, ui.Links.Publisher}
	onPublisherNames = target[string]{pathParam("publisher"), func(l ui.Links, _ string) ui.URL { return l.Publishers() }}
	onErrors         = target[string]{func(r *http.Request) (string, error) { return r.PostForm.Get("fingerprint"), nil }, ui.Links.FailureGroup}
	onSources        = target[string]{pathParam("source"), ui.Links.SourceOf}
	onRejections     = target[inbound.RejectionKey]{rejectionParam, func(l ui.Links, row inbound.RejectionKey) ui.URL { return l.SourceOf(row.Source) }}
	nothing          = func(*http.Request) (none struct{}, err error) { return none, nil }
)

// onAlerts is the rule or the receiver that an address names.
func onAlerts(name string) target[string] {
	return target[string]{pathParam(name), func(l ui.Links, _ string) ui.URL { return l.Alerts() }}
}

// onRow adapts an action of the store on a row to one on its key.
func onRow[B, R any](do func(ctx context.Context, o operator.Command, campaign string, seq int64) (R, error)) actionCall[B, event.RowKey, R] {
	return func(ctx context.Context, o operator.Command, row event.RowKey, _ B) (R, error) {
		return do(ctx, o, row.CampaignID, row.Seq)
	}
}

// viewed makes an action on a campaign answer with the changed campaign.
func (s *server) viewed(act func(context.Context, operator.Command, string) (campaign.Campaign, error)) actionCall[operator.ActionRequest, string, campaignView] {
	return func(ctx context.Context, o operator.Command, id string, _ operator.ActionRequest) (campaignView, error) {
		c, err := act(ctx, o, id)
		if err != nil {
			return campaignView{}, err
		}
		return s.viewCampaign(c, s.around(ctx)), nil
	}
}
