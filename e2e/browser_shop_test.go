package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// buildShop builds the example service once, beside the program.
var buildShop = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "shop")
	text, err := exec.Command("go", "build", "-ldflags", withoutSymbols, "-o", path, "github.com/outboxweb/outboxweb/examples/shop").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return path, err
})

func startShop(t *testing.T, d databases, projections string) *server {
	path := must.Get(buildShop()).Or(t)
	cmd := program(d, "-listen", "127.0.0.1:0", "-db", d.url, "-projections", projections)
	cmd.Path = path
	s := attended(t, cmd)
	s.awaitListening(t)
	return s
}

func shopper(t *testing.T, s *server, user string) *tab {
	b := openTab(t, s)
	b.expect("NavigationEntryMarkedSkippable") // of visits without a click
	b.visit("/admin/")
	b.at("/login") // as nobody is signed in
	b.soundShop("the login")
	b.clickThrough(`button[value="` + user + `"]`).at("/")
	return b
}

// visit opens a page of the shop, which has no scripts.
func (b *tab) visit(path string) *tab {
	b.do("open "+path, chromedp.Navigate(b.s.url+path))
	return b
}

func (b *tab) clickThrough(selector string) *tab {
	b.scripts = false // the shop's pages have none
	b.clickAway(selector)
	b.scripts = true
	return b
}

func (b *tab) soundShop(where string) *tab {
	if !testing.Short() {
		b.loadAxe()
	}
	got := value[inspection](b, inspect)
	got.Title += " · outboxweb" // which these pages are not
	got.Keyless = nil
	checkInspection(b.t, where, got)
	return b
}

func (b *tab) order(product string, quantity int) (id string) {
	b.visit("/")
	before := value[int](b, `document.querySelectorAll(".orders li").length`)
	value[bool](b, `(document.querySelector("select").value = `+js(product)+`, document.querySelector("[name=quantity]").value = `+js(fmt.Sprint(quantity))+`, true)`)
	b.clickThrough("#place")
	b.await("the order is listed", fmt.Sprintf(`document.querySelectorAll(".orders li").length === %d`, before+1))
	return value[string](b, `document.querySelector(".orders li").id`)
}

func (b *tab) awaitOrder(id, text string) *tab {
	b.eventually(id+" says "+text, func() (bool, string) {
		b.visit("/")
		return b.holds(telling("#"+id, text))
	})
	return b
}

func repairedAsTheTutorialSays(t *testing.T, file string) {
	readme := must.Get(os.ReadFile("../examples/shop/README.md")).Or(t)
	diff := regexp.MustCompile("(?s)```diff\n(.*?)```").FindSubmatch(readme)
	must.Need(t, diff != nil, "the tutorial has no diff")
	var before, after strings.Builder
	for line := range strings.Lines(string(diff[1])) {
		if !strings.HasPrefix(line, "+") {
			before.WriteString(line[1:])
		}
		after.WriteString(line[1:])
	}
	text := must.Get(os.ReadFile(file)).Or(t)
	must.Need(t, strings.Contains(string(text), before.String()), "%s does not have the lines of the tutorial's diff:\n%s", file, before.String())
	must.OK(t, os.WriteFile(file, []byte(strings.Replace(string(text), before.String(), after.String(), 1)), 0o600))
}

// The tutorial's story: orders placed in the shop are seen in the console behind the shop's own
// login; one that a projection cannot take is dead, and is applied once that is repaired.
func TestBrowser_shopOfTheTutorial(t *testing.T) {
	size.Full(t, "its pages are those of other tests, and it takes another program")
	t.Parallel()
	d := newPostgres(t)
	projections := filepath.Join(t.TempDir(), "projections")
	must.OK(t, os.CopyFS(projections, os.DirFS("../examples/shop/projections")))
	s := startShop(t, d, projections)
	b := shopper(t, s, "otto")
	tea := b.order("tea", 2)
	b.awaitOrder(tea, "placed, 200 g")
	b.clickThrough("#"+tea+" form button").awaitOrder(tea, "shipped, 200 g")
	teapot := b.order("teapot", 1)
	coffee := b.order("coffee", 1)
	b.awaitOrder(coffee, "placed, 250 g").awaitOrder(teapot, "not in the read model yet").soundShop("the shop")

	b.clickThrough(`header a`).at("/admin/")
	b.base = "/admin"
	b.lookUntil("one campaign is blocked, and why", telling(marked("cause"), "1 campaign blocked")+" && "+telling(marked("cause"), "parcels"))
	b.await("the console knows who it is", saying(marked("me"), "otto")).sound("the console of the shop")
	dead := "/campaigns/" + teapot + "/events/1"

	v := shopper(t, s, "vera")
	v.base = "/admin"
	v.open(dead)
	v.await("a viewer is told what they may not", telling(marked("withheld"), "you are vera, a viewer")+` && !document.querySelector(`+js(marked("requeue"))+`)`)
	for _, tab := range []*tab{v, b} {
		tab.visit("/") // leave the console, whose pages would notice that the shop is gone
	}
	must.Equal(t, s.stop(t), 0, "the shop ended with")

	repairedAsTheTutorialSays(t, filepath.Join(projections, "parcels.sql"))
	s = startShop(t, d, projections)
	b = shopper(t, s, "otto")
	b.base = "/admin"
	b.open(dead)
	b.await("the page says what changed, and offers no skip", telling("main", "projection parcels changed")+` && !document.querySelector(`+js(marked("skip-open"))+`)`)
	b.typeInto("#reason", "teapots have a weight").click(marked("requeue"))
	b.lookUntil("the event is applied", telling(".rowstate", "Applied. All events up to"))
	b.open("/")
	b.lookUntil("all is clear", `!document.querySelector(`+js(marked("count-dead"))+`) && !document.querySelector(`+js(marked("cause"))+`)`)
	b.open("/audit")
	b.await("the audit log names the shop's user", telling("tbody tr", "otto")+" && "+telling("tbody tr", "teapots have a weight"))
	b.base = ""
	b.awaitOrder(teapot, "placed, 800 g")
	checkClean(t, d, "--no-replay")
}
