package handlers

import (
	"regexp"
	"strings"
	"testing"
)

// A page of the navigation has there the name that is its title.
func TestNavigation_namesPagesAsTheirTitles(t *testing.T) {
	s := ownSite(t)
	entry := regexp.MustCompile(`<a href="([^"]+)"[^>]*>([^<]+)</a>`)
	heading, title := regexp.MustCompile(`<h1[^>]*>([^<]+)</h1>`), regexp.MustCompile(`<title>([^<]+)</title>`)
	menu := regexp.MustCompile(`(?s)<nav id="menu".*?</nav>`).FindString(s.get("/").body)
	seen := map[string]string{} // the last name of a page: that below its section
	for _, m := range entry.FindAllStringSubmatch(menu, -1) {
		seen[m[1]] = m[2]
	}
	if len(seen) < 15 {
		t.Fatalf("the menu has %v", seen)
	}
	for to, name := range seen {
		body := s.get(to).want(t, 200).body
		h, d := heading.FindStringSubmatch(body), title.FindStringSubmatch(body)
		if h == nil || d == nil || h[1] != name || !strings.HasSuffix(" · "+d[1], " · "+name+" · outboxweb") {
			t.Errorf("%s is %q in the navigation, and has the heading %q and the title %q", to, name, h, d)
		}
	}
}
