package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A list of the file is taken item by item: joined, two patterns would be one
// that nothing matches, and a group's name with a comma would be two.
func TestConfig_listsAreTakenToTheLetter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outboxweb.yaml")
	text := "redact_value: ['DE\\d{18,20}', 'ssn-\\d+']\nredact_key: [iban, card number]\nviewer: ['group:cn=ops,dc=example', 'user:CORP\\ana']\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var c cli
	if _, err := newParser(&c, streams{out: io.Discard, err: io.Discard}).Parse([]string{"serve", "--config", file}); err != nil {
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
