package handlers

import (
	"context"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
)

// beat writes the heartbeat of an instance with an interval of two seconds.
func (s *site) beat(id, version string) {
	s.t.Helper()
	must.OK(s.t, s.store.Heartbeat(context.Background(), outbox.InstanceState{ID: id, Host: "host-" + id, PID: 77, Version: version, Mode: outbox.ModeOutbox,
		StartedAt: s.clock, BeatEvery: 2 * time.Second, Applied: 44200, Failed: 3, Fenced: 1, Rates: outbox.Throughput{AppliedPerSecond: 1234}}))
}

// lease has an instance claim all due campaigns, for half a minute.
func (s *site) lease(id string) {
	s.t.Helper()
	claims, err := s.store.Claim(context.Background(), store.Worker{ID: id}, store.ClaimLimits{Rows: 1000, Lease: 30 * time.Second})
	if err != nil || len(claims) == 0 {
		s.t.Fatalf("claimed %v, %v", claims, err)
	}
}

// died seeds a site on which one instance died twelve seconds ago with two leased campaigns, while
// two of different versions are running.
func died(t *testing.T) *site {
	t.Helper()
	s := ownSite(t)
	s.seed("c-1", "a", "b", "c")
	s.seed("c/2", "a")
	s.beat("dead", "v1")
	s.lease("dead")
	s.clock = s.clock.Add(12 * time.Second)
	s.beat("old", "v1")
	s.clock = s.clock.Add(time.Millisecond)
	s.beat("new", "v2")
	return s
}

func TestInstances_apiTellsWhoHoldsWhat(t *testing.T) {
	s := died(t)
	why := `silent for 12 s; its 2 campaigns become claimable in 17 s (07:00:30 UTC)`
	got := s.get("/api/v1/instances").want(t, 200, `"next_cursor":null`,
		`{"items":[{"id":"dead","host":"host-dead","pid":77,"version":"v1","mode":"outbox_apply_only","campaigns":["*"],"stopped_at":null,"applied_total":44200`,
		`"started_at":"2026-11-21T07:00:00Z","last_seen":"2026-11-21T07:00:00Z","heartbeat_seconds":2,"clock_ahead_seconds":0,"state":"silent","why":"`+why+`"`,
		`"leases":{"campaigns":2,"withheld":0,"rows":4,"claimable_from":"2026-11-21T07:00:30Z","claimable_by":"2026-11-21T07:00:30Z","held":[`+
			`{"campaign_id":"c-1","epoch":1,"head_seq":1,"rows":3,"expires_at":"2026-11-21T07:00:30Z","withheld":false},{"campaign_id":"c/2"`,
		`"state":"running","why":"running; nothing leased","leases":{"campaigns":0,"withheld":0,"rows":0,"claimable_from":null,"claimable_by":null,"held":[],"publishers":[]}`)
	var ids []string
	for _, m := range regexp.MustCompile(`"id":"([^"]*)"`).FindAllStringSubmatch(got.body, -1) {
		ids = append(ids, m[1])
	}
	must.Equal(t, strings.Join(ids, " "), "dead new old", "the order")
	s.get("/api/v1/summary").want(t, 200, `"heartbeat_seconds":2`).lacks(t, `"leases"`, `"why"`)
}

func TestInstances_pageTellsWhoHoldsWhat(t *testing.T) {
	s := died(t)
	a := s.get("/instances").want(t, 200,
		"Instance dead has been silent for 12 s.", "2 instances are running, 1 silent.",
		"Versions differ, as during a rolling restart: v1 (1), v2 (1).",
		`id="instance-dead"`, `data-testid="instance-dead"`, "!</span> silent", "✓</span> running",
		"process 77 on host-dead", "version v1, applied by workers", "Silent for 12 s; its 2 campaigns become claimable",
		`<details open><summary>Silent`, `href="/campaigns/c-1"><code>c-1</code>`, "events 1–3, epoch 1", `href="/campaigns/c%2F2"`, "event 1, epoch 1",
		"Running; nothing leased.", "44,200", "1,234/s", `title="Heartbeat every 2 s"`)
	dead, running := strings.Index(a.body, `id="instance-dead"`), strings.Index(a.body, `id="instance-new"`)
	must.Hold(t, dead <= running, "who left campaigns behind does not come first")
}

func TestInstances_ownersOfLeasesLeadToTheirInstance(t *testing.T) {
	t.Parallel()
	anchor := regexp.MustCompile(`href="/instances#([^"]*)"`)
	for _, id := range append([]string{"host-1a2b"}, oddIDs[:size.Of(2, 4, len(oddIDs))]...) {
		s := newSite(t)
		s.seed("c-1", "a")
		s.lease(id)
		found := anchor.FindStringSubmatch(s.get("/campaigns/c-1").want(t, 200).body)
		if found == nil {
			t.Errorf("the owner %q is no link", id)
			continue
		}
		fragment, err := url.PathUnescape(html.UnescapeString(found[1]))
		if err != nil || fragment != "instance-"+id {
			t.Errorf("the owner %q leads to %q, %v", id, found[1], err)
		}
		s.get("/instances").want(t, 200, `id="`+htmlEscape(fragment)+`"`, "Unknown: it left no record; its campaign becomes claimable", "1 instance is silent.")
		s.get("/api/v1/instances").want(t, 200, `"started_at":null,"last_seen":null,"heartbeat_seconds":0,"clock_ahead_seconds":0,"state":"silent"`)
	}
}

func TestInstances_ofNobodySayThatNoneHasStarted(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.get("/instances").want(t, 200, "No worker has started yet.").lacks(t, "<table")
	s.get("/campaigns/c-1").want(t, 200, "no lease").lacks(t, "/instances#")
}
