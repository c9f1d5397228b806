package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/charts"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// rangeQuery is the time range of charts.
type rangeQuery struct {
	Range string `json:"range" validate:"omitempty,range" api:"default=1h"` // a range that ends now
	From  string `json:"from" validate:"text,maxbytes=40"`                  // instead of range: the start, in RFC 3339 or as since of a search of events (14:00, -2h), at most 8 days before to
	To    string `json:"to" validate:"text,maxbytes=40"`                    // the end; now if empty
	Span  string `json:"span" validate:"omitempty,span"`                    // an older name of range: hour is 1h, and day is 24h
}

// pageRange is the asked range, which begins with the first sample if there are none before.
func (s *server) pageRange(r *http.Request) (samples.Range, error) {
	over, err := s.readRange(r)
	if err != nil {
		return over, err
	}
	return s.Samples.Begun(r.Context(), over)
}

func (s *server) readRange(r *http.Request) (samples.Range, error) {
	var q rangeQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return samples.Range{}, err
	}
	switch {
	case q.From != "" || q.To != "":
		from, to, err := event.ParseFromTo(q.From, q.To, s.Now())
		if err != nil {
			return samples.Range{}, err
		}
		return samples.FreeRange(from, to, s.Now())
	case q.Range == "" && q.Span != "":
		return samples.OfSpan(samples.Span(q.Span)), nil
	case q.Range == "":
		return samples.Range{Name: samples.RangeHour}, nil
	}
	return samples.Range{Name: samples.RangeName(q.Range)}, nil
}

// wholeHistory is a history with the lag of publishers and the heatmap of campaigns.
type wholeHistory struct {
	samples.History
	Heatmap samples.Heatmap  `json:"heatmap"`
	Beside  *samples.History `json:"beside"` // the one that was asked for beside it, with as many steps; null without
}

type historyQuery struct {
	rangeQuery
	Beside string `json:"beside" validate:"text,maxbytes=40"` // a range of the same length before it, too: 1h, 24h or 168h earlier, or ending at a time in RFC 3339
}

func (s *server) readHistory(r *http.Request) (h wholeHistory, err error) {
	var q historyQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return h, err
	}
	over, err := s.readRange(r)
	if err != nil {
		return h, err
	}
	return s.history(r.Context(), over, q.Beside)
}

func (s *server) history(ctx context.Context, over samples.Range, beside string) (h wholeHistory, err error) {
	if h.History, err = s.laggingHistory(ctx, over); err != nil {
		return h, err
	}
	if beside != "" {
		h.Beside = new(samples.History)
		earlier, err := h.Window.Beside(beside)
		if err == nil {
			*h.Beside, err = s.laggingHistory(ctx, earlier)
		}
		if err != nil {
			return h, err
		}
	}
	h.Heatmap, err = s.Samples.Heatmap(ctx, over)
	return h, err
}

// laggingHistory is a history with the lag of publishers.
func (s *server) laggingHistory(ctx context.Context, over samples.Range) (h samples.History, err error) {
	if h, err = s.Samples.History(ctx, over); err != nil {
		return h, err
	}
	lags, err := s.Publishers.LagSeries(ctx, over)
	h.Series = append(h.Series[:len(h.Series):len(h.Series)], lags...)
	return h, err
}

type chartsQuery struct {
	historyQuery
	Table string `json:"table" validate:"omitempty,oneof=true false"` // true shows the numbers
}

func (s *server) chartsPage(w http.ResponseWriter, r *http.Request) error {
	var q chartsQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	over, err := s.pageRange(r)
	if err != nil {
		return err
	}
	h, err := s.history(r.Context(), over, q.Beside)
	if err != nil {
		return err
	}
	view := charts.ChartsView{Range: over, Table: q.Table == "true", History: h.History, Heatmap: h.Heatmap, Beside: h.Beside, Asked: q.Beside}
	if view.Summary, err = s.Store.Summary(r.Context()); err != nil {
		return err
	}
	p := s.page(r, "Charts", "Overview")
	p.Self = s.linksOf(r).Charts()
	if view.Table {
		p.Self = s.linksOf(r).ChartTable()
	}
	p.Self = ui.Beside(p.Self, q.Beside)
	p.AsOf, p.Twin = view.Summary.AsOf, ui.Beside(ui.Over(s.linksOf(r).API().History(), over), q.Beside)
	return s.renderActed(w, r, p, pageOf(charts.ChartsPage, view), pageOf(charts.ChartsLive, view))
}
