package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/apitest"
)

var document = sync.OnceValues(func() (*apitest.Document, error) {
	text, err := os.ReadFile(apiDocument)
	if err != nil {
		return nil, err
	}
	return apitest.Parse(text, "/api/v1")
})

// checkDocumented tells strict unless the API answers, and takes, what its document says.
func (s *server) checkDocumented(r *http.Request, res *http.Response, body []byte) {
	doc, err := document()
	if err == nil {
		asked := *r
		asked.Body = nil
		if r.GetBody != nil {
			asked.Body, _ = r.GetBody()
		}
		_, err = doc.Check(&asked, res.StatusCode, res.Header, body)
	}
	if err != nil {
		s.strict(err)
	}
}

// do is server.do for a connection that must not fail.
func do(t *testing.T, s *server, method, path string, body any) answer {
	t.Helper()
	a, err := s.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// problem is the body of an error of the API.
type problem struct {
	Type      string
	Title     string
	Status    int
	Detail    string
	RequestID string `json:"request_id"`
	Errors    map[string]string
	Appended  []appended
}

// refused reads an answer as a problem and fails the test unless it is a complete one with this
// status, and the words in its detail.
func refused(t *testing.T, a answer, status int, words ...string) problem {
	t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("answered with %d %s %s, want problem %d", a.status, a.header.Get("Content-Type"), a.body, status)
	}
	var p problem
	a.decode(t, &p)
	if p.Status != status || p.Type == "" || p.Title != http.StatusText(status) || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("the problem is not complete: %s", a.body)
	}
	for _, word := range words {
		if !strings.Contains(p.Detail, word) {
			t.Errorf("the detail %q does not say %q", p.Detail, word)
		}
	}
	return p
}

// Whatever the API offers to read is as its document says, on a server that has objects of every kind.
func TestAPI_isReadAsItsDocumentSays(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); readAPI(t, newDatabases(t)) })
	if !testing.Short() {
		t.Run("postgres", func(t *testing.T) { t.Parallel(); readAPI(t, newPostgres(t)) })
	}
}

func readAPI(t *testing.T, d databases) {
	t.Helper()
	files := maps.Clone(hoard)
	maps.Copy(files, roads)
	s, campaign, seq := troubledIn(t, d, "", append(writeProjections(t, files), "--projections", "builtin:campaigns")...)
	appendTo(t, s, "", "hoarded", []event{foundGold("chest", 5, "", ""), foundGold("urn", 1, "", ""), foundGold("chest", 9, "", ""), {EventType: "lost", Payload: map[string]any{"name": "urn"}}})
	appendTo(t, s, "", "mapped", []event{founded(1, "Ys"), founded(2, "Ur"), {EventType: "built", Payload: map[string]any{"a": 1, "b": 2}}, {EventType: "fallen", Payload: map[string]any{"id": 2}}})
	for _, c := range []string{"hoarded", "mapped"} {
		eventually(t, patience, c+" is applied", func() (bool, string) { is := campaignState(t, s, c); return is.State == "current", is.Why })
	}
	var rehearsal runDoc
	s.post(t, http.StatusAccepted, "/api/v1/rehearsals", map[string]any{"files": []map[string]string{{"name": "hoard.sql", "text": hoard["hoard.sql"] + "\n-- on: spent\ndelete from hoard where campaign_id = :campaign_id;\n"}}}).decode(t, &rehearsal)
	awaitEnd(t, s, rehearsal.ID)

	text, err := os.ReadFile(apiDocument)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema struct{ Enum []any }
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	names := apiNames(t, s)
	for path, item := range doc.Paths {
		o, isRead := item["get"]
		if !isRead {
			continue
		}
		read, refused := 0, 0
		ask := func(target string) {
			switch a := do(t, s, http.MethodGet, "/api/v1"+target, nil); {
			case a.status == http.StatusOK:
				read++
			case a.status < 500:
				refused++
			default:
				t.Errorf("%s: %d %s", target, a.status, a.body)
			}
		}
		ask(strings.NewReplacer("{campaign}", "nobody", "{topic}", "none", "{publisher}", "none", "{name}", "none", "{source}", "none", "{", "9", "}", "").Replace(path) + "?unknown=1")
		for i, target := range filled(path, names) {
			ask(target)
			for _, p := range o.Parameters {
				for _, value := range p.Schema.Enum {
					if i < 3 {
						ask(target + "?" + url.Values{p.Name: {fmt.Sprint(value)}}.Encode())
					}
				}
			}
		}
		if elsewhere := strings.HasSuffix(path, "/read-model/cell") || strings.HasPrefix(path, "/intake/{source}"); read == 0 && !elsewhere || refused == 0 {
			t.Errorf("%s was answered with 200 %d times, and refused %d times", path, read, refused)
		}
	}
	readCells(t, s, campaign, seq-1)
	readCells(t, s, "hoarded", 3)
	readCells(t, s, "hoarded", 4)
	readCells(t, s, "mapped", 4)
}

// apiNames are values of what addresses have in braces, several together before single ones.
func apiNames(t *testing.T, s *server) [][]string {
	t.Helper()
	var campaigns, names struct {
		Items []struct {
			ID   string `json:"campaign_id"`
			Head int64  `json:"head_seq"`
			High int64  `json:"high_water_seq"`
			Name string
		}
	}
	s.get(t, "/api/v1/campaigns?limit=200", &campaigns)
	s.get(t, "/api/v1/projections", &names)
	ids, events, rows, projections := []string{"{campaign}"}, []string{"{campaign}/events/{seq}"}, []string{"{campaign}/{seq}"}, []string{"{name}"}
	for _, c := range campaigns.Items {
		ids = append(ids, url.PathEscape(c.ID))
		for _, seq := range []int64{max(1, c.Head), c.High} {
			events, rows = append(events, fmt.Sprintf("%s/events/%d", url.PathEscape(c.ID), seq)), append(rows, fmt.Sprintf("%s/%d", url.PathEscape(c.ID), seq))
		}
	}
	for _, p := range names.Items {
		projections = append(projections, p.Name)
	}
	return [][]string{events, rows, {"{topic}/{publisher}", "everything/archive", "everything/away", "everything/quiet", "sessions/refused", "sessions/gone"},
		ids, projections, {"{run}", "1", "2", "3", "4", "5"}, {"{operation}", "1"}, {"{failure}", "1", "2"}}
}

// filled are the addresses that a path of the document stands for.
func filled(path string, names [][]string) []string {
	for _, of := range names {
		if !strings.Contains(path, of[0]) {
			continue
		}
		var all []string
		for _, value := range of[1:] {
			all = append(all, filled(strings.Replace(path, of[0], value, 1), names)...)
		}
		return all
	}
	return []string{path}
}

// readCells reads every table, row and cell of a campaign's read model as of an event.
func readCells(t *testing.T, s *server, campaign string, seq int64) {
	t.Helper()
	type field struct{ Name string }
	var model struct {
		Tables []struct {
			Projection, Table string
			Rows              []struct {
				Row        string
				Key, Cells []field
			}
		}
	}
	base := "/api/v1/campaigns/" + url.PathEscape(campaign) + "/read-model"
	ask := func(address string, also url.Values, v any) {
		also.Set("seq", fmt.Sprint(seq))
		s.get(t, address+"?"+also.Encode(), v)
	}
	ask(base, url.Values{}, &model)
	cells := 0
	for _, table := range model.Tables {
		ask(base, url.Values{"table": {table.Table}, "limit": {"1"}}, &struct{}{})
		for _, row := range table.Rows {
			if row.Row == "" {
				continue
			}
			ask(base, url.Values{"row": {row.Row}}, &struct{}{})
			for _, cell := range row.Cells {
				cells++
				ask(base+"/cell", url.Values{"row": {row.Row}, "column": {cell.Name}}, &struct{}{})
			}
		}
	}
	if cells == 0 {
		t.Errorf("campaign %s has no cells at event %d", campaign, seq)
	}
}
