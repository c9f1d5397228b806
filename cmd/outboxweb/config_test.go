package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A list in the file is taken item by item: joined, two patterns would be one that matches nothing,
// and a group's name with a comma would be two.
func TestConfig_listsAreTakenToTheLetter(t *testing.T) {
	t.Parallel()
	c := must.Get(parseServe(t, "redact_value: ['DE\\d{18,20}', 'ssn-\\d+']\nredact_key: [iban, card number]\nviewer: ['group:cn=ops,dc=example', 'user:CORP\\ana']\n")).Or(t)
	hide := must.Get(c.Serve.redactor()).Or(t)
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
	fromFile := must.Get(parseServe(t, "audit_only: ['a,b', 'order:created']\ncampaigns: ['eu,de-*', 'us']\n")).Or(t)
	var fromFlags, rehearse cli
	must.Get(newParser(&fromFlags, streams{out: io.Discard, err: io.Discard}).Parse([]string{"serve", "--audit-only", `a\,b,order:created`, "--campaigns", `eu\,de-*`, "--campaigns", "us"})).Or(t)
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

// A duration has a unit, which may be days where records are kept, unless it is 0, which YAML parses as a number.
func TestConfig_durations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "'0'": 0, "36h": 36 * time.Hour, "365d": 365 * 24 * time.Hour} {
		c, err := parseServe(t, "keep_audit: "+text+"\n")
		if err != nil || time.Duration(c.Serve.KeepAudit) != want {
			t.Errorf("keep_audit %s: %s, %v", text, c.Serve.KeepAudit, err)
		}
		c, err = parseServe(t, "verify_every: "+text+"\n")
		if days := strings.HasSuffix(text, "d"); (err != nil) != days || !days && c.Serve.VerifyEvery != want {
			t.Errorf("verify_every %s: %s, %v", text, c.Serve.VerifyEvery, err)
		}
	}
	for _, text := range []string{"36", "1.5", "true", "many", "-1d", "[365d]"} {
		for key, example := range map[string]string{"keep_audit": "36h or 365d", "verify_every": "2s"} {
			_, err := parseServe(t, key+": "+text+"\n")
			if err == nil || !strings.Contains(err.Error(), "line 1: "+key+" must be a duration such as "+example) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// parseServe has serve read a configuration file.
func parseServe(t *testing.T, config string) (c cli, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "outboxweb.yaml")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	_, err = newParser(&c, streams{out: io.Discard, err: io.Discard}).Parse([]string{"serve", "--config", file})
	return c, err
}
