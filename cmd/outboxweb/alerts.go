package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/web/templates/system"
)

// alertsCmd shows alerts and controls them.
type alertsCmd struct {
	List alertsListCmd `cmd:"" default:"withargs" help:"Show rules with their state, receivers and mutes."`
	Test alertsTestCmd `cmd:"" help:"Send a test message to a receiver; exit 1 if it is not taken."`
	kong.Plugins
}

// alerts returns the alerts of the configuration file, on the store that open opens.
func (a *app) alerts(open func() (*engine.Engine, error)) (*alerts.Alerts, error) {
	settings, err := section(&a.Common, alertsKey, alerts.Parse)
	if err != nil {
		return nil, err
	}
	st, err := open()
	if err != nil {
		return nil, err
	}
	return st.Alerts(settings, version, nil), nil
}

type alertsListCmd struct{ jsonFlag }

// Run shows the state of alerts.
func (c *alertsListCmd) Run(ctx context.Context, a *app, al *alerts.Alerts) error {
	v, err := al.View(ctx)
	if err != nil {
		return err
	}
	return c.show(a, v, func() error { return a.printAlerts(v) })
}

// lastEvaluated says how old the states of the rules are.
func lastEvaluated(at *time.Time, now time.Time) string {
	if at == nil {
		return "the rules have never been evaluated: no server has run with them"
	}
	text := "last evaluated " + event.Age(now.Sub(*at)) + " ago"
	if now.Sub(*at) > 2*alerts.Every {
		text += ": no server evaluates the rules now, and the states below are of then"
	}
	return text
}

func (a *app) printAlerts(v alerts.AlertsView) error {
	t := table(a.out)
	if !v.Configured {
		t.row("no alerts in the configuration of this command; name the file with --config")
		return t.Flush()
	}
	fmt.Fprintln(a.out, lastEvaluated(v.EvaluatedAt, time.Now()))
	t.row("RULE", "STATUS", "CAUSE", "SINCE", "RECEIVERS", "CONDITION")
	for _, r := range v.Rules {
		muted := ""
		if r.MutedUntil != nil {
			muted = ", muted until " + stamp(*r.MutedUntil)
		}
		found := false
		for _, one := range r.Alerts {
			if one.Status == alerts.AlertOK {
				continue
			}
			status := string(one.Status) + muted
			if one.EndedAt != nil {
				status += ", not found since " + stamp(*one.EndedAt)
			}
			t.row(r.Name, status, firstLine(one.Cause.Sentence, 120), stamp(one.Since), strings.Join(r.To, ", "), r.Condition)
			found = true
		}
		if !found {
			t.row(r.Name, string(r.Status())+muted, "", "", strings.Join(r.To, ", "), r.Condition)
		}
	}
	t.row()
	if err := t.Flush(); err != nil {
		return err
	}
	return printColumns(a.out, system.ReceiverColumns(shownNow()), v.Receivers)
}

type alertsTestCmd struct {
	Receiver string `arg:"" help:"The receiver's name, as shown by alerts."`
	actionFlags
}

// Run sends a test message and prints the outcome.
func (c *alertsTestCmd) Run(ctx context.Context, a *app, al *alerts.Alerts) error {
	d, err := al.Test(ctx, command(c.Reason), c.Receiver)
	if err != nil {
		return err
	}
	if d.OK {
		return c.print(a, d, "receiver %s took a test message in %.3f s", d.Receiver, d.Seconds)
	}
	err = c.print(a, d, "receiver %s did not take the test message after %.3f s: %s", d.Receiver, d.Seconds, d.Error)
	return cmp.Or(err, errFound)
}
