package destination_test

import (
	"errors"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// FuzzDestination parses any destination URL, with any value of the variable in it, and any header.
// It does not use the network. A refusal does not contain the variable's value.
func FuzzDestination(f *testing.F) {
	for _, url := range []string{
		"log:", "file:///var/x%41.ndjson", "https://u:${V}@h:1/x?y=${V}", "http://[::1]:2/", "https://h/${V}", "${V}", "nats://t@h,[::1]:4222/s.t?tls=true", "kafka://u:${V}@h,h2:2/t?sasl=plain&tls=true",
		"HTTPS://h\\@evil.example/", "https://h/%zz", "kafka://h/..", "nats://h/a.*", "file://h/x", "javascript:alert(1)", "data:text/html,x", "//evil.example/", "https://h/a#b", "https://h/\r\nX: y", "$${V}",
	} {
		f.Add(url, "secret-of-16-bytes/@:?#%", "a value")
	}
	f.Fuzz(func(t *testing.T, url, value, header string) {
		document, err := yaml.Marshal(map[string]any{"t": map[string]any{"match": map[string]any{"event_types": []string{"*"}},
			"publishers": map[string]any{"p": map[string]any{"url": url, "headers": map[string]string{"X-A": header}}, "q": map[string]any{"url": url}}}})
		if err != nil {
			return // no text
		}
		var read yaml.Node
		if err := yaml.Unmarshal(document, &read); err != nil || len(read.Content) == 0 {
			return
		}
		subs, _, err := destination.Config{Topics: read.Content[0], Getenv: func(string) (string, bool) { return value, true }}.Parse()
		var refusal *outbox.Refusal
		secret := len(value) >= 16 && !strings.Contains(url, value) && !strings.Contains(header, value)
		switch {
		case err != nil && (!errors.As(err, &refusal) || refusal.Line < 1 || refusal.Detail == ""):
			t.Fatalf("%#v", err)
		case err != nil && secret && strings.Contains(err.Error(), value):
			t.Fatalf("the value %q is in the refusal %q", value, err)
		}
		for _, p := range subs {
			publisher, err := p.Open(destination.Options{})
			if err != nil {
				continue // a file that cannot be written
			}
			if err := publisher.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
