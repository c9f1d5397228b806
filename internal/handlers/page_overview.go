package handlers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/a-h/templ"

	"outboxweb/internal/outbox"
	"outboxweb/web/templates"
)

// How much the overview lists.
const (
	boardSize   = 20
	pausedShown = 5
	actsShown   = 5
)

// overviewAge is how old the overview may be, and overviewKept how long its
// words about ages may stay as they are while nothing changes. The page's
// script keeps ages true meanwhile.
const (
	overviewAge  = time.Second
	overviewKept = 10 * time.Second
)

// overviewCache shares the overview, read and rendered, between all who look:
// twenty open tabs cost what one costs. An error is shared likewise: while the
// database is away they would wait for it one after the other.
type overviewCache struct {
	mu    sync.Mutex
	shown shownOverview
	err   error
	taken time.Time
}

// shownOverview is the overview as it was read at one moment.
type shownOverview struct {
	view     templates.Overview
	live     []byte    // rendered; shared, so never changed
	rendered time.Time // the moment that its words about ages count from
}

// readOverview reads what the overview shows, or what it showed less than a
// second ago.
func (s *server) readOverview(r *http.Request, span outbox.Span) (shownOverview, error) {
	c := s.overviews[span]
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := time.Since(c.taken) < overviewAge
	s.cost.Snapshot(shared)
	if !shared {
		c.err = s.refreshOverview(r, span, &c.shown)
		c.taken = time.Now()
	}
	return c.shown, c.err
}

// forget makes the next reader take a new overview.
func (c *overviewCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = time.Time{}
}

// refreshOverview reads the overview anew. What is rendered stays when nothing
// but ages has changed, so that pages that poll are told so.
func (s *server) refreshOverview(r *http.Request, span outbox.Span, shown *shownOverview) error {
	ctx := context.WithoutCancel(r.Context()) // others wait for this result too
	view, err := s.takeOverview(ctx, span)
	if err != nil {
		return err
	}
	p := s.overviewFrame(r, view)
	if shown.live != nil && p.Now.Sub(shown.rendered) < overviewKept {
		p.Now = shown.rendered
		same, err := renderBytes(ctx, templates.OverviewLive(p, view))
		if err == nil && bytes.Equal(same, shown.live) {
			shown.view = view
			return nil
		}
		p.Now = s.Now().UTC()
	}
	live, err := renderBytes(ctx, templates.OverviewLive(p, view))
	*shown = shownOverview{view: view, live: live, rendered: p.Now}
	return err
}

func (s *server) takeOverview(ctx context.Context, span outbox.Span) (v templates.Overview, err error) {
	if v.Summary, err = s.Store.Summary(ctx); err != nil {
		return v, err
	}
	if v.History, err = s.Store.History(ctx, span); err != nil {
		return v, err
	}
	if v.Summary.Counts.Failed+v.Summary.Counts.Dead+v.Summary.Campaigns.Diverged > 0 {
		if v.Blocked, err = s.Store.Blocked(ctx, boardSize); err != nil {
			return v, err
		}
		if v.Groups, err = s.Store.ErrorGroups(ctx); err != nil {
			return v, err
		}
	}
	if v.Summary.Campaigns.Paused > 0 {
		if v.Paused, err = s.Store.Paused(ctx, pausedShown); err != nil {
			return v, err
		}
	}
	if v.Runs, err = s.Store.ActiveRuns(ctx); err != nil {
		return v, err
	}
	if v.Drifted, err = s.Store.Drifted(ctx, templates.DriftShown); err != nil {
		return v, err
	}
	if v.Publishers, err = s.Store.Publishers(ctx); err != nil {
		return v, err
	}
	acts, err := s.Store.Acts(ctx, outbox.ActFilter{Outcome: outbox.ActDone, Limit: actsShown})
	v.Acts = acts.Items
	return v, err
}

type overviewQuery struct {
	Span string `json:"span" validate:"omitempty,oneof=hour day"`
}

func readSpan(r *http.Request) (outbox.Span, error) {
	var q overviewQuery
	err := fill(&q, r.URL.Query())
	if q.Span == "" {
		q.Span = string(outbox.SpanHour)
	}
	return outbox.Span(q.Span), err
}

func (s *server) overviewFrame(r *http.Request, v templates.Overview) templates.Page {
	p := s.page(r, "Overview", "Overview")
	p.Around = v.Summary.Surroundings()
	p.AsOf, p.Self, p.Twin = v.Summary.AsOf, s.linksOf(r).OverviewOver(v.History.Span), s.linksOf(r).API().Summary()
	return p
}

func (s *server) overviewPage(w http.ResponseWriter, r *http.Request) error {
	span, err := readSpan(r)
	if err != nil {
		return err
	}
	shown, err := s.readOverview(r, span)
	if err != nil {
		return err
	}
	p := s.overviewFrame(r, shown.view)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	content := written(shown.live)
	if shown.view.Summary.Campaigns.Total == 0 { // the first steps name the address that this reader uses
		content = templates.OverviewLive(p, shown.view)
	}
	return s.renderLive(w, r, p, templates.OverviewPage(p, shown.view, content), content)
}

func renderBytes(ctx context.Context, c templ.Component) ([]byte, error) {
	var buf bytes.Buffer
	err := c.Render(ctx, &buf)
	return buf.Bytes(), err
}

// written is what a component of ours was rendered to before.
func written(rendered []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(rendered)
		return err
	})
}
