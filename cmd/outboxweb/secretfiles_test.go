package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

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
	if _, errs, code := runIn(t, dir, "migrate"); code != 0 {
		t.Fatal(errs)
	}
	found := []string{"OUTBOXWEB_HOOK_FILE=hook", "HOOK_SECRET_FILE=" + filepath.Join(dir, "secret"), "MAIL_PASSWORD_FILE=secret"}
	for _, c := range []struct {
		args string
		env  []string
		want string // of stderr; empty if it works
	}{
		{"serve --config publishers.yaml --tls-cert none --tls-key none", found[:2], "--tls-cert: "}, // the next error
		{"alerts list --config alerts.yaml", found[2:], ""},
		{"serve --config publishers.yaml --tls-cert none --tls-key none", append(found[:2:2], "HOOK_SECRET=x"), "HOOK_SECRET and HOOK_SECRET_FILE are both set; remove one of them"},
		{"serve --config publishers.yaml --tls-cert none --tls-key none", []string{"OUTBOXWEB_HOOK_FILE=gone"}, "OUTBOXWEB_HOOK_FILE: cannot read gone: no such file or directory"},
		{"alerts list --config alerts.yaml", []string{"MAIL_PASSWORD_FILE=."}, "MAIL_PASSWORD_FILE: cannot read .: is a directory"},
		{"alerts list --config alerts.yaml", nil, "the variable MAIL_PASSWORD is not set, nor MAIL_PASSWORD_FILE"},
	} {
		_, errs, code := runWith(t, dir, c.env, strings.Fields(c.args)...)
		if c.want == "" && (code != 0 || errs != "") || c.want != "" && (code != 2 || !strings.Contains(errs, c.want)) {
			t.Errorf("%s with %v: exit %d, %q; want %q", c.args, c.env, code, errs, c.want)
		}
	}
}

// Flags that name files themselves have no such twin: a key's file must not be read for its path.
func TestSecretFiles_onlyOfFlagsThatCarrySecrets(t *testing.T) {
	t.Parallel()
	_, errs, code := runWith(t, t.TempDir(), []string{"OUTBOXWEB_TLS_KEY_FILE=/etc/hostname"}, "version")
	if want := "OUTBOXWEB_TLS_KEY_FILE is unknown and has no effect"; code != 0 || !strings.Contains(errs, want) {
		t.Errorf("exit %d, %q; want %q", code, errs, want)
	}
}
