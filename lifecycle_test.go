package outboxweb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// A second Run would apply with the identity of the first one, and Run after Close without databases.
func TestRun_refusesToRunTwiceAtATime(t *testing.T) {
	t.Parallel()
	e := open(t)
	must.OK(t, e.Project(orders()))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ran := make(chan error, 1)
	runs := func(ctx context.Context, campaign string) {
		t.Helper()
		go func() { ran <- e.Run(ctx) }()
		must.Get(e.Append(t.Context(), placed(campaign, "tea"))).Or(t)
		must.OK(t, e.WaitApplied(wait(t), campaign, 1))
	}
	runs(ctx, "o-1")
	second, cancel := context.WithTimeout(t.Context(), must.Patience)
	defer cancel()
	if err := e.Run(second); !errors.Is(err, outboxweb.ErrSetup) || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a second Run: %v, want ErrSetup", err)
	}
	stop()
	must.OK(t, <-ran)

	again, stop := context.WithCancel(t.Context())
	defer stop()
	runs(again, "o-2")
	stop()
	must.OK(t, <-ran)

	runs(t.Context(), "o-3")
	must.OK(t, e.Close())
	must.OK(t, <-ran) // Close has ended it
	ended, cancel := context.WithTimeout(t.Context(), must.Patience)
	defer cancel()
	if err := e.Run(ended); !errors.Is(err, outboxweb.ErrSetup) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Run after Close: %v, want ErrSetup", err)
	}
	_, err := e.Append(t.Context(), placed("o-4", "tea"))
	_, readErr := e.EventsMatching(t.Context(), 0, 1, outboxweb.Match{EventTypes: []string{"order.placed"}})
	for call, err := range map[string]error{"Append": err, "EventsMatching": readErr, "WaitApplied": e.WaitApplied(t.Context(), "o-3", 1), "Project": e.Project(outboxweb.Projection{})} {
		is(t, err, outboxweb.ErrSetup, call+" after Close")
	}
	must.OK(t, e.Close())
}

// A claim whose answer is lost when the process is asked to stop leases a row that no part of it knows.
func TestEngine_leavesNothingLeased(t *testing.T) {
	t.Parallel()
	var db *sql.DB
	e := open(t, func(c *outboxweb.Config) { db = dbtest.Open(t, c.JournalDB) })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	must.Get(e.Append(t.Context(), placed("o-1", "tea"))).Or(t)
	must.OK(t, e.WaitApplied(wait(t), "o-1", 1))
	for _, lost := range []string{
		`update campaigns set lease_owner = (select max(id) from instances), lease_expires_at = 9e15, paused_at = 1`,
		`insert into intake_sources (source, lease_owner, lease_expires_at) select 'till', max(id), 9e15 from instances`,
		`insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, lease_owner, lease_expires_at)
		 select 't', 'p', '', '', 1, 0, 1, 1, max(id), 9e15 from instances`,
		`insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at, lease_owner, lease_expires_at)
		 select 'replay', 'paused', '["o-1"]', 0, '[]', '{}', '', '', '', '', 1, 1, max(id), 9e15 from instances`,
	} {
		must.Get(db.ExecContext(t.Context(), lost)).Or(t)
	}
	stop()
	must.OK(t, <-ran)
	for _, table := range []string{"campaigns", "intake_sources", "publisher_progress", "runs", "alert_evaluator"} {
		left := storetest.Column[int](t, db, `select count(*) from `+table+` where lease_owner <> '' and lease_expires_at >= 9e15`)[0]
		must.Hold(t, left <= 0, "%d of %s are still leased", left, table)
	}
}

func TestOpen_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := dbtest.New(t)
	from := func(name string, s outboxweb.Source) func(*outboxweb.Config) {
		return func(c *outboxweb.Config) { c.Sources = map[string]outboxweb.Source{name: s} }
	}
	for want, change := range map[string]func(*outboxweb.Config){
		"JournalDB and ProjectionsDB are required":                func(c *outboxweb.Config) { c.JournalDB = "" },
		`Config.JournalDB: "d/j.db" is not a database URL`:        func(c *outboxweb.Config) { c.JournalDB = "d/j.db" },
		"Config.ProjectionsDB: the path of":                       func(c *outboxweb.Config) { c.ProjectionsDB = "sqlite:" },
		"Config.JournalDB and Config.ProjectionsDB name the same": func(c *outboxweb.Config) { c.ProjectionsDB = c.JournalDB },
		"Config.JournalDB, or create it":                          func(c *outboxweb.Config) { c.JournalDB, c.NoMigrate = "sqlite:/nowhere/journal.db", true },
		"Config.JournalDB: \"postgres":                            func(c *outboxweb.Config) { c.JournalDB = "postgres://h:x/d" },
		"BasePath":                                                func(c *outboxweb.Config) { c.BasePath = "admin" },
		"SignOut":                                                 func(c *outboxweb.Config) { c.SignOut = "//evil.example" },
		"PublicURL":                                               func(c *outboxweb.Config) { c.PublicURL = "shop.example" },
		"does not exist": func(c *outboxweb.Config) {
			c.Projections = []string{"/nowhere/at/all"}
		},
		"FrameAncestors: \"portal.example\" is not scheme://host": func(c *outboxweb.Config) { c.FrameAncestors = []string{"'self'", "portal.example"} },
		"and not 'self' either":                                   func(c *outboxweb.Config) { c.FrameAncestors = []string{"self"} },
		"Hosts: ":                                                 func(c *outboxweb.Config) { c.Hosts = []string{"https://x"} },
		"MaxAttempts must be 0 for the default":                   func(c *outboxweb.Config) { c.MaxAttempts = -1 },
		"BatchSize must be 100000 or less":                        func(c *outboxweb.Config) { c.BatchSize = 100_001 },
		"PollInterval must be 1ms or more":                        func(c *outboxweb.Config) { c.PollInterval = -1 },
		"Lease must be 100ms or more":                             func(c *outboxweb.Config) { c.Lease = time.Millisecond },
		"RetryMax must be 2s or more":                             func(c *outboxweb.Config) { c.RetryBase, c.RetryMax = 2*time.Second, time.Second },
		"KeepAudit must be 24h0m0s or more, or 0 for forever":     func(c *outboxweb.Config) { c.KeepAudit = time.Minute },
		"Alerts: line 1: ":                                        func(c *outboxweb.Config) { c.Alerts = `to: [pigeon+https://x]` },
		"Alerts: mapping values":                                  func(c *outboxweb.Config) { c.Alerts = `to: a: b` },
		`source "shop": a source is a database`:                   from("shop", outboxweb.Source{}),
		`source "shop": it is not`:                                from("shop", outboxweb.Source{URL: "postgres://shop:secret@[/x"}),
		`source "shop": BatchSize is 10001`:                       from("shop", outboxweb.Source{URL: "sqlite:shop.db", BatchSize: 10_001}),
		`source "shop": there is no layout`:                       from("shop", outboxweb.Source{URL: "sqlite:shop.db", Layout: "rails"}),
		`source "shop": "" cannot be`:                             from("shop", outboxweb.Source{URL: "sqlite:shop.db", Table: "shop."}),
		`"My Shop"`:                                               from("My Shop", outboxweb.Source{URL: "sqlite:shop.db"}),
	} {
		c := outboxweb.Config{JournalDB: p.Journal, ProjectionsDB: p.Projections}
		change(&c)
		if _, err := outboxweb.Open(t.Context(), c); !errors.Is(err, outboxweb.ErrSetup) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") || strings.Contains(err.Error(), "secret") {
			t.Errorf("error %v, want ErrSetup with %q", err, want)
		}
	}
}
