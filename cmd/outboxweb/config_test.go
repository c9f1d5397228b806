package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/outboxweb/outboxweb/internal/must"
)

// A list in the file is taken item by item: joined, two patterns would be one that matches nothing,
// and a group's name with a comma would be two.
func TestConfig_listsAreTakenToTheLetter(t *testing.T) {
	t.Parallel()
	c := must.Get(parseServe(t, "redact_value: ['DE\\d{18,20}', 'ssn-\\d+']\nredact_key: [iban, card number]\nviewer: ['group:cn=ops,dc=example', 'user:CORP\\ana']\n")).Or(t)
	hide := must.Get(c.Serve.redactor()).Or(t)
	must.Equal(t, hide.Text("DE123456789012345678 ssn-12 iban=ab12cd34"), "[redacted] [redacted] iban=[redacted]", "what is left of secrets")
	must.Equal(t, c.Serve.Viewer, []string{"group:cn=ops,dc=example", `user:CORP\ana`}, "viewers")
	// Event types and campaigns have commas: in the file they stay, and on the command line one is written \,.
	fromFile := must.Get(parseServe(t, "audit_only: ['a,b', 'order:created']\ncampaigns: ['eu,de-*', 'us']\n")).Or(t)
	fromFlags := must.Get(parsed("serve", "--audit-only", `a\,b,order:created`, "--campaigns", `eu\,de-*`, "--campaigns", "us")).Or(t)
	for _, c := range []cli{fromFile, fromFlags} {
		must.Equal(t, c.AuditOnly, []string{"a,b", "order:created"}, "audit-only types")
		must.Equal(t, c.Serve.Campaigns, []string{"eu,de-*", "us"}, "campaigns")
	}
	rehearse := must.Get(parsed("rehearse", "x.sql", "--campaign", "eu,de")).Or(t)
	must.Equal(t, rehearse.Rehearse.Campaigns, []string{"eu,de"}, "campaigns to rehearse")
}

// A duration has a unit, which may be days where records are kept, unless it is 0, which YAML parses as a number.
func TestConfig_durations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "'0'": 0, "36h": 36 * time.Hour, "365d": 365 * 24 * time.Hour} {
		c, err := parseServe(t, "keep_audit: "+text+"\n")
		must.Hold(t, err == nil && time.Duration(c.Serve.KeepAudit) == want, "keep_audit %s: %s, %v", text, c.Serve.KeepAudit, err)
		c, err = parseServe(t, "verify_every: "+text+"\n")
		days := strings.HasSuffix(text, "d")
		must.Hold(t, (err != nil) == days && (days || c.Serve.VerifyEvery == want), "verify_every %s: %s, %v", text, c.Serve.VerifyEvery, err)
	}
	for _, text := range []string{"36", "1.5", "true", "many", "-1d", "[365d]"} {
		for key, example := range map[string]string{"keep_audit": "36h or 365d", "verify_every": "2s"} {
			_, err := parseServe(t, key+": "+text+"\n")
			must.Hold(t, err != nil && strings.Contains(err.Error(), "line 1: "+key+" must be a duration such as "+example), "%s: %v", text, err)
		}
	}
}

func parseServe(t *testing.T, config string) (c cli, err error) {
	file := filepath.Join(t.TempDir(), "outboxweb.yaml")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	return parsed("serve", "--config", file)
}

// parsed is a command line, and what kong refuses of it.
func parsed(args ...string) (c cli, err error) {
	_, err = newParser(&c, streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard}).Parse(args)
	return c, err
}

// Audit records and history are kept for a day at least, or forever.
func TestDaysFlag_readsDaysAndDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "0d": 0, "1d": 24 * time.Hour, "24h": 24 * time.Hour, "23h": 23 * time.Hour, "1s": time.Second, "365d": 8760 * time.Hour,
		"8760h": 8760 * time.Hour, "36h": 36 * time.Hour, "90m": 90 * time.Minute, "36500d": 36500 * 24 * time.Hour} {
		var d daysFlag
		must.OK(t, d.UnmarshalText([]byte(text)))
		must.Equal(t, time.Duration(d), want, text, "is")
		for flag, c := range map[string]serveCmd{"--keep-audit": {KeepAudit: d}, "--keep-history": {KeepHistory: d}} {
			err, wrong := c.checkKept(), want > 0 && want < 24*time.Hour
			must.Hold(t, (err != nil) == wrong && (!wrong || strings.Contains(err.Error(), flag)), "%s %s: %v", flag, text, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "+1d", "1.5d", "36501d", "99999999999999999999d", "-1h", "1", "1w", "1d12h", "876001h", "1 d", "٣d"} {
		var d daysFlag
		must.Hold(t, d.UnmarshalText([]byte(text)) != nil, "%q is taken for %s", text, time.Duration(d))
	}
}

func FuzzDaysFlag(f *testing.F) {
	for _, text := range []string{"365d", "8760h", "0", "0d", "36h", "90m", "36500d", "1h30m", "-1d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again daysFlag
		if d.UnmarshalText([]byte(text)) != nil {
			return
		}
		must.Hold(t, d >= 0 && time.Duration(d) <= mostDays*24*time.Hour, "%q is %s", text, time.Duration(d))
		err := again.UnmarshalText([]byte(d.String()))
		must.Hold(t, err == nil && again == d, "%q is written %q: %v", text, d, err)
	})
}

func TestSettings_showWhatWasGivenAndNoSecret(t *testing.T) {
	var c cli
	must.Get(newParser(&c, streams{}).Parse([]string{"serve", "--journal-db", "postgres://ana:hush@db/outbox?sslpassword=hush&search_path=journal",
		"--projections", "builtin:traces", "--projections", "dir", "--poll-interval", "3s"})).Or(t)
	got := map[string]string{}
	for _, s := range c.settings {
		got[s.Name] = s.Value
		must.Equal(t, s.Name == "journal-db" || s.Name == "projections" || s.Name == "poll-interval", s.Given, "--", s.Name, "counts as given")
		must.Hold(t, !strings.Contains(s.Value, "hush"), "--%s tells a secret: %s", s.Name, s.Value)
	}
	for name, want := range map[string]string{
		"journal-db":  "postgres://ana:xxxxx@db/outbox?search_path=journal&sslpassword=xxxxx",
		"projections": "builtin:traces, dir", "poll-interval": "3s", "listen": "127.0.0.1:8080", "mode": "outbox_apply_only", "projections-db": "sqlite:data/projections.db",
	} {
		must.Equal(t, got[name], want, "the value shown of", name)
	}
	for _, broken := range []string{"postgres://ana:hush@[db/outbox", "postgres://ana:hu%zz@db/outbox"} {
		shown := withoutPassword(broken)
		must.Hold(t, !strings.Contains(shown, "hu"), "%q is shown as %q", broken, shown)
	}
}

// A command that a page offers works from any directory.
func TestCommandFlags_leadToTheSameDatabases(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := func(name, text string) { must.OK(t, os.WriteFile(name, []byte(text), 0o600)) }
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
		line := must.Get(parsed(append([]string{"serve"}, c.args...)...)).Or(t)
		must.Equal(t, strings.ReplaceAll(strings.Join(line.flagsFromAnywhere(), " "), dir, "DIR"), c.want, name)
	}
}

// References of the configuration file, of publishers and of alerts alike, are found in files.
func TestSecretFiles_ofTheConfigurationFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"publishers.yaml": "topics:\n  scenes:\n    match: {event_types: ['*']}\n    publishers:\n      hook: {url: 'https://hook.example/${OUTBOXWEB_HOOK}', secret: '${HOOK_SECRET}'}\n",
		"alerts.yaml":     "alerts:\n  receivers:\n    mail: {url: 'smtp://ana:${MAIL_PASSWORD}@mail.example:587', from: a@ops.example, to: [b@ops.example]}\n  to: [mail]\n",
		"hook":            "pa/th\n",
		"secret":          "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq=\r\n",
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	newPair(t, filepath.Join(dir, "data"))
	found := []string{"OUTBOXWEB_HOOK_FILE=hook", "HOOK_SECRET_FILE=" + filepath.Join(dir, "secret"), "MAIL_PASSWORD_FILE=secret"}
	for _, c := range []struct {
		args string
		env  []string
		code int
		want string // of stderr; empty if it says nothing
	}{
		{"serve --config publishers.yaml --tls-cert none --tls-key none", found[:2], 2, "--tls-cert: "}, // the next error
		{"alerts list --config alerts.yaml", found[2:], 0, ""},
		{"serve --config publishers.yaml --tls-cert none --tls-key none", append(found[:2:2], "HOOK_SECRET=x"), 2, "HOOK_SECRET and HOOK_SECRET_FILE are both set; remove one of them"},
		{"serve --config publishers.yaml --tls-cert none --tls-key none", []string{"OUTBOXWEB_HOOK_FILE=gone"}, 2, "OUTBOXWEB_HOOK_FILE: cannot read gone: no such file or directory"},
		{"alerts list --config alerts.yaml", []string{"MAIL_PASSWORD_FILE=."}, 2, "MAIL_PASSWORD_FILE: cannot read .: is a directory"},
		{"alerts list --config alerts.yaml", nil, 2, "the variable MAIL_PASSWORD is not set, nor MAIL_PASSWORD_FILE"},
		// Flags that name files themselves have no such twin: a key's file must not be read for its path.
		{"version", []string{"OUTBOXWEB_TLS_KEY_FILE=/etc/hostname"}, 0, "OUTBOXWEB_TLS_KEY_FILE is unknown and has no effect"},
	} {
		_, errs, code := runWith(t, dir, c.env, strings.Fields(c.args)...)
		must.Hold(t, code == c.code && strings.Contains(errs, c.want) && (c.want != "" || errs == ""), "%s with %v: exit %d, %q; want %q", c.args, c.env, code, errs, c.want)
	}
}

func TestLogger_hidesSecretsInOneLine(t *testing.T) {
	t.Parallel()
	hide := must.Get(redactFlags{RedactKey: []string{"card number"}, RedactValue: []string{`DE\d{20}`}}.redactor()).Or(t)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		a := &app{streams: streams{err: &out}, Common: Common{LogFormat: format}, redact: hide}
		a.logger().Error("apply", "error", errors.New("password=hunterdeux\n\r\u2028\x1b[2J DE12345678901234567890"), "card_number", "4111111111111111")
		text := strings.TrimSuffix(out.String(), "\n")
		must.Hold(t, !strings.ContainsAny(text, "\n\r\u2028\x1b") && strings.Contains(text, "[redacted]"), "%s: %q", format, text)
		must.Hold(t, !regexp.MustCompile("hunterdeux|DE12|4111").MatchString(text), "%s: %q", format, text)
	}
}

// FuzzConfig reads arbitrary configuration files as serve does, up to opening anything. An invalid
// one is refused in one sentence that names the file, or the flag.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{
		"", "mode: outbox_apply_only\nbase_path: /ops\nworker: false\nbatch_size: 10\npoll_interval: 2s\n", "projections: [builtin:campaigns, 'dir']\naudit_only: a\n",
		"mode: inline\n", "mode: &a outbox_apply_only\nlog_format: *a\n", "batch_size: 1_000\nmax_payload: 0x10\n", "batch_size: 99999999999999999999\n", "poll_interval: -1ns\n", "- a\n", "a: b: c", "? [a]\n: b\n",
		"topics:\n  scenes:\n    match: {event_types: [a]}\n    publishers:\n      p: {url: 'log:'}\n", "topics: {a: &a {match: {}, publishers: *a}}", "{a: &x [*x]}", "<<: {mode: shadow_only}\n",
		"mode: \"\\x00\"\n", "listen: \"127.0.0.1:0\\r\\nx\"\n", "!!binary aGVsbG8=: x\n", "outbox_enabled: true\nmode: shadow_only\n", "config: other.yaml\n", "worker: yes\nworker: no\n",
	} {
		f.Add(text)
	}
	keys := fileFlags(newParser(new(cli), streams{}).Model)
	name := filepath.Join(f.TempDir(), "outboxweb.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
		_, _, err := readConfig(name, keys)
		if err == nil { // creating a parser is slow
			var c cli
			if c, err = parsed("serve", "--config", name); err == nil {
				_, err = c.subscriptions()
			}
		}
		if err == nil {
			return
		}
		sentence := usageSentence(err)
		must.Hold(t, strings.Contains(sentence, "--") && !strings.ContainsFunc(sentence, unicode.IsControl), "it is refused with %q", sentence)
		var usage *usageError
		must.Hold(t, !strings.Contains(sentence, name) || errors.As(err, &usage), "%q is no wrong usage", sentence)
	})
}
