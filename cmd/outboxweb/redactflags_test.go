package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestServe_refusesPatternsThatAreNone(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--redact-value=(":  "--redact-value: \"(\" is not a regular expression",
		"--redact-value=a*": "--redact-value: \"a*\" matches the empty string",
		"--redact-key=--":   "--redact-key: \"--\" is not a key name",
	} {
		_, stderr, code := here(t.Context(), "serve", args)
		if code != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %s", args, code, stderr)
		}
	}
}

func TestLogger_hidesSecretsInOneLine(t *testing.T) {
	t.Parallel()
	hide, err := redactFlags{RedactKey: []string{"card number"}, RedactValue: []string{`DE\d{20}`}}.redactor()
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		a := &app{streams: streams{err: &out}, Common: Common{LogFormat: format}, redact: hide}
		a.logger().Error("apply", "error", errors.New("password=hunterdeux\n\r\u2028\x1b[2J DE12345678901234567890"), "card_number", "4111111111111111")
		if text := strings.TrimSuffix(out.String(), "\n"); strings.ContainsAny(text, "\n\r\u2028\x1b") || !strings.Contains(text, "[redacted]") ||
			strings.Contains(text, "hunterdeux") || strings.Contains(text, "DE12") || strings.Contains(text, "4111") {
			t.Errorf("%s: %q", format, text)
		}
	}
}
