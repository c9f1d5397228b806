package e2e

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// startsFormula is a cell that a spreadsheet may evaluate; numbers are harmless.
var (
	startsFormula = regexp.MustCompile(`^(?:[\t\r\n]|[\s\p{Z}\p{Cc}\p{Cf}]*[=+@\-＝＋－＠﹦﹢﹣﹫])`)
	plainNumber   = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
)

// An export is a plain file: a table without formulas, or JSON, with a name of ours.
func TestHostile_exportsAndLogs(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := startHostile(t, "--log-format", format, "--log-level", "debug")
			for _, name := range []string{"rows", "campaigns", "audit"} {
				verifyTable(t, s, name)
				verifyJSONFile(t, s, name)
			}
			campaign := url.PathEscape(hostile[len(hostile)-1])
			for _, path := range []string{"/campaigns/" + campaign + "/events/2/payload", "/api/v1/campaigns/" + campaign + "/events/2/payload"} {
				verifyAttachment(t, path, do(t, s, http.MethodGet, path, nil).header)
			}
			assault(t, s)
			if code := s.stop(t); code != 0 {
				t.Errorf("the server ended with exit code %d", code)
			}
			verifyLog(t, format, s.stderr.String())
		})
	}
}

func verifyAttachment(t *testing.T, path string, h http.Header) {
	t.Helper()
	disposition, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	if err != nil || disposition != "attachment" || !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(params["filename"]) || len(h.Values("Content-Disposition")) != 1 {
		t.Errorf("%s: Content-Disposition is %q", path, h.Values("Content-Disposition"))
	}
	if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Set-Cookie") != "" || h.Get("X-Hostile") != "" || strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		t.Errorf("%s: the headers are %v", path, h)
	}
}

func verifyTable(t *testing.T, s *server, name string) {
	t.Helper()
	path := "/export/" + name + "?format=csv"
	a := do(t, s, http.MethodGet, path, nil)
	verifyAttachment(t, path, a.header)
	records, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	column := slices.Index(records[0], "campaign_id")
	var ids []string
	for _, record := range records[1:] {
		ids = append(ids, strings.TrimPrefix(record[column], "'"))
		for i, cell := range record {
			if startsFormula.MatchString(cell) && !plainNumber.MatchString(cell) {
				t.Errorf("%s: a cell of %s is %q", path, records[0][i], cell)
			}
		}
	}
	for i, text := range hostile {
		if !slices.Contains(ids, strings.TrimPrefix(text, "'")) && (name != "rows" || i != skippedCampaign) {
			t.Errorf("%s: campaign %q is not in it", path, text)
		}
	}
}

func verifyJSONFile(t *testing.T, s *server, name string) {
	t.Helper()
	path := "/export/" + name + "?format=json"
	a := do(t, s, http.MethodGet, path, nil)
	verifyAttachment(t, path, a.header)
	type item struct {
		ID string `json:"campaign_id"`
	}
	var items []item
	a.decode(t, &items)
	for i, text := range hostile {
		if !slices.Contains(items, item{text}) && (name != "rows" || i != skippedCampaign) {
			t.Errorf("%s: campaign %q is not in it", path, text)
		}
	}
}

// assault sends requests that no client of ours would, bypassing client checks.
func assault(t *testing.T, s *server) {
	t.Helper()
	address := strings.TrimPrefix(s.url, "http://")
	for _, text := range hostileAnywhere {
		line := strings.NewReplacer("\r", "", "\n", "").Replace(text)
		for _, request := range []string{
			"GET /" + text + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
			"GET /campaigns/" + url.PathEscape(text) + " HTTP/1.1\r\nHost: " + address + "\r\nX-Request-Id: " + line + "\r\nUser-Agent: " + line + "\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: " + line + "\r\n\r\n",
			"POST /api/v1/campaigns/x/events HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\nIdempotency-Key: " + line + "\r\nOrigin: " + line + "\r\nContent-Length: 2\r\n\r\n{}",
		} {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode >= 500 || answer.Header.Get("Set-Cookie") != "" || answer.Header.Get("X-Hostile") != "" {
				t.Errorf("%+.80q is answered with %v, %v", request, answer, err)
			}
			c.Close()
		}
	}
}

var logLine = regexp.MustCompile(`^time=\S+ level=(DEBUG|INFO|WARN) msg=`)

// verifyLog fails the test unless each line of a log is one entry written by the program: no
// foreign text begins one, and none is an error.
func verifyLog(t *testing.T, format, log string) {
	t.Helper()
	entries := 0
	for line := range strings.Lines(log) {
		line = strings.TrimSuffix(line, "\n")
		entries++
		if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
			t.Errorf("a control character at byte %d of %+.200q", i, line)
		}
		if format == "text" && !logLine.MatchString(line) {
			t.Errorf("no entry of ours: %+.200q", line)
		}
		var entry struct{ Time, Level, Msg string }
		if format != "json" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Msg == "" || entry.Level == "ERROR" || entry.Msg == "forged" {
			t.Errorf("no entry of ours: %+.200q, %v", line, err)
		}
	}
	if least := 3 * len(hostile); entries < least {
		t.Errorf("the log has %d entries; an event each makes %d", entries, least)
	}
	for _, text := range []string{`<script>hostile(1)</script>`, "a delivery failed"} {
		if !strings.Contains(log, text) && !strings.Contains(log, strings.Trim(fmt.Sprintf("%q", js(text)), `"`)) && !strings.Contains(log, strings.Trim(js(text), `"`)) {
			t.Errorf("the log says nothing of %s", text)
		}
	}
}
