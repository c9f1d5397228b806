package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

// searchQuery is what was typed into the search box.
type searchQuery struct {
	Q string `json:"q" validate:"text,maxbytes=500"`
}

// searchPage looks for anything by its id. It leads to the only thing that the text certainly names.
func (s *server) searchPage(w http.ResponseWriter, r *http.Request) error {
	found, err := s.find(r)
	if err != nil {
		return err
	}
	if found.Text == "" {
		return seeOther(w, s.linksOf(r).SearchEvents(search.EventFilter{}))
	}
	if only, ok := found.Only(); ok {
		return seeOther(w, campaigns.FindingURL(s.linksOf(r), only))
	}
	return s.render(w, r, http.StatusOK, s.page(r, "Search", ""), pageOf(campaigns.SearchPage, found))
}

// suggestions answers with the options of the search box's list, which its script requests.
func (s *server) suggestions(w http.ResponseWriter, r *http.Request) error {
	found, err := s.find(r)
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, s.page(r, "Search", ""), pageOf(campaigns.Suggestions, found))
}

func (s *server) find(r *http.Request) (search.Findings, error) {
	var q searchQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return search.Findings{}, err
	}
	text := strings.Join(strings.Fields(q.Q), " ")
	f := search.Findings{Text: text, Asked: search.ParseAsked(text, s.Now())}
	if text == "" {
		return f, nil
	}
	var err error
	if f.Found, err = s.Search.Find(r.Context(), f.Asked, s.Redact); err != nil {
		return f, err
	}
	for _, look := range []func(context.Context, search.Asked) ([]search.Finding, error){s.findRejections(f.Found), s.findRun, s.findOperation, s.findProjections} {
		some, err := look(r.Context(), f.Asked)
		if err != nil {
			return f, err
		}
		f.Found = append(f.Found, some...)
	}
	f.Found = search.SortFindings(f.Found)
	return f, nil
}

// findRejections finds rejected rows of sources. The page of a campaign that is found too names its own.
func (s *server) findRejections(found []search.Finding) func(context.Context, search.Asked) ([]search.Finding, error) {
	return func(ctx context.Context, a search.Asked) ([]search.Finding, error) {
		rejected, err := s.Intake.Find(ctx, a, s.Redact)
		for i := range rejected {
			rejected[i].Certain = !slices.ContainsFunc(found, func(f search.Finding) bool {
				return f.Kind == search.FoundCampaign && f.Certain && f.CampaignID == rejected[i].CampaignID
			})
		}
		return rejected, err
	}
}

func (s *server) findRun(ctx context.Context, a search.Asked) ([]search.Finding, error) {
	return numbered(ctx, a, search.FoundRun, s.Runs.Get, func(run replay.Run) string { return string(run.Kind) + ", " + string(run.Status) })
}

func (s *server) findOperation(ctx context.Context, a search.Asked) ([]search.Finding, error) {
	return numbered(ctx, a, search.FoundOperation, s.Operations.Get, func(o operations.OperationDetail) string { return string(o.Status) })
}

// numbered finds what the words name by its number, with a note on what it is.
func numbered[T any](ctx context.Context, a search.Asked, kind search.FindingKind, get func(context.Context, int64) (T, error), note func(T) string) ([]search.Finding, error) {
	id, ok := a.Number(kind)
	if !ok {
		return nil, nil
	}
	one, err := get(ctx, id)
	if errors.Is(err, event.ErrNotFound) {
		return nil, nil
	}
	return []search.Finding{{Kind: kind, Certain: true, ID: id, Note: note(one)}}, err
}

// findProjections finds loaded projections by a part of their names.
func (s *server) findProjections(_ context.Context, a search.Asked) ([]search.Finding, error) {
	var found []search.Finding
	for _, p := range s.Projections {
		if strings.Contains(p.Name, strings.ToLower(a.Named())) {
			found = append(found, search.Finding{Kind: search.FoundProjection, Certain: p.Name == a.Named(), Name: p.Name})
		}
	}
	return found, nil
}
