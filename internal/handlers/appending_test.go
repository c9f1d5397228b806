package handlers

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	curlCommand = regexp.MustCompile(`(?s)^curl .*?"\$URL(/[^"]*)"(?: -d '(.*?)')?\n(.*)$`)
	promise     = regexp.MustCompile(`(?m)^# prints: (.*)$`)
)

// What the document tells its readers to type does what it says.
func TestAppendingDocument_isTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/appending.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	blocks := strings.Split(string(text), "```sh\n")[1:]
	if len(blocks) != 3 {
		t.Errorf("the document has %d commands", len(blocks))
	}
	for _, block := range blocks {
		command, _, _ := strings.Cut(block, "```")
		parts := curlCommand.FindStringSubmatch(command)
		if parts == nil {
			t.Fatalf("this is no curl as the test reads it: %s", command)
		}
		var prints []string
		for _, p := range promise.FindAllStringSubmatch(parts[3], -1) {
			prints = append(prints, p[1])
		}
		switch {
		case len(prints) == 0:
			t.Errorf("nothing is said to be printed by %s", command)
		case parts[2] == "":
			s.get(parts[1]).want(t, 200, prints...)
		case strings.Contains(command, "curl -fsS"):
			s.post(parts[1], parts[2]).want(t, 201, prints...)
		default:
			s.post(parts[1], parts[2]).want(t, 409, prints...)
		}
	}
}
