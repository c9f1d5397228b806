package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestLogger_hidesSecretsInOneLine(t *testing.T) {
	t.Parallel()
	hide := must.Get(redactFlags{RedactKey: []string{"card number"}, RedactValue: []string{`DE\d{20}`}}.redactor()).Or(t)
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
