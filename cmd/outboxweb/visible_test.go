package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"
)

// A log as JSON says what was said, and has nothing that a terminal obeys.
func TestLogger_ofJSONShowsEverything(t *testing.T) {
	t.Parallel()
	const said = "a\u0085b\u009b31m\x1b[31m\x7f\u202egnp.exe\u2028\U000e0041\n日本"
	var log strings.Builder
	(&app{streams: streams{err: &log}, Common: Common{LogFormat: "json"}}).logger().Info("event", "campaign_id", said)
	var entry struct {
		Campaign string `json:"campaign_id"`
	}
	if err := json.Unmarshal([]byte(log.String()), &entry); err != nil || entry.Campaign != said {
		t.Errorf("it says %+q, %v", entry.Campaign, err)
	}
	line, _ := strings.CutSuffix(log.String(), "\n")
	if strings.ContainsFunc(line, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }) {
		t.Errorf("the line is %+q", line)
	}
	if n, err := (visible{io.Discard}).Write([]byte("\u202e")); n != 3 || err != nil {
		t.Errorf("it wrote %d, %v", n, err)
	}
}
