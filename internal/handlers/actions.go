package handlers

import (
	"cmp"
	"context"
	"net/http"
	"reflect"

	"github.com/outboxweb/outboxweb/internal/actions"
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

// routeActions adds the routes of the actions that are bound to a use case: the API's, and the form's of
// those whose object has a page.
func (s *server) routeActions() {
	features := &actions.Features{Queue: s.Queue, Maintenance: s.maintenance, Operations: s.Operations, Runs: s.Runs, Tokens: s.Tokens, Publishers: s.Publishers,
		Intake: s.Intake, Alerts: s.Alerts, Facts: s.Facts, Projections: s.Projections, ViewCampaign: s.viewChanged, TestPublisher: s.testPublisher}
	for _, action := range actions.All {
		on, asked := action.New().Fields()
		s.apiAction(action.Action, func(w http.ResponseWriter, r *http.Request) error {
			_, result, err := s.perform(r, "api", decode, action, features)
			if err != nil {
				return err
			}
			return s.writeJSON(w, http.StatusOK, result)
		}, endpoint{body: asks(reflect.TypeOf(asked).Elem()), answers: givesOf(action.Result, cmp.Or(action.Answer, "done and audited"))})
		if _, pageless := on.(*actions.Nothing); pageless {
			continue
		}
		s.formAction(action.Action, func(w http.ResponseWriter, r *http.Request) error {
			page, _, err := s.perform(r, "page", fillForm, action, features)
			if err != nil {
				return err
			}
			to, err := s.after(r, page)
			if err != nil {
				return err
			}
			return s.done(w, r, to)
		})
	}
}

// perform reads what an action is on and what it is asked for with, and performs it. It also returns the
// page of what it is on.
func (s *server) perform(r *http.Request, via string, read func(*http.Request, any) error, action actions.Action, features *actions.Features) (page ui.URL, result any, err error) {
	call := action.New()
	on, asked := call.Fields()
	if page, err = s.readObject(r, on); err == nil {
		err = read(r, asked)
	}
	if err == nil {
		result, err = call.Do(r.Context(), features, s.command(r, via, asked))
	}
	return page, result, err
}

// readObject reads what an action is on from the address of its route, and returns the page of that.
func (s *server) readObject(r *http.Request, on any) (page ui.URL, err error) {
	l := s.linksOf(r)
	switch on := on.(type) {
	case *actions.Moment:
		page = l.Charts()
	case *actions.Wrong:
		page = l.Overview()
	case *actions.Row:
		var row event.RowKey
		row, err = rowParam(r)
		on.CampaignID, on.Seq, page = row.CampaignID, actions.Seq(row.Seq), l.Event(row.CampaignID, row.Seq)
	case *actions.Campaign:
		on.ID, err = campaignParam(r)
		page = l.Campaign(on.ID)
	case *actions.Projection:
		on.Name, err = param(r, "name")
		page = l.Projection(on.Name)
	case *actions.Publisher:
		on.Name.SubscriptionName, err = subscriptionParam(r)
		page = l.Publisher(on.Name.SubscriptionName)
	case *actions.Publishers:
		on.Name, err = param(r, "publisher")
		page = l.Publishers()
	case *actions.Operation:
		on.ID, err = operationParam(r)
		page = l.OperationOf(on.ID)
	case *actions.Run:
		on.ID, err = runParam(r)
		page = l.RunOf(on.ID)
	case *actions.Token:
		on.ID, err = tokenParam(r)
		page = l.Tokens()
	case *actions.Source:
		on.Name, err = param(r, "source")
		page = l.SourceOf(on.Name)
	case *inbound.RejectionKey:
		*on, err = rejectionParam(r)
		page = l.SourceOf(on.Source)
	case *actions.Rule:
		on.Name, err = param(r, "rule")
		page = l.Alerts()
	case *actions.Receiver:
		on.Name, err = param(r, "receiver")
		page = l.Alerts()
	case *actions.ErrorGroup: // which a form names, as the body of the API does
		on.Fingerprint = r.PostForm.Get("fingerprint")
		page = l.FailureGroup(on.Fingerprint)
	}
	return page, err
}

// viewChanged is how an action answers with the campaign that it changed.
func (s *server) viewChanged(ctx context.Context, c campaign.Campaign) campaignView {
	return s.viewCampaign(c, s.around(ctx))
}

// starter starts work that goes on after the answer, which is asked for with a B.
type starter[B, R any] struct {
	form  func(*http.Request) (B, error) // reads a page's form
	start func(context.Context, operator.Command, B) (R, error)
	// page and api are where the work is shown.
	page, api func(ui.Links, R) ui.URL
}

// addStart registers an action that starts work for both a page's form and the API.
func addStart[B, R any](s *server, action operator.Action, work starter[B, R]) {
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
	}, endpoint{body: takes[B](), answers: starts[R]()})
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
