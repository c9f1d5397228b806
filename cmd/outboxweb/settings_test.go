package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestSettings_showWhatWasGivenAndNoSecret(t *testing.T) {
	var c cli
	parser := newParser(&c, streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	parsed := must.Get(parser.Parse([]string{"serve", "--journal-db", "postgres://ana:hush@db/outbox?sslpassword=hush&search_path=journal",
		"--projections", "builtin:traces", "--projections", "dir", "--poll-interval", "3s"})).Or(t)
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

// A command that a page offers works from any directory.
func TestCommandFlags_leadToTheSameDatabases(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := func(name, text string) {
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	file("whole.yaml", "journal_db: postgres://ana:hush@db/outbox\nprojections_db: sqlite:/var/p.db\nprojections: [builtin:traces]\n")
	file("relative.yaml", "journal_db: sqlite:j.db\nprojections: [sql]\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"defaults":           {nil, "--journal-db=sqlite:DIR/data/journal.db --projections-db=sqlite:DIR/data/projections.db"},
		"flags":              {[]string{"--journal-db", "postgres://ana:hush@db/outbox?search_path=j", "--projections-db", "sqlite:/var/p.db", "--projections", "sql", "--projections", "builtin:traces"}, "--journal-db=postgres://ana@db/outbox?search_path=j --projections-db=sqlite:/var/p.db --projections=DIR/sql --projections=builtin:traces"},
		"a file":             {[]string{"--config", "whole.yaml"}, "--config=DIR/whole.yaml"},
		"a flag beats it":    {[]string{"--config", "whole.yaml", "--projections-db", "sqlite:p.db"}, "--config=DIR/whole.yaml --projections-db=sqlite:DIR/p.db"},
		"its paths relative": {[]string{"--config", "relative.yaml"}, "--config=DIR/relative.yaml --journal-db=sqlite:DIR/j.db --projections-db=sqlite:DIR/data/projections.db --projections=DIR/sql"},
	} {
		var parsed cli
		must.Get(newParser(&parsed, streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).Parse(append([]string{"serve"}, c.args...))).Or(t)
		if got := strings.ReplaceAll(strings.Join(parsed.flagsFromAnywhere(), " "), dir, "DIR"); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}
