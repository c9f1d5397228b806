package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	Follow bool               `help:"Then print events as they are appended, oldest first, until interrupted: as lines, or JSON Lines with --json. Not with --q, --actor-id, --session-id and --until."`
	jsonFlag
}

func (c *eventsCmd) check() (err error) {
	if f := c.Filter; c.Follow && (!f.Tails() || c.Until != "" || f.Settled) {
		return usagef("--follow is for the newest events, by campaign, type, entity, request, tag or publisher: not with --q, --actor-id, --session-id, --until, --time and --settled")
	}
	if c.Filter.Time == "recorded" {
		c.Filter.Time = "" // the default
	}
	c.Filter.Since, c.Filter.Until, err = event.ParseRange(c.Since, c.Until, time.Now())
	return asFlag(err)
}

// follow prints the newest events, and then those that are appended, until ctx ends.
func (c *eventsCmd) follow(ctx context.Context, a *app, st *engine.Engine) error {
	again := time.NewTicker(followEvery)
	defer again.Stop()
	last := int64(-1) // before the first look
	for f := c.Filter; ; {
		var news []search.EventHit
		f.Cursor, f.Limit = "", min(c.Limit, event.MaxPage)
		for more := true; more; {
			page, err := st.Search.Events(ctx, f)
			if err != nil {
				return err
			}
			older := slices.IndexFunc(page.Items, func(h search.EventHit) bool { return h.Position <= last })
			if more = older < 0 && last >= 0 && page.NextCursor != nil; more {
				f.Cursor, f.Limit = *page.NextCursor, event.MaxPage
			}
			if older >= 0 {
				page.Items = page.Items[:older]
			}
			news = append(news, page.Items...)
		}
		slices.Reverse(news)
		if err := c.printNews(a, news); err != nil {
			return err
		}
		if last < 0 && len(news) == 0 {
			misses, _ := st.Search.Misses(ctx, c.Filter) // worth a word while nothing comes
			for _, m := range misses {
				fmt.Fprintln(a.err, m.Sentence())
			}
		}
		if last = max(last, 0); len(news) > 0 {
			last = news[len(news)-1].Position
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// followEvery is how often follow looks for events.
const followEvery = time.Second

func (c *eventsCmd) printNews(a *app, news []search.EventHit) error {
	if !c.JSON {
		for _, h := range news {
			fmt.Fprintf(a.out, "%s %s %d %s %s\n", event.Second(h.RecordedAt), h.CampaignID, h.Seq, h.EventType, h.State)
		}
		return nil
	}
	lines := json.NewEncoder(a.out)
	for _, h := range news {
		if err := lines.Encode(h); err != nil {
			return err
		}
	}
	return nil
}

// Run searches until there are as many events as wanted, or no more.
func (c *eventsCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	if c.Follow {
		return c.follow(ctx, a, st)
	}
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
