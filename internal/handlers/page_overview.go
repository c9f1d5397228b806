package handlers

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/web/templates"
)

// boardSize is how many campaigns in trouble the overview lists.
const boardSize = 20

// overviewCache shares what the overview shows between all who look within a
// second. An error is shared likewise: while the database is away they would
// wait for it one after the other.
type overviewCache struct {
	mu    sync.Mutex
	view  templates.Overview
	err   error
	taken time.Time
}

// readOverview reads what the overview shows, or what it showed less than a
// second ago.
func (s *server) readOverview(ctx context.Context) (templates.Overview, error) {
	c := &s.overview
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.taken) >= time.Second {
		c.view, c.err = s.takeOverview(context.WithoutCancel(ctx)) // others wait for this result too
		c.taken = time.Now()
	}
	return c.view, c.err
}

func (s *server) takeOverview(ctx context.Context) (templates.Overview, error) {
	summary, err := s.Store.Summary(ctx)
	if err != nil {
		return templates.Overview{}, err
	}
	view := templates.Overview{Summary: summary, Errors: map[string]string{}}
	if summary.Counts.Failed+summary.Counts.Dead+summary.Campaigns.Diverged > 0 {
		if view.Blocked, err = s.Store.Blocked(ctx, boardSize); err != nil {
			return templates.Overview{}, err
		}
	}
	if err := s.readCauses(ctx, summary.Counts, &view); err != nil {
		return templates.Overview{}, err
	}
	return view, nil
}

// causesShown is how many different errors the overview lists.
const causesShown = 8

// readCauses notes the last errors of heads and groups them. It looks at the
// first page of dead and of failed rows: a head that is on neither is shown
// without its error.
func (s *server) readCauses(ctx context.Context, counts outbox.Counts, view *templates.Overview) error {
	found := map[string]*templates.Cause{}
	for _, status := range []outbox.Status{outbox.Dead, outbox.Failed} {
		if counts.Of(status) == 0 {
			continue
		}
		page, err := s.Store.Rows(ctx, outbox.RowFilter{Status: status, Limit: 200})
		if err != nil {
			return err
		}
		view.Partial = view.Partial || page.NextCursor != nil
		for _, r := range page.Items {
			if r.IsHead {
				view.Errors[r.CampaignID] = r.LastError
			}
			countCause(found, r)
		}
	}
	for _, c := range found {
		view.Causes = append(view.Causes, *c)
	}
	slices.SortFunc(view.Causes, func(a, b templates.Cause) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	view.Causes = view.Causes[:min(len(view.Causes), causesShown)]
	return nil
}

func countCause(found map[string]*templates.Cause, r outbox.Row) {
	c := found[r.Fingerprint]
	if c == nil {
		c = &templates.Cause{Fingerprint: r.Fingerprint, Example: r.LastError}
		found[r.Fingerprint] = c
	}
	if r.Status == outbox.Dead {
		c.Dead++
	} else {
		c.Failed++
	}
}

func (s *server) overviewPage(w http.ResponseWriter, r *http.Request) error {
	view, err := s.readOverview(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Overview", "Overview")
	p.Around = view.Summary.Surroundings()
	p.AsOf, p.Self, p.Twin = view.Summary.AsOf, s.links.Overview(), s.links.API().Summary()
	if err := s.flash(r, &p); err != nil {
		return err
	}
	return s.renderLive(w, r, p, templates.OverviewPage(p, view), templates.OverviewLive(p, view))
}
