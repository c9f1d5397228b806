package main

import (
	"io"
	"strings"
	"testing"
)

func TestSettings_showWhatWasGivenAndNoSecret(t *testing.T) {
	var c cli
	parser := newParser(&c, streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	parsed, err := parser.Parse([]string{"serve", "--journal-db", "postgres://ana:hush@db/outbox?sslpassword=hush&search_path=journal",
		"--projections", "builtin:traces", "--projections", "dir", "--poll-interval", "3s"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range settingsOf(parsed) {
		got[s.Name] = s.Value
		if given := s.Name == "journal-db" || s.Name == "projections" || s.Name == "poll-interval"; given != s.Given {
			t.Errorf("--%s counts as given: %t", s.Name, s.Given)
		}
		if strings.Contains(s.Value, "hush") {
			t.Errorf("--%s tells a secret: %s", s.Name, s.Value)
		}
	}
	for name, want := range map[string]string{
		"journal-db":  "postgres://ana:xxxxx@db/outbox?search_path=journal&sslpassword=xxxxx",
		"projections": "builtin:traces, dir", "poll-interval": "3s", "listen": "127.0.0.1:8080", "mode": "outbox_apply_only", "projections-db": "sqlite:data/projections.db",
	} {
		if got[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, got[name], want)
		}
	}
	for _, broken := range []string{"postgres://ana:hush@[db/outbox", "postgres://ana:hu%zz@db/outbox"} {
		if shown := withoutPassword(broken); strings.Contains(shown, "hu") {
			t.Errorf("%q is shown as %q", broken, shown)
		}
	}
}
