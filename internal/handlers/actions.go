package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// actionRequest is a requested action on a K.
type actionRequest[K any] struct {
	on    K // the object of the action
	order outbox.Command
	shown templates.URL // for a page's form: the page to show afterwards
}

// actionReader reads actions on a K from forms and API requests.
type actionReader[K any] struct {
	form, body func(*http.Request) (actionRequest[K], error)
}

// actionCall performs an action, for pages and the API alike.
type actionCall[K, R any] func(context.Context, outbox.Command, K) (R, error)

// addAction registers an action for both a page's form and the API. The API answers with the call's
// result; e adds to its description.
func addAction[K, R any](s *server, action outbox.Action, reads actionReader[K], do actionCall[K, R], e endpoint) {
	if e.answers == nil {
		e.answers = gives[R]("done and audited")
	}
	s.formAction(action, actionByForm(s, reads.form, do))
	s.apiAction(action, actionByBody(s, reads.body, do), e)
}

// actionByBody handles an action of the API and answers with the call's result.
func actionByBody[K, R any](s *server, read func(*http.Request) (actionRequest[K], error), do actionCall[K, R]) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		a, err := read(r)
		if err != nil {
			return err
		}
		result, err := do(r.Context(), a.order, a.on)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, result)
	}
}

func actionByForm[K, R any](s *server, read func(*http.Request) (actionRequest[K], error), do actionCall[K, R]) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		a, err := read(r)
		if err != nil {
			return err
		}
		if _, err := do(r.Context(), a.order, a.on); err != nil {
			return err
		}
		return s.done(w, r, a.shown)
	}
}

// onRow adapts an action of the store on a row to one on its key.
func onRow[R any](do func(ctx context.Context, o outbox.Command, campaign string, seq int64) (R, error)) actionCall[outbox.RowKey, R] {
	return func(ctx context.Context, o outbox.Command, row outbox.RowKey) (R, error) {
		return do(ctx, o, row.CampaignID, row.Seq)
	}
}

// readRowAction reads actions on a row or an event; decode reads the body.
func (s *server) readRowAction(decode func(*http.Request) (outbox.Command, error)) actionReader[outbox.RowKey] {
	return readAction(s, rowParam, decode, func(l templates.Links, row outbox.RowKey) (own, campaign templates.URL) {
		return l.Event(row.CampaignID, row.Seq), l.Campaign(row.CampaignID)
	})
}

func (s *server) readCampaignAction() actionReader[string] {
	return readAction(s, campaignParam, s.decodeCommand, func(l templates.Links, id string) (own, campaign templates.URL) {
		return l.Campaign(id), l.Campaign(id)
	})
}

func (s *server) readTokenAction() actionReader[int64] {
	return readAction(s, tokenParam, s.decodeCommand, func(l templates.Links, _ int64) (own, campaign templates.URL) {
		return l.Tokens(), l.Tokens()
	})
}

// readAction reads actions on the object that an address names: about reads the address, decode the
// body. After a form the object's own page is shown.
func readAction[K any](s *server, about func(*http.Request) (K, error), decode func(*http.Request) (outbox.Command, error), pages func(templates.Links, K) (own, campaign templates.URL)) actionReader[K] {
	return actionReader[K]{
		form: func(r *http.Request) (a actionRequest[K], err error) {
			if a.on, err = about(r); err != nil {
				return a, err
			}
			own, campaign := pages(s.linksOf(r), a.on)
			a.order, a.shown, err = s.formCommand(r, own, campaign)
			return a, err
		},
		body: func(r *http.Request) (a actionRequest[K], err error) {
			if a.on, err = about(r); err != nil {
				return a, err
			}
			a.order, err = decode(r)
			return a, err
		},
	}
}

// reasoned is a body or a form with a reason.
type reasoned interface {
	why() (reason, confirm string)
}

// readSameForm reads actions whose form has the same fields as the body, a B. The address and those
// fields name the object; page is shown after a form.
func readSameForm[K any, B reasoned](s *server, about func(*http.Request) (K, error), with func(K, B) K, page func(templates.Links, K) templates.URL) actionReader[K] {
	read := func(via string, read func(*http.Request, any) error) func(*http.Request) (actionRequest[K], error) {
		return func(r *http.Request) (a actionRequest[K], err error) {
			if a.on, err = about(r); err != nil {
				return a, err
			}
			var body B
			if err := read(r, &body); err != nil {
				return a, err
			}
			reason, confirm := body.why()
			a.on, a.order = with(a.on, body), s.command(r, via, reason, nil)
			a.order.Confirm, a.shown = confirm, page(s.linksOf(r), a.on)
			return a, nil
		}
	}
	return actionReader[K]{form: read("page", fillForm), body: read("api", decode)}
}

func fillForm(r *http.Request, form any) error { return fill(form, r.PostForm) }
