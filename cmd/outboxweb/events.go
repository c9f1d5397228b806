package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

// eventsCmd searches the events of all campaigns.
type eventsCmd struct {
	Filter search.EventFilter `embed:""`
	Since  string             `placeholder:"TIME" help:"Events recorded at or after this: RFC 3339, a date, -2h or 14:00, the last one that is past (UTC)."`
	Until  string             `placeholder:"TIME" help:"Events recorded before this; 14:10 is the first one from --since."`
	Limit  int                `placeholder:"N" default:"50" least:"1" help:"Show at most this many events, newest first. Default 50."`
	jsonFlag
}

func (c *eventsCmd) check() (err error) {
	if c.Filter.Time == "recorded" {
		c.Filter.Time = "" // the default
	}
	c.Filter.Since, c.Filter.Until, err = event.ParseRange(c.Since, c.Until, time.Now())
	return asFlag(err)
}

// Run searches until there are as many events as wanted, or no more.
func (c *eventsCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	f := c.Filter
	loaded, err := installed(ctx, st)
	if err != nil {
		return err
	}
	var position *int64 // for a conditional append
	events, err := pages(a, "events", c.Limit, func(cursor string, limit int) (event.Page[search.EventHit], error) {
		f.Cursor, f.Limit = cursor, limit
		page, err := st.Search.Events(ctx, f)
		if f.Settled {
			f.Settled, position = false, page.Position
		}
		if err == nil {
			err = st.Runs.AddHeld(ctx, loaded, page.Items)
		}
		return page.Page, err
	})
	if err != nil {
		return err
	}
	var unknown error
	if len(events) == 0 && f.CampaignID != "" {
		_, unknown = st.Campaign(ctx, f.CampaignID)
	}
	switch {
	case c.JSON && unknown != nil:
		return unknown
	case c.Filter.Settled && c.JSON:
		return a.printJSON(map[string]any{"events": events, "position": position})
	case c.JSON:
		return a.printJSON(events)
	case c.Filter.Settled:
		fmt.Fprintf(a.out, "settled position %d\n", *position)
	}
	if len(events) == 0 {
		fmt.Fprintln(a.out, "no event matches")
		return cmp.Or(a.printMisses(ctx, st, f), unknown)
	}
	return printColumns(a.out, campaigns.HitColumns(shownNow(), search.EventFilter{}), events)
}

// printMisses says which values of a search do not exist.
func (a *app) printMisses(ctx context.Context, st *engine.Engine, f search.EventFilter) error {
	misses, err := st.Search.Misses(ctx, f)
	for _, m := range misses {
		fmt.Fprintln(a.out, m.Sentence())
	}
	if f.Ranged() && !f.Occurred() {
		fmt.Fprintln(a.out, "times are when events were recorded; --time occurred searches by when they occurred")
	}
	return err
}
