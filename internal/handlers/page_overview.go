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

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/overview"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Limits on the overview's lists.
const (
	stuckShown    = 10
	pausedShown   = 5
	activityShown = 5
)

// overviewAge is the maximum age of the overview, and overviewKept how long its displayed ages may
// stay unchanged on a page that polls while nothing else changes. The page's script updates ages
// meanwhile.
const (
	overviewAge  = time.Second
	overviewKept = 10 * time.Second
)

// overviewCache shares the overview, read once and rendered once per audience, among all readers:
// twenty open tabs cost as much as one. Errors are shared too: while the database is down readers
// would wait for it one after the other.
type overviewCache struct {
	stale    atomic.Bool // an action was performed since the last read
	mu       sync.Mutex
	view     sharedOverview
	err      error
	taken    time.Time
	reading  int64 // number of reads so far
	rendered map[audience]renderedOverview
}

// overviewCaches has a cache for each range that is looked at, at most overviewRanges.
type overviewCaches struct {
	mu     sync.Mutex
	ranges map[samples.Range]*overviewCache
}

const overviewRanges = 16

func (c *overviewCaches) of(r samples.Range) *overviewCache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ranges[r] == nil {
		if c.ranges == nil || len(c.ranges) >= overviewRanges {
			c.ranges = map[samples.Range]*overviewCache{}
		}
		c.ranges[r] = &overviewCache{}
	}
	return c.ranges[r]
}

// invalidate makes the next reader of each range read the overview again. It waits for no reading, since
// actions call it.
func (c *overviewCaches) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.ranges {
		one.stale.Store(true)
	}
}

// sharedOverview is an overview whose secrets were hidden when it was read.
type sharedOverview struct {
	overview.Overview `redact:"-"`
}

// audience identifies readers who see the same live part: it depends on their role and their base
// address.
type audience struct {
	role operator.Role
	base string
}

// audiences is the maximum number kept at a time; the base comes from a proxy's header.
const audiences = 32

// renderedOverview is the live part for one audience.
type renderedOverview struct {
	live    []byte    // shared and immutable
	at      time.Time // the time that its displayed ages refer to
	reading int64     // the read it was rendered from
}

// readOverview reads the overview, or takes one read less than a second ago, and renders its live
// part for the reader, whose frame it returns too.
func (s *server) readOverview(r *http.Request, over samples.Range) (p ui.Page, v sharedOverview, live []byte, err error) {
	c := s.overviews.of(over)
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := !c.stale.Load() && time.Since(c.taken) < overviewAge
	s.cost.Snapshot(shared)
	if !shared {
		c.stale.Store(false)                                                   // before reading: the result may miss later actions
		view, err := s.queryOverview(context.WithoutCancel(r.Context()), over) // others wait for this result too
		c.view, c.err = sharedOverview{redact.Shown(s.Redact, view)}, err
		c.taken = time.Now()
		c.reading++
	}
	if c.err != nil {
		return p, c.view, nil, c.err
	}
	kept := overviewAge // by a page that is loaded, which may have no script
	if r.Header.Get("HX-Target") == ui.LiveTarget {
		kept = overviewKept
	}
	p = s.overviewFrame(r, c.view)
	live, err = c.render(r.Context(), s, p, kept)
	return p, c.view, live, err
}

// render renders the live part for the audience of p's reader. It keeps the previous rendering if
// only ages changed and it is not older than kept, so that polling pages get a 304.
func (c *overviewCache) render(ctx context.Context, s *server, p ui.Page, kept time.Duration) ([]byte, error) {
	who := audience{p.Me.Role, p.Links.Base()}
	p.Me = operator.Identity{Role: who.role} // nothing of one reader may reach another
	was, known := c.rendered[who]
	now := p.Now
	known = known && now.Sub(was.at) < kept
	if known && was.reading == c.reading {
		return was.live, nil
	}
	if known {
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

func (s *server) queryOverview(ctx context.Context, over samples.Range) (v overview.Overview, err error) {
	facts, err := s.Facts.Read(ctx)
	if err != nil {
		return v, err
	}
	v.Range, v.Summary, v.Publishers = over, facts.Summary, facts.Publishers
	if v.History, err = s.Samples.History(ctx, over); err != nil {
		return v, err
	}
	if v.Summary.Counts.Failed+v.Summary.Counts.Dead > 0 || s.Mode == campaign.ModeShadow {
		if v.Causes, v.Found, err = s.causes(ctx); err != nil {
			return v, err
		}
		v.Found.Groups = nil // the causes are these
	}
	if v.Summary.Lag.Events > 0 || v.Summary.Campaigns.Diverged > 0 {
		if v.Stuck, err = s.Store.StuckWithoutError(ctx, v.Summary.Surroundings(), stuckShown); err != nil {
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
	v.Loaded = s.Projections
	if v.Verified, err = s.Runs.LastVerified(ctx, s.Projections); err != nil {
		return v, err
	}
	if v.Verified != nil && v.Verified.Counts.Drifted > 0 {
		rebuilds, err := s.Runs.List(ctx, replay.RunFilter{Kind: replay.RunRebuild, Status: replay.RunCompleted, Limit: 1})
		if err != nil {
			return v, err
		}
		if len(rebuilds.Items) > 0 && rebuilds.Items[0].ID > v.Verified.ID {
			v.Rebuilt = rebuilds.Items[0].ID
		}
	}
	if v.Pace, err = s.Samples.Pace(ctx); err != nil {
		return v, err
	}
	if v.Tonight, err = s.Alerts.Tonight(ctx, v.Summary); err != nil {
		return v, err
	}
	v.Acts, err = s.Store.LatestActs(ctx, operator.AuditFilter{Outcome: operator.AuditDone, Limit: activityShown})
	return v, err
}

// causes reads the errors of failed and dead rows, worst first, with the operations that requeue
// them.
func (s *server) causes(ctx context.Context) (groups []campaign.AssessedGroup, all campaign.ErrorGroups, err error) {
	if all, err = s.Store.ErrorGroups(ctx); err != nil {
		return nil, all, err
	}
	running, err := s.Operations.Requeuing(ctx)
	if err != nil {
		return nil, all, err
	}
	groups = all.Assessed(campaign.RunningOf(s.Version, s.Projections), running)
	return groups, all, s.Runs.RestOnRehearsals(ctx, groups, s.Projections)
}

func (s *server) overviewFrame(r *http.Request, v sharedOverview) ui.Page {
	p := s.actingPage(r, "Overview", "Overview", "")
	p.Around, p.Loaded = v.Summary.Surroundings(), v.Summary.Built(s.Projections)
	p.Around.Pace, p.Findings = v.Pace, v.Summary.Findings
	p.AsOf, p.Self, p.Twin = v.Summary.AsOf, s.linksOf(r).Overview(), s.linksOf(r).API().Summary()
	return p
}

func (s *server) overviewPage(w http.ResponseWriter, r *http.Request) error {
	over, err := s.pageRange(r)
	if err != nil {
		return err
	}
	p, view, live, err := s.readOverview(r, over)
	if err != nil {
		return err
	}
	if view.Summary.Campaigns.Total == 0 { // the first steps show the address that this reader uses
		if live, err = s.renderOverview(r.Context(), p, view); err != nil {
			return err
		}
	}
	whole := func(p ui.Page, v sharedOverview) templ.Component {
		return overview.OverviewPage(p, v.Overview, written(p, live))
	}
	return s.renderActed(w, r, p, pageOf(whole, view), pageOf(written, live))
}

func (s *server) renderOverview(ctx context.Context, p ui.Page, v sharedOverview) ([]byte, error) {
	var buf bytes.Buffer
	err := s.writePage(ctx, &buf, p, pageOf(func(p ui.Page, v sharedOverview) templ.Component {
		return overview.OverviewLive(p, v.Overview)
	}, v))
	return buf.Bytes(), err
}

// written returns an already rendered part of a page.
func written(_ ui.Page, drawn []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(drawn)
		return err
	})
}
