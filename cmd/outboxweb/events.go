package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// eventsCmd searches the events of all campaigns.
type eventsCmd struct {
	Campaign   string `placeholder:"C" help:"Events of this campaign."`
	ID         string `name:"id" placeholder:"ID" help:"Events with this event id."`
	Type       string `placeholder:"T" help:"Events of this type."`
	EntityType string `placeholder:"T" help:"Events of entities of this type."`
	Entity     string `placeholder:"ID" help:"Events of the entity with this id."`
	Actor      string `placeholder:"ID" help:"Events of the actor with this id."`
	Request    string `placeholder:"ID" help:"Events of this request."`
	Session    string `placeholder:"ID" help:"Events of this session."`
	Tag        string `placeholder:"NAME=VALUE" help:"Events with this tag."`
	Text       string `placeholder:"TEXT" help:"Events with this text in the payload, the metadata, the tags or an id; upper and lower case differ."`
	Since      string `placeholder:"TIME" help:"Events recorded at or after this: RFC 3339, a date, -2h or 14:00, the last one that is past (UTC)."`
	Until      string `placeholder:"TIME" help:"Events recorded before this; 14:10 is the first one from --since."`
	Time       string `enum:"recorded,occurred" default:"recorded" placeholder:"WHICH" help:"Compare --since and --until with when events were recorded, or occurred, which may be long before."`
	Limit      int    `placeholder:"N" default:"50" help:"Show at most this many events, newest first. Default 50."`
	Settled    bool   `help:"Also print the position for a conditional append that depends on these events. Not with --text, --since and --until; --limit must be enough for all of them."`
	jsonFlag
}

// settledEvents are events with the position for a conditional append.
type settledEvents struct {
	Events   []outbox.EventHit `json:"events"`
	Position *int64            `json:"position"`
}

// Run searches until there are as many events as wanted, or no more.
func (c *eventsCmd) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 {
		return usagef("--limit must be 1 or more")
	}
	f, err := c.filter(time.Now())
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine.Engine) error {
		_, loaded, err := installed(ctx, st)
		if err != nil {
			return err
		}
		events, found := []outbox.EventHit{}, settledEvents{}
		var next *string
		for len(events) < c.Limit {
			f.Limit = min(outbox.MaxPage, c.Limit-len(events))
			page, err := st.Search.Events(ctx, f)
			if err == nil {
				err = st.Runs.AddHeld(ctx, loaded, page.Items)
			}
			if err != nil {
				return err
			}
			events = append(events, page.Items...)
			if f.Settled {
				f.Settled, found.Position = false, page.Position
			}
			if next = page.NextCursor; next == nil {
				break
			}
			f.Cursor = *next
		}
		a.printCut(next, len(events), "events")
		var unknown error
		if len(events) == 0 && c.Campaign != "" {
			_, unknown = st.Campaign(ctx, c.Campaign)
		}
		switch {
		case c.JSON && unknown != nil:
			return unknown
		case c.Settled && c.JSON:
			found.Events = events
			return a.printJSON(found)
		case c.JSON:
			return a.printJSON(events)
		case c.Settled:
			fmt.Fprintf(a.out, "settled position %d\n", *found.Position)
		}
		if len(events) == 0 {
			fmt.Fprintln(a.out, "no event matches")
			return cmp.Or(a.printMisses(ctx, st, f), unknown)
		}
		return a.printEvents(events)
	})
}

// printMisses says which values of a search do not exist.
func (a *app) printMisses(ctx context.Context, st *engine.Engine, f outbox.EventFilter) error {
	misses, err := st.Search.Misses(ctx, f)
	for _, m := range misses {
		fmt.Fprintln(a.out, m.Sentence())
	}
	if f.Ranged() && !f.Occurred {
		fmt.Fprintln(a.out, "times are when events were recorded; --time occurred searches by when they occurred")
	}
	return err
}

func (c *eventsCmd) filter(now time.Time) (outbox.EventFilter, error) {
	since, until, err := outbox.ParseRange(c.Since, c.Until, now)
	if err != nil {
		if refusal, ok := errors.AsType[*outbox.Refusal](err); ok {
			err = asUsage("--"+refusal.Field, refusal)
		}
		return outbox.EventFilter{}, err
	}
	return outbox.EventFilter{CampaignID: c.Campaign, EventID: c.ID, EventType: c.Type, EntityType: c.EntityType, EntityID: c.Entity, ActorID: c.Actor,
		RequestID: c.Request, SessionID: c.Session, Tag: c.Tag, Q: c.Text, Since: since, Until: until, Occurred: c.Time == "occurred", Settled: c.Settled}, nil
}

func (a *app) printEvents(events []outbox.EventHit) error {
	return printTable(a.out, "OCCURRED\tRECORDED\tCAMPAIGN\tSEQ\tSTATE\tTYPE\tENTITY\tPAYLOAD", events, func(e outbox.EventHit) []any {
		return []any{e.OccurredAt.UTC().Format(time.RFC3339), e.RecordedAt.UTC().Format(time.RFC3339), e.CampaignID, e.Seq, e.StateText(), e.EventType, firstLine(e.EntityType+" "+e.EntityID, 60), firstLine(e.Excerpt, 80)}
	})
}
