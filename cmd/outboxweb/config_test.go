package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A list in the file is taken item by item: joined, two patterns would be one that matches nothing,
// and a group's name with a comma would be two.
func TestConfig_listsAreTakenToTheLetter(t *testing.T) {
	t.Parallel()
	c, err := parseServe(t, "redact_value: ['DE\\d{18,20}', 'ssn-\\d+']\nredact_key: [iban, card number]\nviewer: ['group:cn=ops,dc=example', 'user:CORP\\ana']\n")
	if err != nil {
		t.Fatal(err)
	}
	hide, err := c.Serve.redactor()
	if err != nil {
		t.Fatal(err)
	}
	if got := hide.Text("DE123456789012345678 ssn-12 iban=ab12cd34"); got != "[redacted] [redacted] iban=[redacted]" {
		t.Errorf("what is left of secrets: %s", got)
	}
	if want := []string{"group:cn=ops,dc=example", `user:CORP\ana`}; !slices.Equal(c.Serve.Viewer, want) {
		t.Errorf("viewers are %q, not %q", c.Serve.Viewer, want)
	}
}

// Event types and campaigns have commas: in the file they stay, and on the command line one is written \,.
func TestConfig_anItemOfAListMayHaveACommaInIt(t *testing.T) {
	t.Parallel()
	fromFile, err := parseServe(t, "audit_only: ['a,b', 'order:created']\ncampaigns: ['eu,de-*', 'us']\n")
	if err != nil {
		t.Fatal(err)
	}
	var fromFlags, rehearse cli
	if _, err := newParser(&fromFlags, streams{out: io.Discard, err: io.Discard}).Parse([]string{"serve", "--audit-only", `a\,b,order:created`, "--campaigns", `eu\,de-*`, "--campaigns", "us"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []cli{fromFile, fromFlags} {
		if want := []string{"a,b", "order:created"}; !slices.Equal(c.AuditOnly, want) {
			t.Errorf("audit-only types are %q, not %q", c.AuditOnly, want)
		}
		if want := []string{"eu,de-*", "us"}; !slices.Equal(c.Serve.Campaigns, want) {
			t.Errorf("campaigns are %q, not %q", c.Serve.Campaigns, want)
		}
	}
	if _, err := newParser(&rehearse, streams{out: io.Discard, err: io.Discard}).Parse([]string{"rehearse", "x.sql", "--campaign", "eu,de"}); err != nil || !slices.Equal(rehearse.Rehearse.Campaign, []string{"eu,de"}) {
		t.Errorf("campaigns to rehearse are %q, %v", rehearse.Rehearse.Campaign, err)
	}
}

// A duration may be in days, and 0, which YAML parses as a number, needs no unit.
func TestConfig_spansOfTimeMayBeInDays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"365d": "365d", "36h": "36h0m0s", "0": "0", "'0'": "0", "24h": "1d"} {
		c, err := parseServe(t, "keep_audit: "+text+"\nkeep_history: "+text+"\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if audit, history := c.Serve.KeepAudit.String(), c.Serve.KeepHistory.String(); audit != want || history != want {
			t.Errorf("%s: audit records are kept for %s and history for %s, not %s", text, audit, history, want)
		}
	}
	for _, text := range []string{"365", "1.5", "true", "many", "-1d", "[365d]"} {
		_, err := parseServe(t, "keep_audit: "+text+"\n")
		if err == nil || !strings.Contains(err.Error(), "line 1: keep_audit must be a duration such as 36h or 365d") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A duration has a unit, unless it is 0, which YAML parses as a number.
func TestConfig_aDurationOfZeroNeedsNoUnit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "'0'": 0, "0s": 0, "36h": 36 * time.Hour} {
		if c, err := parseServe(t, "verify_every: "+text+"\n"); err != nil || c.Serve.VerifyEvery != want {
			t.Errorf("%s: %s, %v", text, c.Serve.VerifyEvery, err)
		}
	}
	for _, text := range []string{"36", "0.5", "true", "[0]"} {
		_, err := parseServe(t, "verify_every: "+text+"\n")
		if err == nil || !strings.Contains(err.Error(), "line 1: verify_every must be a duration such as 2s") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// parseServe has serve read a configuration file.
func parseServe(t *testing.T, config string) (c cli, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "outboxweb.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = newParser(&c, streams{out: io.Discard, err: io.Discard}).Parse([]string{"serve", "--config", file})
	return c, err
}
