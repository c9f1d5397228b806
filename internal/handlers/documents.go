package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

// errHidden is a document that this server shows to no one.
var errHidden = errors.New("hidden")

// document reads one document of an event, once a slot is free. No slot in time is event.ErrBusy.
// The slot is released before anything is sent, so that slow clients hold up no one.
//
// Secrets in the document are hidden, and hash is then marked, since the text is not the hashed
// one. Where documents are hidden altogether it returns errHidden.
func (s *server) document(ctx context.Context, campaign string, seq int64, part event.Part) (text, hash string, err error) {
	done, err := s.reading.Enter(ctx, 1)
	if err != nil {
		return "", "", fmt.Errorf("wait for room to read the %s of campaign %q seq %d: %w", part, campaign, seq, err)
	}
	defer done()
	if text, hash, err = s.Store.Document(ctx, campaign, seq, part); err != nil {
		return "", "", err
	}
	if s.Redact.HidesPayloads() {
		return "", "", refuseHidden()
	}
	hidden, paths := s.Redact.JSON(json.RawMessage(text))
	if paths != nil {
		text, hash = string(hidden), hash+"-redacted"
	}
	return text, hash, nil
}

func refuseHidden() error {
	return &event.Refusal{Err: errHidden, Detail: "this server hides payloads, metadata and tags (--hide-payloads); an admin can reveal one event on its page, which is audited"}
}

// fixture answers with a failing event as a file that reproduces it. Pages and the API share it.
func (s *server) fixture(w http.ResponseWriter, r *http.Request) error {
	row, err := rowParam(r)
	switch {
	case err != nil:
		return err
	case s.Fixture == nil:
		return event.NotFound("this server makes no fixtures")
	case s.Redact.HidesPayloads():
		return refuseHidden()
	}
	f, err := admission.Within(r.Context(), s.trying, func() (projection.Fixture, error) {
		return s.Fixture(r.Context(), redact.Of(s.Redact), row)
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="fixture-%s-%d.json"`, fileName(row.CampaignID), row.Seq))
	return s.writeJSON(w, http.StatusOK, f)
}

// payloadAnswers describe the answers of payload.
var payloadAnswers = []apiAnswer{
	{status: http.StatusOK, content: map[string][]reflect.Type{mediaJSON: {reflect.TypeFor[map[string]any]()}},
		text: "the payload; its ETag is the event's hash, with the suffix -redacted if anything is hidden; range requests are supported"},
	{status: http.StatusPartialContent, content: map[string][]reflect.Type{mediaJSON: nil},
		text: "the requested range, which need not be valid JSON by itself"},
	{status: http.StatusNotModified, text: "not modified: If-None-Match names the event's hash"},
}

// payload answers with an event's payload exactly as stored, as a download. Pages and the API share
// it.
func (s *server) payload(w http.ResponseWriter, r *http.Request) error {
	row, err := rowParam(r)
	if err != nil {
		return err
	}
	text, hash, err := s.document(r.Context(), row.CampaignID, row.Seq, event.PartPayload)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%d.json"`, fileName(row.CampaignID), row.Seq))
	h.Set("ETag", `"`+hash+`"`)
	answer := &ranged{ResponseWriter: w}
	http.ServeContent(answer, r, "", time.Time{}, strings.NewReader(text))
	if answer.beyond {
		h.Del("Content-Disposition")
		h.Del("ETag")
		return &event.Refusal{Err: errRange, Detail: fmt.Sprintf("the payload is %d bytes long and has no such range", len(text))}
	}
	return nil
}

// ranged passes on the answers of http.ServeContent, except an unsatisfiable range, which is
// reported like any other error.
type ranged struct {
	http.ResponseWriter
	beyond bool
}

func (w *ranged) WriteHeader(status int) {
	if w.beyond = status == http.StatusRequestedRangeNotSatisfiable; !w.beyond {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *ranged) Write(text []byte) (int, error) {
	if w.beyond {
		return len(text), nil
	}
	return w.ResponseWriter.Write(text)
}

// fileName turns a campaign's id into a part of a file name that is valid on every system.
func fileName(campaign string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, campaign)
	name = strings.TrimLeft(name[:min(len(name), 80)], ".-")
	if name == "" {
		return "event"
	}
	return name
}

// treeQuery is a location in a document of an event.
type treeQuery struct {
	Part string `json:"part" validate:"omitempty,oneof=payload tags metadata"`
	At   string `json:"at" validate:"maxbytes=4000,text"`
	From int    `json:"from" validate:"min=0"`
}

// treePage answers with part of a document: for htmx only the items that replace the link,
// otherwise a page.
func (s *server) treePage(w http.ResponseWriter, r *http.Request) error {
	fragment := r.Header.Get("HX-Request") == "true" && r.Header.Get("HX-Boosted") == ""
	h := w.Header()
	h.Set("Vary", "HX-Request")
	if fragment { // an error is a page, not an item of the tree
		h.Set("HX-Retarget", "body")
		h.Set("HX-Reswap", "innerHTML")
	}
	row, q, err := asked[treeQuery](r, rowParam)
	if err != nil {
		return err
	}
	campaign, seq, part := row.CampaignID, row.Seq, cmp.Or(event.Part(q.Part), event.PartPayload)
	text, _, err := s.document(r.Context(), campaign, seq, part)
	if err != nil {
		return err
	}
	tree, err := campaigns.ReadTree(text, q.At, q.From)
	if nowhere, ok := errors.AsType[*campaigns.NoPlace](err); ok {
		return event.NotFound("there is nothing at %q in the %s of event %d of campaign %q", nowhere.Pointer, part, seq, campaign)
	}
	if err != nil {
		return err
	}
	view := campaigns.TreeView{Document: campaigns.Document{CampaignID: campaign, Seq: seq, Part: part, Size: int64(len(text))}, Tree: tree}
	p := s.page(r, campaigns.EventTitle(campaign, seq), "Events")
	if fragment {
		h.Del("HX-Retarget")
		h.Del("HX-Reswap")
		return s.render(w, r, http.StatusOK, p, pageOf(campaigns.TreeItems, view))
	}
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.TreePage, view))
}

func (s *server) readCursors(ctx context.Context, campaign string) (items[campaign.Cursor], error) {
	cursors, err := s.Runs.Cursors(ctx, campaign, s.Projections)
	return listOf(cursors), err
}
