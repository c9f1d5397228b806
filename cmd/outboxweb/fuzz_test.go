package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/outboxweb/outboxweb/internal/must"
)

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
	std := streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	keys := fileFlags(newParser(new(cli), std).Model)
	name := filepath.Join(f.TempDir(), "outboxweb.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		must.OK(t, os.WriteFile(name, []byte(text), 0o600))
		_, _, err := readConfig(name, keys)
		if err == nil { // creating a parser is slow
			var c cli
			if _, err = newParser(&c, std).Parse([]string{"serve", "--config", name}); err == nil {
				_, err = c.subscriptions()
			}
		}
		if err == nil {
			return
		}
		sentence := usageSentence(err)
		if !strings.Contains(sentence, "--") || strings.ContainsFunc(sentence, unicode.IsControl) {
			t.Errorf("it is refused with %q", sentence)
		}
		var usage *usageError
		if strings.Contains(sentence, name) && !errors.As(err, &usage) {
			t.Errorf("%q is no wrong usage", sentence)
		}
	})
}
