package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// operationForm is the request of an operation as a form. A row is CAMPAIGN/SEQ.
type operationForm struct {
	Campaign    string   `json:"campaign" validate:"id"`
	EventType   string   `json:"event_type" validate:"id"`
	Fingerprint string   `json:"fingerprint" validate:"fingerprint"`
	Limit       *int     `json:"limit" validate:"omitnil,operated"`
	Rows        []string `json:"rows" validate:"dive,text,maxbytes=220"`
	Chosen      bool     `json:"chosen"` // the rows are the ticked ones, even if there are none
	operations.OperationOptions
}

func readOperationForm(r *http.Request) (operations.OperationStartRequest, error) {
	return readOperation(r.PostForm)
}

// readOperation reads the request of an operation from a form or the address of its preview.
func readOperation(values url.Values) (asked operations.OperationStartRequest, err error) {
	var f operationForm
	if err := fill(&f, values); err != nil {
		return asked, err
	}
	asked.OperationOptions = f.OperationOptions
	if len(f.Rows) == 0 && f.Chosen {
		return asked, event.Invalid("rows", "no row is selected; go back and select the dead rows to requeue, or requeue all that match")
	}
	if len(f.Rows) == 0 {
		asked.Filter = &campaign.DeadRows{CampaignID: f.Campaign, EventType: f.EventType, Fingerprint: f.Fingerprint, Limit: f.Limit}
	}
	for _, text := range f.Rows {
		cut := max(0, strings.LastIndexByte(text, '/'))
		seq, err := strconv.ParseInt(strings.TrimPrefix(text[cut:], "/"), 10, 64)
		if err != nil || cut == 0 {
			return asked, event.Invalid("rows", "a row is named CAMPAIGN/SEQ, not %q", text)
		}
		asked.Rows = append(asked.Rows, event.RowKey{CampaignID: text[:cut], Seq: seq})
	}
	return asked, nil
}

// previewed is the operation that the address of a page asks for.
func previewed(r *http.Request) (order operations.OperationRequest, err error) {
	asked, err := readOperation(r.URL.Query())
	if err != nil {
		return order, err
	}
	return asked.Order()
}

func (s *server) startOperation(ctx context.Context, o operator.Command, asked operations.OperationStartRequest) (operations.Operation, error) {
	order, err := asked.Order()
	if err != nil {
		return operations.Operation{}, err
	}
	if err := s.Runs.RestOn(ctx, order.Rehearsal, s.Projections); err != nil {
		return operations.Operation{}, err
	}
	return s.Operations.Start(ctx, o, order)
}

func (s *server) readOperationPreview(r *http.Request) (preview operations.OperationPreview, err error) {
	var body operations.OperationStartRequest
	if err := decode(r, &body); err != nil {
		return preview, err
	}
	order, err := body.Order()
	if err != nil {
		return preview, err
	}
	return s.previewOperation(r.Context(), order.Selection, order.Rehearsal)
}

func (s *server) operationsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[operations.OperationFilter](s)(r)
	if err != nil {
		return err
	}
	p := s.page(r, "Operations", "Operations")
	p.Self, p.Twin = s.linksOf(r).Operations(filter), s.linksOf(r).API().Operations(filter)
	operations := list[operations.OperationFilter, operations.Operation]{"operations", s.Operations.List, jobs.OperationsPage, jobs.OperationsLive}
	return operations.show(s, w, r, p, filter)
}

func (s *server) operationPage(w http.ResponseWriter, r *http.Request) error {
	id, filter, err := asked[operations.OperationRowFilter](r, operationParam)
	if err != nil {
		return err
	}
	detail, err := s.Operations.Get(r.Context(), id)
	if err != nil {
		return err
	}
	rows, err := s.Operations.Rows(r.Context(), id, filter)
	if err != nil {
		return err
	}
	acts, err := s.Store.AuditLogOf(r.Context(), activityShownOf, operator.OperationTarget(id))
	if err != nil {
		return err
	}
	p := s.page(r, jobs.OperationTitle(detail.Operation), "Operations")
	p.Self, p.Twin = s.linksOf(r).Operation(id, filter), s.linksOf(r).API().Operation(id, operations.OperationRowFilter{})
	view := jobs.OperationView{Operation: detail, Filter: filter, Rows: rows, Acts: acts}
	if detail.Rehearsal > 0 {
		if view.Rehearsal, err = s.readRehearsal(r.Context(), detail.Rehearsal); err != nil {
			return err
		}
	}
	summary, err := s.Store.Summary(r.Context())
	if err != nil {
		return err
	}
	view.Without = summary.Held
	return s.renderActed(w, r, p, pageOf(jobs.OperationPage, view), pageOf(jobs.OperationLive, view))
}

// newOperationPage previews an operation and asks for confirmation. Of a rehearsal alone it is the rows
// that would pass.
func (s *server) newOperationPage(w http.ResponseWriter, r *http.Request) error {
	order, err := previewed(r)
	if err != nil {
		return err
	}
	if order.Rehearsal > 0 && len(order.Rows) == 0 && order.Filter == (campaign.RequeueFilter{}) {
		if order.Rows, err = s.Operations.PassedHeads(r.Context(), order.Rehearsal); err != nil {
			return err
		}
		if len(order.Rows) == 0 {
			return event.NotFound("rehearsal %d found no blocked campaign that would pass", order.Rehearsal)
		}
	}
	preview, err := s.previewOperation(r.Context(), order.Selection, order.Rehearsal)
	if refusal, ok := errors.AsType[*event.Refusal](err); ok && refusal.Field == "filter" { // more rows than one operation takes
		order.Filter.Limit = event.MaxOperation
		preview, err = s.previewOperation(r.Context(), order.Selection, order.Rehearsal)
	}
	if err != nil {
		return err
	}
	cause := ""
	if len(preview.Groups) == 1 && preview.GroupsTotal == 1 {
		cause = preview.Groups[0].Fingerprint
	}
	p := s.actingPage(r, "Requeue dead rows", "Operations", cause)
	view := jobs.NewOperationView{Selection: order.Selection, Rehearsal: order.Rehearsal, Preview: preview, Key: uuid.NewString()}
	if cause != "" && order.Rehearsal == 0 {
		// The page is worth reading without it.
		if rehearsed, err := s.Runs.RehearsalOf(r.Context(), cause, s.Projections); err == nil && rehearsed != nil {
			if resting, err := s.previewOperation(r.Context(), order.Selection, rehearsed.Run.ID); err == nil && resting.Rehearsed+resting.RehearsedFailing > 0 {
				view.Rehearsed, view.Resting = rehearsed, resting
			}
		}
	}
	return s.render(w, r, http.StatusOK, p, pageOf(jobs.NewOperationPage, view))
}

// requeueDeadPage redirects to the operation that requeues the dead rows of a filter.
func (s *server) requeueDeadPage(w http.ResponseWriter, r *http.Request) error {
	order, err := previewed(r)
	if err != nil {
		return err
	}
	return seeOther(w, s.linksOf(r).NewOperation(order.Selection))
}
