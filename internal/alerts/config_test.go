package alerts_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestParse_namesTheLineOfTheMistake(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		line       int
	}{
		{"{}", "there is no receiver", 1},
		{"to: []", "the list is empty", 1},
		{"to: [ops]", `no receiver "ops"`, 1},
		{"to: [\"gopher://x\"]", "unknown scheme gopher:", 1},
		{"to: [\"http://h/x\"]", "needs allow_private", 1},
		{"to: [\"slack+http://h/x\"]", "slack+https:// otherwise", 1},
		{"to: [\"smtps://h\"]", "describe it under receivers", 1},
		{"to: [\"https://h/${NO}\"]", "the variable NO is not set", 1},
		{"to: [\"https://h/x\"]\nrules:\n  dead_rows: {over: -1}", "must be from 0", 3},
		{"to: [\"https://h/x\"]\nrules:\n  dead_rows: {for: -1s}", "must be from 10ms", 3},
		{"to: [\"https://h/x\"]\nrules:\n  dead: {over: 1}", "what must be dead_rows", 3},
		{"to: [\"https://h/x\"]\nrules:\n  publisher: {over: 1}", "has no threshold", 3},
		{"to: [\"https://h/x\"]\nrules:\n  all: {what: drift}", "all means every rule", 3},
		{"to: [\"https://h/x\"]\nrules:\n  pager: off", "must be off, for one of the rules", 3},
		{"receivers:\n  m: {url: \"smtps://h\", from: a@b.c}", "e-mail needs from: ADDRESS and to", 2},
		{"receivers:\n  m: {url: \"smtps://h\", from: nobody, to: [x@y.z]}", "is not an e-mail address", 2},
		{"receivers:\n  m: {url: \"https://h\", from: a@b.c}", "from is a key of e-mail", 2},
		{"receivers:\n  m: {url: \"ntfy+https://h/t\", secret: \"${WHSEC}\"}", "only webhooks are signed", 2},
		{"receivers:\n  m: {url: \"https://h/x\"}", "rule dead_rows has no receiver", 1},
	} {
		_, err := parse(t, c.text)
		refusal, ok := errors.AsType[*event.Refusal](err)
		must.Hold(t, ok && refusal.Line == c.line && strings.Contains(refusal.Detail, c.want) && !strings.Contains(fmt.Sprint(err), "s3cret"), "%q is refused with %v", c.text, err)
	}
}

func TestParse_takesOneAddressAlone(t *testing.T) {
	t.Parallel()
	s, err := parse(t, `to: ["slack+https://hooks.slack.com/services/T/B/literal", "https://h/x", "https://i/y", "https://h/x"]`)
	must.Need(t, err == nil && len(s.Rules) == len(alerts.AlertRules()) && len(s.Receivers) == 3 && strings.Join(s.Rules[0].To, " ") == "slack webhook webhook-2", "%+v, %v", s, err)
	must.Equal(t, s.Receivers[0].Shown, "slack+https://hooks.slack.com/…", "shows")
	s, err = parse(t, `{to: ["https://h/x"], rules: {drift: off, instance: false, oldest_row: {over: 1h, for: 0}, pager: {what: dead_rows, over: 100, urgent: true}}}`)
	must.Hold(t, err == nil && len(s.Rules) == 12 && s.Rules[2].OverAge == time.Hour && s.Rules[2].For == 0 && s.Rules[11].Name == "pager" && s.Rules[11].Over == 100 && s.Rules[11].Urgent && len(s.Rules[11].To) == 1, "%+v, %v", s.Rules, err)
}

// The examples in the documentation and on the page are valid configurations.
func TestParse_readsTheDocumentation(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../../docs/alerts.md")).Or(t)
	examples := regexp.MustCompile("(?s)\n```yaml\nalerts:(.*?)\n```\n").FindAllStringSubmatch(string(text), -1)
	must.Need(t, len(examples) == 2, "%d examples were found", len(examples))
	for _, example := range examples {
		var document yaml.Node
		must.OK(t, yaml.Unmarshal([]byte(example[1]), &document))
		s, err := alerts.Parse(document.Content[0], func(string) (string, bool) { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq=", true })
		must.Hold(t, err == nil && len(s.Receivers) != 0, "%v in\n%s", err, example[1])
	}
}
