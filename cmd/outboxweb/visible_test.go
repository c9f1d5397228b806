package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/size"
)

// A JSON log keeps the text, without anything that a terminal interprets.
func TestLogger_ofJSONShowsEverything(t *testing.T) {
	t.Parallel()
	const said = "a\u0085b\u009b31m\x1b[31m\x7f\u202egnp.exe\u2028\U000e0041\n日本"
	var log strings.Builder
	(&app{streams: streams{err: &log}, Common: Common{LogFormat: "json"}}).logger().Info("event", "campaign_id", said)
	var entry struct {
		Campaign string `json:"campaign_id"`
	}
	must.OK(t, json.Unmarshal([]byte(log.String()), &entry))
	must.Equal(t, entry.Campaign, said, "it says")
	line, _ := strings.CutSuffix(log.String(), "\n")
	must.Hold(t, !strings.ContainsFunc(line, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }), "the line is %+q", line)
	must.Equal(t, must.Get(visible{io.Discard}.Write([]byte("\u202e"))).Or(t), 3, "what it wrote")
}

// obeyed is text that a terminal would interpret, or that would change the direction of the text
// around it.
const obeyed = "\x1b[31mred\a\u009b2J\u202egnp.exe\u2066\u061c"

// A journal may contain such names from before they were refused.
func TestRun_printsNothingThatATerminalObeys(t *testing.T) {
	d := withPublisher(t)
	must.Get(d.st.PauseCampaign(t.Context(), command("why\x1b[2J "+obeyed), "c-1")).Or(t)
	d.ended(replay.RunVerify, replay.RunFailed, "boom "+obeyed, replay.RunResult{CampaignID: "c-1", Outcome: replay.OutcomeFailed, Error: obeyed})
	journal := dbtest.Open(t, d.pair.Journal)
	must.Get(journal.Exec("drop trigger events_refuse_update")).Or(t)
	for _, table := range []string{"events", "projection_apply_outbox", "campaigns", "run_results"} {
		must.Get(journal.Exec("update "+table+" set campaign_id = $1 where campaign_id = 'c-1'", "c-1"+obeyed)).Or(t)
	}
	for _, change := range []string{
		"update publisher_progress set last_error = $1, destination = $1", "update projection_apply_outbox set status = 'dead', event_type = $1, last_error = $1, fingerprint = $1", "update runs set reason = $1, requested_by = $1",
	} {
		must.Get(journal.Exec(change, obeyed)).Or(t)
	}
	for i, command := range [][]string{
		{"report", "--limit", "50"}, {"campaigns", "list"}, {"publishers", "list"}, {"publishers", "show", "scenes/archive"}, {"failures", "list"}, {"failures", "projections"},
		{"runs", "list"}, {"runs", "show", "1"}, {"gaps", "list"}, {"operations", "list"}, {"projections", "list"}, {"projections", "status"}, {"check"}, {"token", "list"},
		{"digest", "--campaign", "c-1" + obeyed}, {"campaigns", "pause", "c-1" + obeyed}, {"campaigns", "resume", "none" + obeyed}, {"campaigns", "replay", "none" + obeyed}, {"skip", "none" + obeyed, "1"},
		{"publishers", "show", obeyed}, {"publishers", "show", "a/" + obeyed}, {"failures", "note", obeyed, obeyed}, {"runs", "start", "verify", "--campaign", obeyed}, {obeyed}, {"report", "--" + obeyed},
		{"report", "--status", obeyed}, {"append", obeyed}, {"projections", "check", obeyed}, {"--journal-db", obeyed, "report"}, {"--config", obeyed, "report"}, {"token", "create", "--note", obeyed},
	} {
		for _, more := range [][]string{nil, {"--json"}}[:size.Of(1+i%2, 2, 2)] { // either is written through the same writer
			var out, errs strings.Builder
			run(t.Context(), slices.Concat(d.flags[:4], command, more), streams{in: strings.NewReader(`{"event_type":"` + obeyed + `"}` + "\n{" + obeyed), out: &out, err: &errs})
			for _, text := range []string{out.String(), errs.String()} {
				must.Hold(t, !strings.ContainsFunc(text, hides), "%+q prints %+q", command, text)
			}
			must.Hold(t, more == nil || !strings.HasPrefix(out.String(), "{") || json.Valid([]byte(out.String())), "%+q --json prints %s", command, out.String())
			must.Hold(t, more != nil || out.Len()+errs.Len() != 0, "%+q prints nothing", command)
		}
	}
}

func TestTable_alignsWhatIsSeen(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	rows := table(&out)
	fmt.Fprint(rows, "a\u202e\tb\nlonger than that\tc\nno cells\ncafe\u0301\t1\t|\n東京\t2\nｗ\t3\t|\n\t4\n")
	must.OK(t, rows.Flush())
	must.Equal(t, out.String(), "a\\u202e           b\nlonger than that  c\nno cells\ncafe\u0301  1  |\n東京  2\nｗ    3  |\n      4\n")
}

func TestLineReader_skipsALineOverTheLimitWithoutKeepingIt(t *testing.T) {
	t.Parallel()
	l := newLineReader(strings.NewReader("first\n"+strings.Repeat("x", 1<<20)+"\r\nlast"), 100)
	for _, want := range []struct {
		text string
		err  error
	}{{"first", nil}, {"", event.ErrTooLarge}, {"last", nil}, {"", io.EOF}} {
		text, err := l.next()
		must.Hold(t, errors.Is(err, want.err) && (err != nil || string(text) == want.text), "line %d: %q, %v, want %+v", l.line, text, err, want)
		must.Hold(t, cap(l.buf) <= 1<<10 && (want.text != "last" || l.line == 3), "line %d: %q with a buffer of %d", l.line, text, cap(l.buf))
	}
}

func TestReadBatch_endsEarlyWhenLinesAreLarge(t *testing.T) {
	t.Parallel()
	line := `{"campaign_id":"c","event_type":"a","payload":{"x":"` + strings.Repeat("x", 5<<20) + `"}}` + "\n"
	l := newLineReader(strings.NewReader(strings.Repeat(line, 10)), 6<<20)
	var sizes []int
	for {
		b := must.Get(readBatch(l, 500)).Or(t)
		if b.empty() {
			break
		}
		sizes = append(sizes, b.size)
	}
	must.Equal(t, sizes, []int{7, 3}, "the lines of batches")
}

func TestProgress_drawsABarThatFitsOneLine(t *testing.T) {
	t.Parallel()
	var w strings.Builder
	p := &progress{w: &w, label: "append", start: time.Now()}
	p.set(5, 10)
	p.set(6, 10) // too soon after
	p.set(10, 10)
	p.end()
	want := "\r\x1b[Kappend  [###############...............]  50 %\r\x1b[Kappend  [##############################] 100 %\r\x1b[K"
	must.Equal(t, w.String(), want, "drew")
	line := (&progress{label: "read", start: time.Now()}).line(1234567, 0)
	must.Hold(t, strings.HasPrefix(line, "read  1,234,567  "), "without a total: %q", line)
}
