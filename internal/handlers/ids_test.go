package handlers

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	htmlID   = regexp.MustCompile(`\sid="([^"]*)"`)
	htmlRefs = regexp.MustCompile(`\s(?:for|aria-labelledby|aria-describedby|aria-controls)="([^"]*)"`)
	control  = regexp.MustCompile(`<(?:input|select|textarea)\b[^>]*>`)
	ownLabel = regexp.MustCompile(`type="hidden"|aria-label(?:ledby)?=`)
	labelled = regexp.MustCompile(`(?s)<label\b[^>]*>.*?</label>`)
)

// tellsApart fails the test if two elements of a page share an id, if a label or description
// references a missing element, or if a control has no label.
func (s *site) tellsApart(page string) {
	s.t.Helper()
	html := s.get(page).want(s.t, http.StatusOK).body
	ids := map[string]int{}
	for _, m := range htmlID.FindAllStringSubmatch(html, -1) {
		if ids[m[1]]++; ids[m[1]] == 2 {
			s.t.Errorf("%s: the id %q is there twice", page, m[1])
		}
	}
	for _, m := range htmlRefs.FindAllStringSubmatch(html, -1) {
		if ids[m[1]] == 0 {
			s.t.Errorf("%s: %s refers to nothing", page, m[0])
		}
	}
	for _, m := range control.FindAllString(labelled.ReplaceAllString(html, ""), -1) {
		id := htmlID.FindStringSubmatch(m)
		if !ownLabel.MatchString(m) && (id == nil || !strings.Contains(html, ` for="`+id[1]+`"`)) {
			s.t.Errorf("%s: %s has no label", page, m)
		}
	}
}

func TestPages_tellTheirElementsApart(t *testing.T) {
	t.Parallel()
	pages := append([]string{"/campaigns/c-3", "/campaigns/c-3/events/1", "/campaigns/c-4", "/operations/1", "/operations/2", "/operations?status=running", "/failures", "/rows?status=failed"}, everyPage...)
	for _, reasonFrom := range []int64{0, 1} {
		if testing.Short() && reasonFrom == 0 {
			continue
		}
		s := newSite(t, func(c *Config) { c.ReasonFrom = reasonFrom }).blocked(2).trouble()
		for _, page := range everyPage {
			s.tellsApart(page)
		}
		s.seed("c-3", poison, "a")
		s.pass() // fails once
		s.seed("c-4", poison, poison, "a")
		s.work()
		s.seed("c-3", "b")
		for _, seq := range []string{"1", "2"} {
			s.submit("/rows/c-4/"+seq+"/skip", "reason=r&confirm=skip+c-4+"+seq).want(t, http.StatusSeeOther)
			s.work()
		}
		s.post("/api/v1/operations", `{"canary":true,"filter":{"limit":1},"reason":"r"}`).want(t, 202)
		s.post("/api/v1/operations", `{"filter":{},"reason":"r"}`).want(t, 202)
		s.post("/api/v1/operations/2/cancel", `{"reason":"r"}`).want(t, 200)
		for _, page := range pages {
			s.tellsApart(page)
		}
	}
}
