package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/actions"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/web/templates/delivery"
)

// publishersCmd lists publishers and controls them.
type publishersCmd struct {
	List    publishersListCmd    `cmd:"" help:"List publishers and how far behind each is."`
	Show    publishersShowCmd    `cmd:"" help:"Show a publisher, its last error and recent activity."`
	History publishersHistoryCmd `cmd:"" help:"Show a publisher's history over the last hour or day."`
	Pause   publishersPauseCmd   `cmd:"" help:"Pause a publisher, or all of a name; positions do not move."`
	Resume  publishersPauseCmd   `cmd:"" help:"Resume a paused or failed publisher, or all of a name, at once and clear their errors."`
	kong.Plugins
	Seek publishersSeekCmd `cmd:"" help:"Move a publisher's position (reset its offset), repeating or skipping events."`
	Test publishersTestCmd `cmd:"" help:"Send a test event to a publisher's destination; exit 1 if it is not delivered."`
}

type publishersListCmd struct {
	Limit int `placeholder:"N" default:"${default_page}" least:"1" help:"Show at most this many publishers, those first that need attention. Default ${default_page}."`
	jsonFlag
}

// Run lists publishers.
func (c *publishersListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	shared, err := st.Publishing.Publishers(ctx)
	if err != nil {
		return err
	}
	now, all := time.Now(), slices.Clone(shared)
	if subscription.SortPublishers(all, now); len(all) > c.Limit {
		all = all[:c.Limit]
		a.printCut(new(string), c.Limit, "publishers")
	}
	return printList(a, c.jsonFlag, "publishers", all, delivery.PublisherColumns(shownNow()))
}

// publisherActionsShown is how many actions on a publisher are printed.
const publisherActionsShown = 10

type publishersShowCmd struct {
	actions.Publisher
	jsonFlag
}

// Run shows one publisher.
func (c *publishersShowCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	p, err := st.Publishing.Publisher(ctx, c.Publisher.Name.SubscriptionName)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(p)
	}
	acts, err := st.AuditLogOf(ctx, publisherActionsShown, operator.PublisherTarget(p.SubscriptionName), operator.PublishersTarget(p.SubscriptionName.Publisher))
	if err != nil {
		return err
	}
	return a.printPublisher(p, acts)
}

func (a *app) printPublisher(p subscription.Publisher, acts []operator.AuditEntry) error {
	t, now := table(a.out), time.Now()
	t.row(p, p.State(now))
	t.row("why", p.Why(now))
	t.row("destination", p.Destination)
	t.row("selects", p.Match.Words())
	t.row("position", fmt.Sprintf("%d of %d", p.Position, p.HeadPosition))
	t.row("lag", p.Lag())
	t.row("delivered", fmt.Sprintf("%s, the last at position %d", event.Count(p.Delivered, "event", "events"), p.DeliveredPosition))
	t.row("last delivery", stampOr(p.LastPublishedAt, "never"))
	t.row("leased by", p.LeasedBy(now))
	if p.Paused != nil {
		t.row("paused", fmt.Sprintf("by %s at %s: %s", p.Paused.By, stamp(p.Paused.At), p.Paused.Reason))
	}
	if p.ErrorCount > 0 {
		t.row("errors in a row", p.ErrorCount)
		t.row("cause", p.Blame())
	}
	if e := p.ErrorEvent; e != nil {
		t.row("could not deliver", fmt.Sprintf("event %d (%s) of campaign %s, at position %d", e.Seq, e.EventType, e.CampaignID, e.Position))
	}
	if p.Healthy != nil {
		text := fmt.Sprintf("%t at %s: %s", *p.Healthy, stampOr(p.HealthAt, "an unknown time"), firstLine(p.HealthMessage, 120))
		t.row("healthy", strings.TrimSuffix(text, ": "))
	}
	if p.HangingSince != nil {
		t.row("call", "has not returned since "+stamp(*p.HangingSince))
	}
	if p.Settings.BatchSize > 0 {
		t.row("settings", p.Settings.String())
	}
	switch {
	case p.Stopped:
		t.row("next try", "after a resume or reset: the destination reported that it is gone")
	case p.RetryAt != nil:
		t.row("next try", stamp(*p.RetryAt))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if p.LastError != "" {
		fmt.Fprintf(a.out, "\nlast error, at %s\n%s\n", stampOr(p.LastErrorAt, "an unknown time"), p.LastError)
	}
	for i, act := range acts {
		if i == 0 {
			fmt.Fprintln(a.out, "\nrecent activity")
		}
		did := string(act.Action)
		if act.Outcome == operator.AuditRefused {
			did += " (refused)"
		}
		t.row(stamp(act.At), act.Actor, did, firstLine(act.Reason, 120))
	}
	return t.Flush()
}

type publishersHistoryCmd struct {
	actions.Publisher
	Range string `enum:"1h,6h,24h,7d" default:"1h" help:"How far back: 1h (in steps of a minute), 6h (5 minutes), 24h (15 minutes) or 7d (2 hours)."`
	Span  string `enum:",hour,day" default:"" help:"An older name of the range: hour is 1h, and day is 24h."`
	jsonFlag
}

// Run prints the history of one publisher.
func (c *publishersHistoryCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	over := samples.Range{Name: samples.RangeName(c.Range)}
	if c.Span != "" {
		over = samples.OfSpan(samples.Span(c.Span))
	}
	history, err := st.Publishing.History(ctx, c.Publisher.Name.SubscriptionName, over)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(history)
	}
	return printTable(a.out, "AT\tDELIVERED\tEVENTS/S\tLAG\tERRORS", history.Points, func(p publishing.PublisherPoint) []any {
		lag := subscription.Publisher{LagEvents: p.LagEvents, LagCapped: p.LagCapped, LagSeconds: p.LagSeconds}.Lag()
		return []any{stamp(p.At), p.Delivered, fmt.Sprintf("%.1f", p.PerSecond), lag, p.ErrorsInARow}
	})
}

// publishersPauseCmd pauses or resumes one publisher, or those of a name in all topics.
type publishersPauseCmd struct {
	Publisher *actions.PublisherName `arg:"" optional:"" help:"The publisher, as TOPIC/PUBLISHER."`
	Name      string                 `placeholder:"NAME" help:"Instead of TOPIC/PUBLISHER: the publishers of this name in all topics, at once."`
	actionFlags
}

func (c *publishersPauseCmd) check() error {
	if (c.Publisher == nil) == (c.Name == "") {
		return usagef("name one publisher as TOPIC/PUBLISHER, or with --name those of a name in all topics")
	}
	return nil
}

// Run does what the command's name says.
func (c *publishersPauseCmd) Run(ctx context.Context, a *app, st *engine.Engine, parsed *kong.Context) error {
	if c.Publisher != nil {
		act, past := pauseOrResume(parsed, st.Publishing.Pause, st.Publishing.Resume)
		p, err := act(ctx, command(c.Reason), c.Publisher.SubscriptionName)
		if err != nil {
			return err
		}
		return c.print(a, p, "%s", actions.PublisherText(past, p))
	}
	act, past := pauseOrResume(parsed, st.Publishing.PauseAll, st.Publishing.ResumeAll)
	done, err := act(ctx, command(c.Reason), c.Name)
	topics := event.Count(int64(len(done.Changed)), "topic", "topics")
	return c.answer(a, err, done, "%s publisher %s in %s; unchanged in %d", past, c.Name, topics, len(done.Unchanged))
}

type publishersSeekCmd struct {
	actions.Publisher
	subscription.SeekRequest
	jsonFlag
}

func (c *publishersSeekCmd) check() error {
	_, err := c.Target()
	switch refusal, _ := errors.AsType[*event.Refusal](err); {
	case err == nil:
		return nil
	case refusal.Field == "time":
		return asUsage("--time", err)
	}
	return usagef("publishers seek needs one of --position N, --time T and --to WHERE")
}

// Run moves the position of one publisher.
func (c *publishersSeekCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	target, err := c.Target()
	if err != nil {
		return err
	}
	if c.DryRun {
		seek, err := st.Publishing.PreviewSeek(ctx, c.Publisher.Name.SubscriptionName, target)
		return c.answerSeek(a, err, seek, "would continue")
	}
	return a.confirming(c.Reason, c.Confirm, func(o operator.Command) error {
		seek, err := st.Publishing.Seek(ctx, o, c.Publisher.Name.SubscriptionName, target, nil)
		return c.answerSeek(a, err, seek, "continues")
	})
}

func (c *publishersSeekCmd) answerSeek(a *app, err error, seek operator.Seek, does string) error {
	least := ""
	if seek.Capped {
		least = "at least "
	}
	return c.answer(a, err, seek, "publisher %s %s after position %d instead of %d: %s%s repeated, %s%s skipped", seek.SubscriptionName, does, seek.To, seek.From,
		least, event.Count(seek.Repeats, "event", "events"), least, event.Number(seek.Skips))
}

type publishersTestCmd struct {
	actions.Publisher
	actionFlags
}

// Run sends a made-up event and prints the outcome.
func (c *publishersTestCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	name := c.Publisher.Name.SubscriptionName
	sent, err := st.Publishing.Test(ctx, command(c.Reason), name, func(ctx context.Context) (subscription.TestDelivery, error) {
		sub, err := a.subscription(name)
		if err != nil {
			return subscription.TestDelivery{}, err
		}
		return st.TestPublisher(ctx, sub, a.publishOptions(), "")
	})
	if err != nil {
		return err
	}
	if sent.OK {
		return c.print(a, sent, "delivered event %s to publisher %s in %.3f s", sent.ID, sent.SubscriptionName, sent.Seconds)
	}
	err = c.print(a, sent, "publisher %s did not accept event %s after %.3f s: %s", sent.SubscriptionName, sent.ID, sent.Seconds, sent.Error)
	return cmp.Or(err, errFound)
}
