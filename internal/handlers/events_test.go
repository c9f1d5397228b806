package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// taken explains the failures of every event by a key that exists already.
func taken(_ context.Context, hide outbox.Hider, campaign string, seq int64) (outbox.EventExplanation, error) {
	x := outbox.EventExplanation{CampaignID: campaign, Seq: seq, EventType: poison, Failures: []outbox.ExplainedFailure{}}
	if seq != 2 {
		return x, nil
	}
	secret := json.RawMessage(`"` + outbox.Hidden + `"`)
	x.Failures = append(x.Failures, outbox.ExplainedFailure{
		Projection: "seats", Error: "projection seats (seats.sql:12) on poison.pill: <taken>", Reason: "A row with this key (seat) exists already in seats.",
		FailedVersion: "97b5433e5e7e99d7", LoadedVersion: "c18c0000000099d7",
		Statement: &outbox.FailedStatement{File: "seats.sql", Line: 12, Lines: []outbox.SourceLine{{Number: 11, Text: "-- on: poison.pill"}, {Number: 12, Text: "insert into seats values (:payload.<seat>);", Failed: true}},
			Values: []outbox.BoundValue{{Name: ":payload.<seat>", Value: json.RawMessage(`"<7>"`), Columns: []string{"seat"}, Computed: []string{"seat"}, Refused: true}, {Name: ":payload.code", Value: secret, Columns: []string{"code"}, Computed: []string{"code"}}}},
		Constraint: &outbox.Constraint{Kind: outbox.ConstraintUnique, Table: "seats", Columns: []string{"seat"}},
		Existing:   &outbox.ExistingRow{Table: "seats", Fields: []outbox.Field{{Name: "seat", Value: json.RawMessage(`"<7>"`)}, {Name: "password", Value: json.RawMessage(`"hunter22"`)}}},
	})
	return x, nil
}

func TestEventPage_explainsTheError(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Explain = taken }).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "A row with this key (seat) exists already in seats.", "seats.sql:12", "insert into seats values (:payload.&lt;seat&gt;);", "&#34;&lt;7&gt;&#34;",
		"The row that is there", "in an expression", "The loaded version differs from the one that failed (97b5433e5e7e → c18c00000000)", "hidden: looks like a secret").lacks(t, "hunter22")
	s.get("/campaigns/c-1/events/1").want(t, 200).lacks(t, `data-testid="explained"`)
	s.get("/api/v1/campaigns/c-1/events/2/explanation").want(t, 200, `"reason":"A row with this key (seat) exists already in seats."`, `"unexplained":""`).lacks(t, "hunter22")
	s.get("/api/v1/campaigns/c-1/events/1/explanation").want(t, 200, `"failures":[]`)

	groups := decodeAs[items[outbox.AssessedGroup]](t, s.get("/api/v1/failures/groups").want(t, 200)).Items
	cause := string(templates.NewLinks("").FailureGroup(groups[0].Fingerprint))
	s.get(cause).want(t, 200, "A row with this key (seat) exists already in seats.", `href="/campaigns/c-1/events/2" data-testid="example"`)
	s.get("/failures").want(t, 200, `data-testid="explained"`) // the only cause
}

func TestFailuresPage_saysTheErrorOnce(t *testing.T) {
	t.Parallel()
	said := func(explained string) {
		t.Helper()
		s := newSite(t, func(c *Config) {
			c.Explain = func(ctx context.Context, hide outbox.Hider, campaign string, seq int64) (outbox.EventExplanation, error) {
				x, err := taken(ctx, hide, campaign, seq)
				x.Failures[0].Error = explained
				return x, err
			}
		}).trouble()
		page := s.get("/failures").want(t, 200, `data-testid="explained"`, "seat &#34;7&#34; is &lt;taken&gt;")
		if again := strings.Contains(page.body, `<p class="error">`); again != (explained == "another") {
			t.Errorf("%q is said again: %v", explained, again)
		}
	}
	said(`seat "7" is <taken>`)
	said("another")
}

func TestEventPage_showsTheErrorWhereItCannotBeExplained(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Explain = func(context.Context, outbox.Hider, string, int64) (outbox.EventExplanation, error) {
			return outbox.EventExplanation{}, errors.New("dial tcp: internal text")
		}
	}).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "The error cannot be explained at the moment.", "seat &#34;7&#34; is &lt;taken&gt;", `data-testid="requeue"`).lacks(t, "internal text")
	s.get("/failures?fingerprint=x").want(t, 200).lacks(t, "internal text")
	s = newSite(t).trouble()
	s.get("/campaigns/c-1/events/2").want(t, 200, "seat &#34;7&#34; is &lt;taken&gt;").lacks(t, "cannot be explained")
	s.get("/api/v1/campaigns/c-1/events/2/explanation").want(t, 404)
}

func TestEventPage_hasTabsWithNothingOfTheOthers(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Explain = taken }).trouble()
	parts := map[string]string{"": `data-testid="happened"`, "?tab=payload": `data-testid="tree-payload"`, "?tab=neighbours": `<ol class="queue"`, "?tab=details": "Chain hash"}
	for tab := range parts {
		a := s.get("/campaigns/c-1/events/2"+tab).want(t, 200, "Event 2 <span", `data-testid="requeue"`, "A row with this key (seat)", `aria-label="About this event"`, `aria-current="page"`)
		for other, part := range parts {
			if other == tab {
				a.want(t, 200, part)
			} else {
				a.lacks(t, part)
			}
		}
		s.get("/campaigns/c-1/events/2"+tab, header("HX-Target", "live")).want(t, 200, parts[tab]).lacks(t, "<html")
	}
	s.get("/campaigns/c-1/events/2?tab=nothing").want(t, 422)
	s.get("/campaigns/c-1/events/2").want(t, 200, `data-testid="preview"`, `rel="prev" data-step="["`, `rel="next" data-step="]"`)
}

func TestRowAddress_leadsToTheEvent(t *testing.T) {
	s := ownSite(t).trouble()
	for from, want := range map[string]string{"/rows/c-1/2": "/campaigns/c-1/events/2", "/rows/c-1/1": "/campaigns/c-1/events/1", "/rows/c-1/2?act=1": "/campaigns/c-1/events/2?act=1"} {
		if to := s.get(from).want(t, http.StatusSeeOther).Header.Get("Location"); to != want {
			t.Errorf("%s leads to %s, want %s", from, to, want)
		}
	}
	s.get("/rows/c-1/99").want(t, 404)
	s.lands(s.submit("/rows/c-1/2/requeue", "expected_status=dead")).want(t, 200, "Requeued event 2 of campaign c-1", "→</span>")
}
