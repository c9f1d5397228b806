package handlers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a-h/templ"

	"outboxweb/internal/outbox"
	"outboxweb/internal/redact"
	"outboxweb/web/templates"
)

// How much the overview lists.
const (
	boardSize     = 20
	pausedShown   = 5
	activityShown = 5
)

// overviewAge is how old the overview may be, and overviewKept how long its
// words about ages may stay as they are while nothing changes. The page's
// script keeps ages true meanwhile.
const (
	overviewAge  = time.Second
	overviewKept = 10 * time.Second
)

// overviewCache shares the overview, read once and rendered once for each
// audience, between all who look: twenty open tabs cost what one costs. An
// error is shared likewise: while the database is away they would wait for it
// one after the other.
type overviewCache struct {
	stale    atomic.Bool // an action was done since it was read
	mu       sync.Mutex
	view     sharedOverview
	err      error
	taken    time.Time
	reading  int64 // counts how often it was read
	rendered map[audience]renderedOverview
}

// sharedOverview is an overview whose secrets were hidden when it was read, once
// for all who look.
type sharedOverview struct {
	templates.Overview `redact:"-"`
}

// audience are those whom the live part of the overview looks the same for: it
// offers what their role allows, below where they reach the pages.
type audience struct {
	role outbox.Role
	base string
}

// audiences are at most so many at a time; a proxy names the base.
const audiences = 32

// renderedOverview is the live part as one audience is shown it.
type renderedOverview struct {
	live    []byte    // shared, so never changed
	at      time.Time // the moment that its words about ages count from
	reading int64     // of which reading it is
}

// readOverview reads what the overview shows, or what it showed less than a
// second ago, and renders its live part for whoever asks.
func (s *server) readOverview(r *http.Request, span outbox.Span) (sharedOverview, []byte, error) {
	c := s.overviews[span]
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := !c.stale.Load() && time.Since(c.taken) < overviewAge
	s.cost.Snapshot(shared)
	if !shared {
		c.stale.Store(false)                                                   // before reading: what is done meanwhile may not be in it
		view, err := s.queryOverview(context.WithoutCancel(r.Context()), span) // others wait for this result too
		c.view, c.err = sharedOverview{redact.Shown(s.Redact, view)}, err
		c.taken = time.Now()
		c.reading++
	}
	if c.err != nil {
		return c.view, nil, c.err
	}
	live, err := c.render(r.Context(), s, s.overviewFrame(r, c.view))
	return c.view, live, err
}

// invalidate makes the next reader take a new overview. It waits for nobody, since
// Actions call it.
func (c *overviewCache) invalidate() { c.stale.Store(true) }

// render writes the live part for the audience that p's reader is one of. It
// stays as it was when nothing but ages has changed, so that pages that poll
// are told so.
func (c *overviewCache) render(ctx context.Context, s *server, p templates.Page) ([]byte, error) {
	who := audience{p.Me.Role, p.Links.Base()}
	p.Me = outbox.Identity{Role: who.role} // nothing of one reader may reach another
	was, known := c.rendered[who]
	if known && was.reading == c.reading {
		return was.live, nil
	}
	now := p.Now
	if known && now.Sub(was.at) < overviewKept {
		p.Now = was.at
		same, err := s.renderOverview(ctx, p, c.view)
		if err == nil && bytes.Equal(same, was.live) {
			was.reading = c.reading
			c.rendered[who] = was
			return was.live, nil
		}
		p.Now = now
	}
	live, err := s.renderOverview(ctx, p, c.view)
	if err != nil {
		return nil, err
	}
	if c.rendered == nil || len(c.rendered) >= audiences {
		c.rendered = map[audience]renderedOverview{}
	}
	c.rendered[who] = renderedOverview{live: live, at: now, reading: c.reading}
	return live, nil
}

func (s *server) queryOverview(ctx context.Context, span outbox.Span) (v templates.Overview, err error) {
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
	if v.Runs, err = s.Runs.Active(ctx); err != nil {
		return v, err
	}
	if v.Drifted, err = s.Store.Drifted(ctx, templates.DriftShown); err != nil {
		return v, err
	}
	if v.Publishers, err = s.Publishers.Publishers(ctx); err != nil {
		return v, err
	}
	acts, err := s.Store.AuditLog(ctx, outbox.AuditFilter{Outcome: outbox.AuditDone, Limit: activityShown})
	v.Acts = acts.Items
	return v, err
}

type overviewQuery struct {
	Span string `json:"span" validate:"omitempty,span" api:"default=hour"` // the last hour by minutes, or the last day by quarters of an hour
}

func readSpan(r *http.Request) (outbox.Span, error) {
	var q overviewQuery
	err := fill(&q, r.URL.Query())
	if q.Span == "" {
		q.Span = string(outbox.SpanHour)
	}
	return outbox.Span(q.Span), err
}

func (s *server) overviewFrame(r *http.Request, v sharedOverview) templates.Page {
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
	view, live, err := s.readOverview(r, span)
	if err != nil {
		return err
	}
	p := s.overviewFrame(r, view)
	if err := s.flash(r, &p); err != nil {
		return err
	}
	if view.Summary.Campaigns.Total == 0 { // the first steps name the address that this reader uses
		return s.renderLive(w, r, p, pageOf(wholeOverview, view), pageOf(liveOverview, view))
	}
	around := func(p templates.Page, v sharedOverview) templ.Component {
		return templates.OverviewPage(p, v.Overview, written(p, live))
	}
	return s.renderLive(w, r, p, pageOf(around, view), pageOf(written, live))
}

func wholeOverview(p templates.Page, v sharedOverview) templ.Component {
	return templates.OverviewPage(p, v.Overview, liveOverview(p, v))
}

func liveOverview(p templates.Page, v sharedOverview) templ.Component {
	return templates.OverviewLive(p, v.Overview)
}

func (s *server) renderOverview(ctx context.Context, p templates.Page, v sharedOverview) ([]byte, error) {
	var buf bytes.Buffer
	err := s.writePage(ctx, &buf, p, pageOf(liveOverview, v))
	return buf.Bytes(), err
}

// written is what a page of ours was drawn as before.
func written(_ templates.Page, drawn []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(drawn)
		return err
	})
}
