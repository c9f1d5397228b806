package ui

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestText_forPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	for got, want := range map[string]string{
		Num(0): "0", Num(999): "999", Num(1000): "1,000", Num(44200): "44,200", Num(1234567): "1,234,567", Num(-1234): "-1,234",
		Rate(0) + "/": "0/", Rate(0.25): "0.2", Rate(41.6): "42", Rate(12345.6): "12,346",
		Relative(now, now): "now", Relative(now.Add(-3*time.Minute), now): "3 min ago", Relative(now.Add(4*time.Second), now): "in 4 s",
		FirstLine("a\nb"):          "a",
		Sentence("event 2 failed"): "Event 2 failed.",
		Sentence("ümlaut?"):        "Ümlaut?",
		Count(1, "row", "rows"):    "1 row",
		Count(1200, "row", "rows"): "1,200 rows",
		PrettyJSON(json.RawMessage(`{"n":12345678901234567890.10}`)): "{\n  \"n\": 12345678901234567890.10\n}",
	} {
		must.Equal(t, got, want)
	}
	long := FirstLine(strings.Repeat("ü", 300))
	must.Hold(t, len(long) <= 250 && strings.HasSuffix(long, "…"), "a long line became %q", long)
}

func TestShellWord_givesTheShellBackTheSameWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "plain-1.2", "a b", `it's "$HOME" \n`, "`id`;&|<>*?~#!", "ü✓", "-x", "a\tb"} {
		out, err := exec.Command("sh", "-c", "printf %s "+event.ShellWord(word)).Output()
		must.Hold(t, err == nil && string(out) == word, "%q came back as %q, %v", word, out, err)
	}
}

func TestActSentence_namesThePublisher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ action, after, want string }{
		{"publisher_pause", `{}`, "Paused publisher scenes/archive."},
		{"publisher_resume", `{}`, "Resumed publisher scenes/archive and cleared its errors."},
		{"publisher_reset", `{}`, "Reset publisher scenes/archive: errors cleared."},
		{"publisher_seek", `{"seek":{"from":2,"to":9000,"skips":1200,"capped":true}}`, "Moved publisher scenes/archive from position 2 to 9000: at least 1,200 events skipped."},
		{"publisher_seek", `{"seek":{"from":9,"to":2,"repeats":1}}`, "Moved publisher scenes/archive from position 9 to 2: 1 event repeated."},
		{"publisher_seek", `{"seek":{"from":9,"to":2}}`, "Moved publisher scenes/archive from position 9 to 2: no event repeated."},
		{"publisher_skip", `{"skip":{"position":7,"campaign_id":"c-1","seq":3,"event_type":"scene.a"}}`, "Publisher scenes/archive skipped event 3 (scene.a) of campaign c-1."},
		{"publisher_test", `{"ok":true,"seconds":0.0124}`, "Sent a test event to publisher scenes/archive: delivered in 12 ms."},
		{"publisher_test", `{"ok":false,"error":"refused\nat length"}`, "Sent a test event to publisher scenes/archive: refused"},
		{"publisher_skip", `null`, "Changed publisher scenes/archive."},
	} {
		a := operator.AuditEntry{Action: operator.Action(c.action), Before: json.RawMessage(`{"topic":"scenes","publisher":"archive"}`), After: json.RawMessage(c.after)}
		must.Equal(t, ActionSentence(a), c.want, c.action)
	}
}

func TestGuides_areHeadingsOfTheRunbook(t *testing.T) {
	t.Parallel()
	headings := map[Guide]bool{}
	for _, s := range docs.Named(docs.Operating).Sections {
		headings[Guide(s.Anchor)] = true
	}
	for _, g := range []Guide{GuideLag, GuideFailed, GuideDead, GuideCanary, GuideWorker, GuideDiverged, GuideWrong, GuideAside, GuideFile, GuideDisk, GuideUpgrade} {
		must.Hold(t, headings[g], "the runbook has no heading for #%s", g)
	}
	for _, kind := range database.FaultKinds {
		must.Hold(t, headings[Guide(kind.Guide())], "the runbook has no heading for a fault of the kind %s", kind)
	}
}

func TestTwins_ofAnEmbeddedConsoleSayWhatTheCommandNeeds(t *testing.T) {
	t.Parallel()
	p := Page{Embedded: true, Running: campaign.Running{Versions: map[string]string{"orders": "1", "rooms": "2"}, InGo: map[string]bool{"rooms": true}}}
	html := string(must.Get(templ.ToGoHTML(t.Context(), FromShell(p, Twins{Curl: "curl", CLI: "outboxweb"}))).Or(t))
	for _, name := range []string{"OUTBOXWEB_JOURNAL_DB", "OUTBOXWEB_PROJECTIONS_DB", "OUTBOXWEB_PROJECTIONS<"} {
		must.Hold(t, strings.Contains(html, name), "no %s above the command: %s", name, html)
	}
}
