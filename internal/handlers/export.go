package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/csv"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// exportPatience is how long the client may take to receive one page of an export. The whole has no
// time limit.
const exportPatience = 30 * time.Second

type exportQuery struct {
	Format string `json:"format" validate:"omitempty,oneof=csv json" api:"default=csv"` // csv if empty
	// begin a CSV file with a byte order mark, without which Excel does not read it as UTF-8
	BOM string `json:"bom" validate:"omitempty,oneof=true false" api:"default=false"`
}

// The queries of the files: they begin at the start of the list.
var (
	rowsFile      = queryOf(exportQuery{}, campaign.RowFilter{}).without("cursor", "limit")
	campaignsFile = queryOf(exportQuery{}, campaign.CampaignFilter{}).without("cursor", "limit")
	auditFile     = queryOf(exportQuery{}, operator.AuditFilter{}).without("cursor", "limit")
)

func (s *server) exportRows(w http.ResponseWriter, r *http.Request) error {
	filter, err := s.rowFilter(r)
	if err != nil {
		return err
	}
	return export(s, w, r, "rows", s.Queue.RowsInPages(r.Context(), filter), campaigns.RowColumns(ui.Page{}, campaign.RowFilter{}))
}

func (s *server) exportCampaigns(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[campaign.CampaignFilter](s)(r)
	if err != nil {
		return err
	}
	pages := func(yield func([]campaignView, error) bool) {
		for page, err := range s.Store.CampaignsInPages(r.Context(), filter) {
			var views []campaignView
			if len(page) > 0 {
				views = s.viewListed(r.Context(), page)
			}
			if !yield(views, err) {
				return
			}
		}
	}
	return export(s, w, r, "campaigns", pages, campaigns.CampaignColumns(ui.Page{}, campaign.CampaignFilter{}))
}

func (s *server) exportAudit(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[operator.AuditFilter](s)(r)
	if err != nil {
		return err
	}
	return export(s, w, r, "audit", s.Store.AuditLogInPages(r.Context(), filter), ui.AuditColumns(ui.Page{}, nil))
}

// export answers with all items of a list as a file, page by page. An error before the first byte
// is an answer like any other; afterwards the connection is cut, so that a partial file is not
// mistaken for the whole.
func export[T any](s *server, w http.ResponseWriter, r *http.Request, name string, pages iter.Seq2[[]T, error], columns []ui.Column[T]) error {
	var q exportQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	encode := csvItems(ui.Filed(columns), map[string]string{"true": "\ufeff"}[q.BOM])
	if q.Format == "json" {
		encode = jsonItems[T]()
	}
	file := &exportFile{ResponseController: http.NewResponseController(w), w: w}
	s.exportHeader(w, name, cmp.Or(q.Format, "csv"))
	if r.Method == http.MethodHead {
		return nil
	}
	if err := file.extend(); err != nil {
		return err
	}
	for part, err := range inTurns(r.Context(), s.exporting, encoded(s.Redact, pages, encode)) {
		if err == nil && s.stopping() {
			err = errors.New("the server is stopping")
		}
		if err == nil {
			err = file.send(part, nil)
		}
		if err != nil {
			return s.cut(r, file, err)
		}
	}
	if err := file.send(encode(nil)); err != nil {
		return s.cut(r, file, err)
	}
	return nil
}

// encoded yields the encoded pages of a file, their secrets hidden.
func encoded[T any](by *redact.Redactor, pages iter.Seq2[[]T, error], encode func([]T) ([]byte, error)) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for items, err := range pages {
			if err == nil && len(items) == 0 {
				continue // to encode, none is the end
			}
			var part []byte
			if err == nil {
				part, err = encode(redact.Shown(by, items))
			}
			if !yield(part, err) {
				return
			}
		}
	}
}

// inTurns produces each part while holding a place in m, and leaves it while the part is sent:
// slow clients hold up no one.
func inTurns(ctx context.Context, m *admission.Room, parts iter.Seq2[[]byte, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		leave, err := m.Enter(ctx, 1)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { leave() }()
		for part, err := range parts {
			leave()
			leave = func() {}
			if !yield(part, err) || err != nil {
				return
			}
			again, err := m.EnterWithin(ctx, 1, exportPatience)
			if err != nil {
				yield(nil, err)
				return
			}
			leave = again
		}
	}
}

// cut ends a failed export. It does not return if the file has begun.
func (s *server) cut(r *http.Request, file *exportFile, err error) error {
	if !file.begun {
		file.w.Header().Del("Content-Disposition")
		return err
	}
	s.Logger.Warn("export cut off", "path", r.URL.Path, operator.RequestIDs(r.Context()), "err", err)
	panic(http.ErrAbortHandler)
}

func (s *server) stopping() bool {
	select {
	case <-s.Stopping: // a nil channel never fires
		return true
	default:
		return false
	}
}

func (s *server) exportHeader(w http.ResponseWriter, name, format string) {
	h := w.Header()
	h.Set("Content-Type", map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}[format])
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="outboxweb-%s-%s.%s"`, name, s.Now().UTC().Format("20060102T150405Z"), format))
}

// exportFile is the answer that a file is written to.
type exportFile struct {
	*http.ResponseController
	w     http.ResponseWriter
	begun bool
}

// send writes a part of the file, unless encoding it failed, and extends the deadline for the next
// one.
func (f *exportFile) send(part []byte, err error) error {
	if err != nil {
		return err
	}
	f.begun = true
	if _, err := f.w.Write(part); err != nil {
		return err
	}
	if err := f.Flush(); err != nil {
		return err
	}
	return f.extend()
}

// extend moves the write deadline, which the server set for the whole answer.
func (f *exportFile) extend() error {
	err := f.SetWriteDeadline(time.Now().Add(exportPatience))
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// csvItems encodes pages of a CSV file that begins with a text, the first with its header.
func csvItems[T any](columns []ui.Column[T], begin string) func([]T) ([]byte, error) {
	headed, cells := false, make([]any, len(columns))
	return func(items []T) ([]byte, error) {
		var part []byte
		if !headed {
			for i, c := range columns {
				cells[i] = c.Name
			}
			part, headed = csv.Row([]byte(begin), cells...), true
		}
		for n := range items {
			for i, c := range columns {
				cells[i] = c.Text(&items[n])
			}
			part = csv.Row(part, cells...)
		}
		return part, nil
	}
}

// jsonItems encodes pages of one JSON array, one item per line; nil ends it.
func jsonItems[T any]() func([]T) ([]byte, error) {
	before := "[\n"
	return func(items []T) ([]byte, error) {
		var part []byte
		for _, item := range items {
			text, err := json.Marshal(item)
			if err != nil {
				return nil, fmt.Errorf("encode the export: %w", err)
			}
			part = append(append(part, before...), text...)
			before = ",\n"
		}
		if items == nil {
			if before == "[\n" {
				part = append(part, '[')
			}
			part = append(part, "\n]\n"...)
		}
		return part, nil
	}
}
