package e2e

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// knownTags and knownAttributes are all that pages may contain. A new name in our own pages is
// added here; one injected by a text is not.
var (
	knownTags = `a abbr article aside b bdi blockquote body br button caption circle code col colgroup datalist dd defs desc details dialog div dl dt em fieldset figcaption figure footer form g h1 h2 h3 h4 head header
		hr html i input kbd label legend li line link main mark meta meter nav ol optgroup option output p path polyline polygon pre progress rect s samp script section select small span strong
		style sub summary sup svg table tbody td text textarea tfoot th thead time title tr u ul use var wbr`
	knownAttributes = `^(abbr|accept(-charset)?|action|aria-[a-z]+|as|autocomplete|autofocus|charset|checked|class|cols|colspan|content|crossorigin|cx|cy|d|data-[a-z]+(-[a-z]+)*|datetime|defer|dir|disabled|dy|download|enctype|fill|focusable|for|form|formaction|formmethod|formnovalidate|height|hidden|high|href|http-equiv|` +
		`hx-(boost|confirm|disabled-elt|ext|get|headers|include|indicator|post|push-url|replace-url|select|swap|sync|target|trigger)|id|inputmode|label|lang|list|low|max|maxlength|media|method|min|minlength|multiple|name|nonce|novalidate|open|optimum|pattern|placeholder|points|popover|popovertarget|preserveAspectRatio|` +
		`r|readonly|rel|required|role|rows|rowspan|rx|ry|scope|selected|size|span|spellcheck|src|start|step|stroke(-[a-z]+)?|tabindex|text-anchor|title|transform|type|value|vector-effect|viewBox|visibility|width|wrap|x|x1|x2|xmlns|y|y1|y2)$`
)

// watch runs in every page before anything else: it detects injected code that runs.
const watch = `window.hostile = (...a) => console.error("a text was executed:", ...a)`

// survey says what a page shows, and what in it would not be there but for a text: elements and attributes, code
// and style, addresses outside, invisible or direction-changing characters, and a text in another direction that
// is not isolated from its sentence.
var survey = `(() => {
	const all = [...document.querySelectorAll("*")], attributes = all.flatMap(e => [...e.attributes].map(a => ({e, name: a.name, value: a.value})))
	const outer = e => e.outerHTML.slice(0, 300), tags = ` + js(strings.Fields(knownTags)) + `, names = new RegExp(` + js(knownAttributes) + `)
	const unseen = /(?![\n\t\r\u200c\u200d])[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/u, turned = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/
	const texts = [], walk = document.createTreeWalker(document, NodeFilter.SHOW_TEXT)
	while (walk.nextNode()) if (!walk.currentNode.parentElement.closest("script, style, textarea")) texts.push(walk.currentNode)
	const inline = e => getComputedStyle(e).display.startsWith("inline")
	const apart = n => {
		let e = n.parentElement
		for (; inline(e); e = e.parentElement) if (/isolate|plaintext/.test(getComputedStyle(e).unicodeBidi)) return true
		return e.matches(".hidden, title, option, pre") || e.textContent.trim() === n.data.trim()
	}
	const leads = a => /^(href|src|action|formaction|srcset|poster|background|ping|cite|data|xlink:href|(data-)?hx-(get|post|put|patch|delete|push-url|replace-url))$/.test(a.name) && !(/-url$/.test(a.name) && a.value === "true")
	const inside = a => a.startsWith("#") || a.startsWith(location.origin + "/") || /^\/(?!\/)[^\\\t\r\n <>"'\x60]*$/.test(a)
	const wrong = {
		"the title": document.title.endsWith(" · outboxweb") ? [] : [document.title],
		"an element": all.map(e => e.localName).filter(name => !tags.includes(name)),
		"an attribute": attributes.map(a => a.name).filter(name => !names.test(name)),
		"leads outside": attributes.filter(leads).map(a => a.value).filter(a => !inside(a)),
		"code or style": [...attributes.filter(a => /^on|^style$|hx-on|hx-vals|hx-vars/.test(a.name)).map(a => outer(a.e)), ...all.filter(e => e.matches("style, script:not([src]), iframe, object, embed, base, meta[http-equiv]")).map(outer)],
		"characters that are not seen": [...texts.filter(n => unseen.test(n.data)).map(n => outer(n.parentElement)), ...attributes.filter(a => /^(title|aria-label|alt|placeholder)$/.test(a.name) && unseen.test(a.value)).map(a => a.name + " of " + outer(a.e))],
		"no isolation from its sentence": texts.filter(n => turned.test(n.data) && !apart(n)).map(n => outer(n.parentElement)),
	}
	return {text: document.body.textContent, wrong: Object.entries(wrong).flatMap(([what, where]) => where.map(one => what + ": " + one))}
})()`

// look makes a live part refresh once, and waits for that.
const look = `new Promise(done => {
	const live = document.querySelector("[data-live]")
	if (!live || live.querySelector("[data-ended], #refusal")) return done("")
	addEventListener("htmx:afterRequest", e => setTimeout(() => done(e.detail.successful || e.detail.xhr.status === 304 ? "" : "status " + e.detail.xhr.status), 0), {once: true})
	htmx.trigger(live, "look")
	setTimeout(() => done("it was not read"), 100000)
})`

// sees is a text as pages show it; a browser has one kind of line ending.
func sees(text string) string {
	var b strings.Builder
	for _, r := range strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text) {
		switch {
		case strings.ContainsRune("\n\t\r\u200c\u200d", r), !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) && r != '\ufffd':
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

type besieged struct {
	*tab
	told map[string]bool // reported complaints, since they repeat on many pages
}

var number = regexp.MustCompile(`[0-9]+`)

// openBesieged opens a tab that complains of requests to other servers, and of dialogs.
func openBesieged(t *testing.T, s *server) *besieged {
	b := &besieged{tab: openTab(t, s), told: map[string]bool{}}
	for _, status := range []string{"404", "422"} { // what is asked for may not be there
		b.expect("response: " + status)
		b.expect("status of " + status)
	}
	b.inject(watch)
	must.OK(t, chromedp.Listen(b.ctx, func(ev any) {
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(ev.Request.URL, s.url+"/") && !strings.HasPrefix(ev.Request.URL, "data:image/svg+xml") {
				b.complain("request to %s on %s", ev.Request.URL, ev.DocumentURL)
			}
		case *page.EventJavascriptDialogOpening:
			b.complain("dialog %s on %s", ev.Message, ev.URL)
		}
	}))
	return b
}

// visit opens a page and checks it after its live part has refreshed. It returns the page's text.
func (b *besieged) visit(path string) string {
	b.open(path)
	failure := value[string](b.tab, look)
	must.Hold(b.t, failure == "", "%s: the live part: %s", path, failure)
	found := value[struct {
		Text  string
		Wrong []string
	}](b.tab, survey)
	for _, one := range found.Wrong {
		kind, _, _ := strings.Cut(number.ReplaceAllString(one, ""), ">")
		must.Hold(b.t, b.told[kind], "%.200q: %+q", path, one)
		b.told[kind] = true
	}
	return found.Text
}

// hears fails the test unless code that runs would be detected.
func (b *besieged) hears() {
	const said = `"a text was executed:" "the test"`
	b.expect(said)
	value[bool](b.tab, `hostile("the test"), true`)
	eventually(b.t, patience, "what runs is heard", func() (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		last := strings.Join(b.trouble, "\n")
		return strings.Contains(last, said), last
	})
}

func (b *besieged) shows(where, said string, texts []string, shown func(string) string) {
	for _, text := range texts {
		must.Hold(b.t, strings.Contains(said, shown(text)), "%s: %+q is not shown", where, text)
	}
}

// showsMany fails the test unless so many of the texts can be read as a document
// writes them. A page shows the beginning of one.
func (b *besieged) showsMany(where, said string) {
	n := 0
	for _, text := range hostileAnywhere {
		if strings.Contains(said, sees(strings.TrimSuffix(strings.TrimPrefix(js(text), `"`), `"`))) {
			n++
		}
	}
	must.Hold(b.t, n >= 40, "%s: of the document's %d texts %d are shown", where, len(hostileAnywhere), n)
}

func hostilePages(campaign string) []string {
	c := url.PathEscape(campaign)
	return []string{"/campaigns/" + c, "/campaigns/" + c + "/events/2?tab=payload", "/campaigns/" + c + "/events/3", "/campaigns/" + c + "/events/2?tab=details", "/campaigns/" + c + "/events/2?tab=neighbours", "/rows/" + c + "/2/requeue", "/rows/" + c + "/2/dry-run?next=1", "/campaigns/" + c + "/events/1", "/campaigns/" + c + "/events/2",
		"/campaigns/" + c + "/events/2/tree", "/campaigns/" + c + "/events/2/tree?part=tags", "/campaigns/" + c + "/events/3/tree?part=metadata", "/runs/1/results/" + c, "/campaigns/" + c + "?after_seq=1&act=1", "/campaigns/" + c + "/read-model", "/campaigns/" + c + "/read-model?live=1", "/campaigns/" + c + "/events/1?tab=rows"}
}

// hostileQueries are the lists and forms, each with the parameters that it reads as text.
var hostileQueries = map[string][]string{
	"/rows": {"campaign", "event_type", "fingerprint", "q"}, "/campaigns": {"q"}, "/audit": {"actor", "campaign"}, "/failures": {"fingerprint", "campaign", "projection"},
	"/runs": {"campaign"}, "/runs/new": {"campaigns", "campaign_ids", "projections", "reason"}, "/operations/new": {"campaign", "event_type", "fingerprint", "rows", "reason"}, "/rehearsals/new": {"fingerprint", "projection"},
	"/publishers/refused/partner/seek": {"position", "time", "reason", "confirm"}, "/": {"span"}, "/projections/hostile": {"campaign"},
}

// hostileOthers are parameters of one kind or another that take no text; a page says what is wrong.
var hostileOthers = []string{"status", "state", "sort", "cursor", "limit", "reverse", "span", "kind", "until", "since", "action", "seq", "after_seq", "act", "error", "part", "path", "next", "to", "all", "rate", "chosen", "canary", "log", "outcome", "acknowledged"}

// In every place that takes a text, texts are displayed and nothing else. No page runs one, fetches
// one, links by one or changes direction because of one.
func TestBrowser_hostileTexts(t *testing.T) {
	t.Parallel()
	s := startHostile(t)
	b := openBesieged(t, s)

	lists := map[string]string{}
	others := []string{"/runs/1", "/operations/1", "/publishers/refused/partner", "/", "/campaigns?limit=200&sort=lag&state=paused", "/operations", "/operations/new", "/runs", "/runs/2", "/runs/new", "/runs/new?kind=rebuild&all_campaigns=true", "/projections",
		"/projections/hostile", "/publishers", "/publishers/picked/file", "/publishers/refused/log", "/publishers/refused/partner/seek?to=beginning", "/publishers/refused/partner/seek?to=head", "/instances", "/about", "/docs/operating", "/rows", "/failures", "/?span=day"}
	for _, path := range append([]string{"/rows?status=dead&limit=200", "/campaigns?limit=200", "/failures?status=all&limit=200", "/projections/aside?state=quarantined&limit=200", "/audit?limit=200"}, others[:size.Of(2, len(others), len(others))]...) {
		lists[path] = b.visit(path)
	}
	b.shows("campaigns", lists["/campaigns?limit=200"], hostile, sees)
	dead := slices.Delete(slices.Clone(hostile), skippedCampaign, skippedCampaign+1)
	b.shows("rows", lists["/rows?status=dead&limit=200"], dead, sees)
	b.shows("types in rows", lists["/rows?status=dead&limit=200"], dead, func(text string) string { return sees(asType(text)) })
	b.shows("projection aside", lists["/projections/aside?state=quarantined&limit=200"], hostile, sees)
	b.shows("failures", lists["/failures?status=all&limit=200"], hostile, func(text string) string { return sees(asType(text)) })
	b.shows("audit", lists["/audit?limit=200"], hostile, sees)
	b.shows("audit", lists["/audit?limit=200"], slices.Concat(hostileTurning, hostileControls), sees)

	nasty := []string{`"><img src=x onerror=hostile(30)>`, `//evil.example/46`, `?q=1&x=2`, "👩\u200d👩\u200d👧", "שלום עולם"} // each on every page about it
	every, step := size.Of(48, 12, 2), size.Of(84, 7, 1)
	nasty = nasty[:size.Of(1, 1, len(nasty))]
	for i, campaign := range hostile {
		pages := hostilePages(campaign)
		switch {
		case slices.Contains(nasty, campaign):
			pages = pages[:size.Of(8, len(pages), len(pages))]
		case i%every == 0:
			pages = pages[i%len(pages):][:1]
		default:
			continue // the lists show it
		}
		for _, path := range pages {
			said := b.visit(path)
			b.shows(path, said, []string{campaign}, sees)
			if i%20 == 0 && strings.HasSuffix(path, "/2/tree") {
				b.showsMany(path, said)
			}
		}
	}

	places := slices.Sorted(maps.Keys(hostileQueries))
	for i, text := range hostileAnywhere {
		if i%step != 0 {
			continue
		}
		path := places[i%len(places)]
		query := url.Values{}
		for _, name := range hostileQueries[path] {
			query.Set(name, text)
		}
		switch i % 4 {
		case 0:
			b.visit(path + "?" + url.Values{hostileOthers[i/4%len(hostileOthers)]: {text}}.Encode())
		case 1:
			b.visit([]string{"/", "/campaigns/", "/runs/", "/publishers/refused/", "/projections/"}[i/4%5] + url.PathEscape(text))
		default:
			b.visit(path + "?" + query.Encode())
		}
	}
	b.hears()
}
