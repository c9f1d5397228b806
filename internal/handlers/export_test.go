package handlers

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// spoilers are campaign ids that break careless exports.
var spoilers = []string{`=cmd|' /C calc'!A0`, "+1", "-1", "@sum(a1)", "  =1", "\u00a0@x", "＝1", "﹢1", `a "b", c`, "ü✓", "'quoted", "a;b", "plain"}

func TestExport_csvKeepsEveryTextAndIsNoFormula(t *testing.T) {
	s := ownSite(t)
	for _, id := range spoilers {
		s.seed(id, "a")
	}
	a := s.get("/export/rows?format=csv").want(t, 200)
	a.header(t, "Content-Type", "text/csv; charset=utf-8")
	a.header(t, "Content-Disposition", `attachment; filename="outboxweb-rows-20261121T070000Z.csv"`)
	a.times(t, len(spoilers)+1, "\r\n")
	for _, r := range must.Get(csv.NewReader(strings.NewReader(a.body)).ReadAll()).Or(t)[1:] {
		if id := strings.TrimPrefix(r[0], "'"); looksLikeFormula(r[0]) || !slices.Contains(spoilers, r[0]) && !slices.Contains(spoilers, id) {
			t.Errorf("%q is a formula, or another id", r[0])
		}
		must.Hold(t, r[1] == "1" && r[3] == "pending" && r[10] == "true" && r[8] == "2026-11-21T07:00:00Z", "record %q", r)
	}
}

func TestCSVRow_keepsEveryByteAndQuotesWhatMustBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain": "plain", "two\r\nlines": "\"two\r\nlines\"", "a\rb": "\"a\rb\"", `"`: `""""`, "a,b": `"a,b"`, " a": `" a"`, "a=1": "a=1",
		"=1": "'=1", "\t1": "'\t1", "\r=1": "\"'\r=1\"", "\n+1": "\"'\n+1\"", " \t-1": "' \t-1", "\ufeff@x": "'\ufeff@x", "\u200b=1": "'\u200b=1", "\u2060+1": "'\u2060+1", "\u202e+1": "'\u202e+1", "−1": "−1", `=",`: `"'="","`,
	} {
		must.Equal(t, string(csvRow(nil, text, int64(-5), -7, false, 0.25, time.Time{})), want+",-5,-7,false,0.25,\r\n", text, "became")
	}
}

func TestExport_jsonIsWhatTheListHas(t *testing.T) {
	s := ownSite(t).trouble()
	for _, id := range spoilers {
		s.seed(id, "a", "b")
	}
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	for _, list := range []string{"rows", "rows?status=dead", "rows?event_type=b&reverse=true", "rows?campaign=none", "campaigns", "campaigns?state=blocked&sort=age", "campaigns?q=none", "audit?actor=none", "audit", "audit?action=pause"} {
		name, query, _ := strings.Cut(list, "?")
		listed := decodeAs[struct{ Items []json.RawMessage }](t, s.get("/api/v1/"+name+"?limit=200&"+query).want(t, 200))
		for _, prefix := range []string{"", apiPrefix} {
			exported := decodeAs[[]json.RawMessage](t, s.get(prefix+"/export/"+name+"?format=json&bom=true&"+query).want(t, 200))
			must.Need(t, len(exported) == len(listed.Items), "%s has %d items, the list %d", list, len(exported), len(listed.Items))
			for i := range exported {
				must.Hold(t, sameJSON(t, exported[i], listed.Items[i]), "%s: item %d is %s, want %s", list, i, exported[i], listed.Items[i])
			}
		}
		records, err := csv.NewReader(strings.NewReader(s.get("/export/"+name+"?format=csv&"+query).want(t, 200).body)).ReadAll()
		must.Hold(t, err == nil && len(records) == len(listed.Items)+1, "%s: %d records, %v, want a header and %d", list, len(records), err, len(listed.Items))
	}
}

func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	var texts [2]string
	for i, raw := range []json.RawMessage{a, b} {
		var v any
		must.OK(t, json.Unmarshal(raw, &v))
		text, _ := json.Marshal(v)
		texts[i] = string(text)
	}
	return texts[0] == texts[1]
}

func TestExport_saysWhatIsWrongBeforeItBegins(t *testing.T) {
	s := ownSite(t)
	for query, begin := range map[string]string{"": "campaign_id,seq,", "?bom=true": "\ufeffcampaign_id,seq,"} {
		if a := s.get("/export/rows"+query).want(t, 200); !strings.HasPrefix(a.body, begin) {
			t.Errorf("/export/rows%s begins otherwise: %q", query, a.body)
		}
	}
	s.get("/api/v1/export/rows?format=xml").want(t, 422, "csv or json")
	s.get("/export/audit?format=csv&since=soon").want(t, 422, "write a time (UTC) like")
	if a := s.do("HEAD", "/export/rows?format=csv", ""); a.StatusCode != 200 || a.body != "" || !strings.Contains(a.Header.Get("Content-Disposition"), "rows") {
		t.Errorf("HEAD answers %d with %q, headers %v", a.StatusCode, a.body, a.Header)
	}
	s.serveExport("/test/broken", func(yield func([]int, error) bool) { yield(nil, errors.New("no disk")) })
	must.Equal(t, s.get("/test/broken?format=csv").want(t, 500).Header.Get("Content-Disposition"), "", "an error is offered as a file")
}

// serveExport serves a test's sequence as an export of numbers.
func (s *site) serveExport(path string, pages iter.Seq2[[]int, error]) {
	s.srv.router.Get(path, s.srv.stream(func(w http.ResponseWriter, r *http.Request) error {
		_, bounded := r.Context().Deadline()
		must.Hold(s.t, !bounded, "an export has a deadline")
		heeding := func(yield func([]int, error) bool) {
			for numbers, err := range pages {
				if gone := r.Context().Err(); gone != nil {
					numbers, err = nil, gone
				}
				if !yield(numbers, err) {
					return
				}
			}
		}
		return export(s.srv, w, r, heeding, table[int]{name: "numbers", header: []any{"n"},
			cells: func(n int) []any { return []any{n} }, view: func(n int) any { return n }})
	}))
}

// flushes is an answer that records how much was written between flushes.
type flushes struct {
	*httptest.ResponseRecorder
	sizes []int
	seen  int
}

func (f *flushes) Flush() {
	f.sizes = append(f.sizes, f.Body.Len()-f.seen)
	f.seen = f.Body.Len()
}

func (s *site) fillRows(n int) {
	for _, statement := range []string{
		`insert into campaigns (campaign_id, high_water_seq, head_seq, head_status, pending, created_at, updated_at) values ('many', %d, 1, 'pending', %[1]d, 1, 1)`,
		`insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
with recursive n(i) as (values (1) union all select i + 1 from n where i < %d) select 'many', i, 'counted', 1, 1, 1 from n`} {
		s.kit.Exec(fmt.Sprintf(statement, n))
	}
}

const manyRows = 5_000

func TestExport_ofManyRowsIsSentInSmallParts(t *testing.T) {
	s := ownSite(t)
	s.fillRows(manyRows)
	for _, format := range []string{"csv", "json"} {
		w := &flushes{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("GET", "http://127.0.0.1/export/rows?format="+format, nil)
		s.http.ServeHTTP(w, r)
		must.Hold(t, len(w.sizes) >= manyRows/500 && slices.Max(w.sizes) <= 500*400, "%s: %d parts, the largest of %d bytes", format, len(w.sizes), slices.Max(w.sizes))
		count := 0
		if format == "csv" {
			records := must.Get(csv.NewReader(w.Body).ReadAll()).Or(t)
			count = len(records) - 1
		} else {
			var all []outbox.Row
			must.OK(t, json.Unmarshal(w.Body.Bytes(), &all))
			count = len(all)
		}
		must.Equal(t, count, manyRows, "the rows of", format)
	}
}

// listenWith serves the site on its own port, with the program's server. Zero patience means no limit.
func (s *site) listenWith(p Patience) *httptest.Server {
	const ample = time.Hour
	p = Patience{cmp.Or(p.Header, ample), cmp.Or(p.Read, ample), cmp.Or(p.Write, ample), cmp.Or(p.Idle, ample)}
	server := httptest.NewUnstartedServer(nil)
	server.Config = NewHTTPServer(s.http, p, s.srv.Logger)
	server.Start()
	s.t.Cleanup(server.Close)
	return server
}

func TestExport_outlivesTheDeadlinesOfTheConnection(t *testing.T) {
	t.Parallel()
	const patience = 50 * time.Millisecond
	s := newSite(t)
	began := time.Now()
	s.serveExport("/test/long", func(yield func([]int, error) bool) {
		tick := time.NewTicker(patience / 2)
		defer tick.Stop()
		for n := range 8 {
			<-tick.C
			if !yield([]int{n}, nil) {
				return
			}
		}
	})
	res := must.Get(http.Get(s.listenWith(Patience{Read: patience, Write: patience}).URL + "/test/long?format=csv")).Or(t)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	took := time.Since(began)
	must.Hold(t, err == nil && took >= 3*patience && string(body) == "n\r\n0\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n", "after %s got %q, %v", took, body, err)
}

func TestExport_thatFailsMidwayIsCutOff(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	s := newSite(t, func(c *Config) { c.Stopping = stopping })
	s.serveExport("/test/broken", func(yield func([]int, error) bool) {
		if yield([]int{1, 2}, nil) {
			yield(nil, errors.New("no disk"))
		}
	})
	s.serveExport("/test/stopped", func(yield func([]int, error) bool) {
		for i := 0; i < 1000 && yield([]int{3}, nil); i++ {
			if i == 0 {
				close(stopping)
			}
		}
	})
	server := s.listenWith(Patience{})
	for _, path := range []string{"/test/broken", "/test/stopped"} {
		for _, format := range []string{"csv", "json"} {
			res, err := http.Get(server.URL + path + "?format=" + format)
			if path == "/test/stopped" && format == "json" {
				must.Hold(t, err != nil || res.StatusCode == http.StatusInternalServerError, "%s begins while the server stops: %d", path, res.StatusCode)
				continue
			}
			must.OK(t, err)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			must.Hold(t, errors.Is(err, io.ErrUnexpectedEOF), "%s as %s ends with %v after %q", path, format, err, body)
		}
	}
}

func TestExport_endsWhenItsReaderHasGone(t *testing.T) {
	s := ownSite(t)
	ended := make(chan struct{})
	s.serveExport("/test/endless", func(yield func([]int, error) bool) {
		defer close(ended)
		numbers := make([]int, 500)
		for yield(numbers, nil) {
		}
	})
	res := must.Get(http.Get(s.listenWith(Patience{}).URL + "/test/endless?format=json")).Or(t)
	must.Get(io.CopyN(io.Discard, res.Body, 10_000)).Or(t)
	res.Body.Close()
	select {
	case <-ended:
	case <-time.After(allowance):
		t.Error("the export goes on without a reader")
	}
}
