package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// hostile are texts that have broken pages, files and logs elsewhere; a short run has every third, a full one
// every second, and so some of each kind. Injected code would call hostile(); injected URLs are at evil.example. None is longer than an id may be.
var hostile = []string{
	// elements, in every place of a document
	`<script>hostile(1)</script>`, `</script><script>hostile(2)</script>`, `</title><script>hostile(3)</script>`, `</textarea><script>hostile(4)</script>`, `</style><script>hostile(5)</script>`,
	`--><script>hostile(6)</script><!--`, `<!--`, `<![CDATA[<script>hostile(7)</script>]]>`, `<noscript><p title="</noscript><img src=x onerror=hostile(8)>">`, `</bdi></code></td></tr></table><script>hostile(9)</script>`,
	`<svg><script>hostile(10)</script></svg>`, `<svg/onload=hostile(11)>`, `<svg><animate onbegin=hostile(12) attributeName=x dur=1s>`, `<math><mi xlink:href="javascript:hostile(13)">x</mi></math>`, `<math><mtext><table><mglyph><style><img src=x onerror=hostile(14)>`,
	`<iframe srcdoc="<script>parent.hostile(15)</script>">`, `<object data="data:text/html,<script>hostile(16)</script>">`, `<template><script>hostile(17)</script></template>`, `<details open ontoggle=hostile(18)>`, `<plaintext>`,
	`<style>*{background:url(//evil.example/19)}</style>`, `<link rel=stylesheet href=//evil.example/20>`, `<base href="//evil.example/">`, `<meta http-equiv="refresh" content="0;url=//evil.example/21">`, `<form action="//evil.example/22"><button>`,
	`<button formaction="javascript:hostile(23)">`, `<a href="javascript:hostile(24)">x</a>`, `<img src="//evil.example/25`, `<a href="//evil.example/26`, `<IMG """><SCRIPT>hostile(27)</SCRIPT>">`, `<img/src/onerror=hostile(28)>`, `<input autofocus onfocus=hostile(29)>`,
	// breaking out of attributes and scripts
	`"><img src=x onerror=hostile(30)>`, `'><img src=x onerror=hostile(31)>`, `" onmouseover="hostile(32)" x="`, `' onfocus='hostile(33)' autofocus='`, "` onclick=hostile(34) `", ` autofocus onfocus=hostile(35) `, `'-hostile(36)-'`, `"-hostile(37)-"`, `\';hostile(38);//`, `\";hostile(39);//`,
	// addresses
	`javascript:hostile(40)`, `JaVaScRiPt:hostile(41)`, ` javascript:hostile(42)`, `javascript://%0ahostile(43)`, `data:text/html,<script>hostile(44)</script>`, `data:text/html;base64,PHNjcmlwdD5ob3N0aWxlKDEpPC9zY3JpcHQ+`, `vbscript:hostile(45)`, `//evil.example/46`, `\\evil.example\47`, `/\evil.example/48`, `https://evil.example/49`,
	`../../../etc/passwd`, `..%2f..%2f`, `%2e%2e`, `./.`, `a/b`, `a//b/`, `?q=1&x=2`, `#main`, `;a=b`, `%00`, `%0d%0aSet-Cookie:%20hostile=1`, `%`, `%zz`, `~`, `*`, `new`, `events`, `export`,
	// templates and htmx
	`{{constructor.constructor('hostile(50)')()}}`, `${hostile(51)}`, `<%= hostile(52) %>`, `#{hostile(53)}`, `{% include "x" %}`, `" hx-get="//evil.example/54" hx-trigger="load" x="`, `" hx-on::load="hostile(55)" x="`, `" hx-vals='js:{x:hostile(56)}' x="`, `js:{x:hostile(57)}`, `" data-hx-get="//evil.example/58" data-hx-trigger="load" hx-disinherit="*" x="`,
	`<div hx-get="//evil.example/59" hx-trigger="load"></div>`, `x" hx-swap-oob="true`, `<div id="live" hx-swap-oob="innerHTML">x</div>`,
	// styles and selectors
	`x:expression(hostile(60))`, `url(//evil.example/61)`, `;background:url("//evil.example/62")`, `"]{}*{color:red}[x="`, `#x, body`,
	// other spellings
	`+ADw-script+AD4-hostile(63)+ADw-/script+AD4-`, `&lt;script&gt;hostile(64)&lt;/script&gt;`, `&#x3c;img src=x onerror=hostile(65)&#x3e;`, `%3Cscript%3Ehostile(66)%3C/script%3E`, `\u003cscript\u003ehostile(67)\u003c/script\u003e`, `\x3cscript\x3ehostile(68)\x3c/script\x3e`, "\uff1cscript\uff1ehostile(69)\uff1c/script\uff1e", "<scr\u0131pt>hostile(70)</scr\u0131pt>",
	// text that changes direction, is invisible or stacks up
	"שלום עולם", "مرحبا 123 abc", "\u0301lone", "z\u0327\u0334\u0315\u0338\u0301\u0310\u0346", "\ufffd\ufffe", "cafe\u0301 caf\u00e9", "ﷺ", "👩\u200d👩\u200d👧", "\u00a0",
	// spreadsheets and databases
	`=cmd|' /C calc'!A0`, `=HYPERLINK("//evil.example/71","x")`, `+1+1`, `-1+1`, `@SUM(1)`, " =1+1", "\u00a0=1+1", "＝1+1", "＋1", "－1", "＠x", "﹦1", `'=1`, `' or 1=1 --`, `"; drop table events; --`, `a;=1+1`, `null`, `undefined`, `NaN`, `__proto__`, `[object Object]`,
	strings.Repeat("long", 50), strings.Repeat("é", 100), strings.Repeat("<b>", 66),
}

// hostileTurning are more texts that no id may have, for places that accept any line.
var hostileTurning = []string{"\u202egnp.exe\u202c", "\u202eopen", "\u2066left\u2069", "\u2067right", "\u200f\u061cmark", "a\u0085b\u009b31m", "\u200bzero\u200b", "\ufeffbom", "two\u2028lines\u2029", "\U000e0041\U000e0042tag", "\U0010ffff\ue000", "\u200b=1+1"}

// hostileControls are more, for places where line ends and the like may stand.
var hostileControls = []string{
	"\x1b[31mred\x1b[0m\x1b]0;title\x07", "a\r\nX-Hostile: 1\r\n\r\n<script>hostile(80)</script>", "\nlevel=ERROR msg=forged by=hostile", "\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\t=1+1", "\r=1+1", "\n=1+1",
	"java\tscript:hostile(81)", "java\nscript:hostile(82)", "\x01javascript:hostile(83)", "<scr\x08ipt>hostile(84)</scr\x08ipt>", "\x02\x0b\x0c\x1f\x7f", "<img\x0csrc=x\x0conerror=hostile(85)>",
}

var hostileLines, hostileAnywhere []string // the texts for places that accept any line, or any text

// chooseTexts sets the texts once it is known how much is to be tested.
func chooseTexts() {
	all, step := hostile, size.Of(3, 2, 1)
	hostile = nil
	for i := 2 % step; i < len(all); i += step {
		hostile = append(hostile, all[i])
	}
	hostileLines, hostileAnywhere = slices.Concat(hostileTurning, hostile), slices.Concat(hostile, hostileTurning, hostileControls)
}

// asType is a text as the type of an event, which has neither spaces nor stars.
func asType(text string) string { return strings.NewReplacer(" ", "/", "*", "×").Replace(text) }

// hostileColumn is where a text stands in the projection's table: beyond the sequence numbers of its events.
const hostileColumn = 100

// hostileProjections block a campaign, or are quarantined, with an error that contains foreign
// text: SQLite names the constraint.
func hostileProjections() map[string]string {
	file := func(name, onFailure, field string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "-- projection: %s\n-- tables: %[1]s_notes\n%s\n-- schema\ncreate table %[1]s_notes (\n  campaign_id text not null,\n  seq bigint not null,\n  note text not null,\n  n bigint,\n", name, onFailure)
		for i := range hostile {
			fmt.Fprintf(&b, "  constraint \"%s\" check (n <> %d),\n", strings.ReplaceAll(hostileLines[i], `"`, `""`), hostileColumn+i)
		}
		fmt.Fprintf(&b, "  primary key (campaign_id, seq)\n);\n\n-- on: *\ninsert into %s_notes (campaign_id, seq, note, n) values (:campaign_id, :seq, :payload.note!, :payload.%s);\n", name, field)
		return b.String()
	}
	return map[string]string{"hostile.sql": file("hostile", "", "n"), "aside.sql": file("aside", "-- on-failure: quarantine\n", "m")}
}

// hostileEvents are the events of the campaign named with the i-th text: the first quarantines a
// projection, the second is dead, one waits behind.
func hostileEvents(i int) []map[string]any {
	text, all := hostile[i], map[string]any{}
	for _, one := range hostileAnywhere {
		all[one] = map[string]any{"as text": one, "as JSON": js(map[string]any{one: one})}
	}
	tags := map[string]string{}
	for _, one := range hostileLines {
		tags[one] = one
	}
	event := func(payload map[string]any) map[string]any {
		payload["note"] = text
		return map[string]any{"event_type": asType(text), "payload": payload, "metadata": map[string]any{text: text}, "tags": map[string]string{text: text},
			"actor_type": text, "actor_id": text, "entity_type": text, "entity_id": text, "session_id": text, "request_id": text, "correlation_id": text, "causation_id": text}
	}
	first, second, third := event(map[string]any{"m": hostileColumn + i}), event(map[string]any{"n": hostileColumn + i}), event(map[string]any{})
	first["event_id"] = text
	if i%20 == 0 {
		second["payload"].(map[string]any)["all"], second["metadata"], second["tags"] = all, all, tags
		third["payload"].(map[string]any)["long"] = strings.Repeat(`"><img src=x onerror=hostile(90)>`, 3000)
	}
	return []map[string]any{first, second, third}
}

// startHostile starts a server with the texts in every place that accepts one.
func startHostile(t *testing.T) *server {
	d, p := newDatabases(t), newPartner(t, always(http.StatusUnprocessableEntity))
	p.answer = strings.Join(hostileAnywhere, "\u00b7")
	var types, selected []string
	for _, text := range hostile {
		types = append(types, strconv.QuoteToASCII(asType(text))) // YAML has Go's escapes
		selected = append(selected, strconv.QuoteToASCII(text))
	}
	config := d.config(t, fmt.Sprintf(`
topics:
  refused:
    match: {event_types: ["*"]}
    publishers:
      partner: {url: %s, %s}
      log: {url: "log:"}
  picked:
    match: {event_types: %s, required_tags: %[4]s, any_of_tags: %[4]s, campaigns: %[4]s, exact_tags: {%[5]s: %[5]s}}
    publishers:
      file: {url: %[6]s}
`, js(p.url+`/"><script>hostile(91)</script>/`), quickPublisher, list(types), list(selected), selected[0], js("file://"+d.dir+`/"><b/onclick=hostile(92)>.ndjson`)))
	s := start(t, d, slices.Concat(quickDeath, []string{"--act-rate", "0"}, config, writeProjections(t, hostileProjections()))...)
	for i, text := range hostile {
		a := do(t, s, http.MethodPost, "/api/v1/campaigns/"+url.PathEscape(text)+"/events", map[string]any{"events": hostileEvents(i)})
		must.Need(t, a.status == http.StatusCreated, "events of campaign %q: %d %s", text, a.status, a.body)
	}
	for _, text := range hostileTurning {
		a := do(t, s, http.MethodPost, "/api/v1/campaigns/"+url.PathEscape(text)+"/events", map[string]any{"event_type": "a", "payload": map[string]any{}})
		must.Equal(t, a.status, http.StatusUnprocessableEntity, "an event of campaign", text, a.body)
	}
	s.awaitSummary(t, "each campaign has a dead head", func(sum summary) bool {
		return sum.Counts.Dead == int64(len(hostile)) && sum.Counts.Processing+sum.Counts.Failed+int64(sum.Campaigns.Leased) == 0
	})
	hostileActions(t, s, d)
	return s
}

func list(items []string) string { return "[" + strings.Join(items, ", ") + "]" }

// skippedCampaign is the one whose dead event is skipped, so that no row is left.
const skippedCampaign = 3

func hostileActions(t *testing.T, s *server, d databases) {
	change(t, d.projections(), "update hostile_notes set note = note || $1 where seq = 1", `<script>hostile(93)</script>`)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "all_campaigns": true, "reason": together(hostileControls, 500)[0]})
	awaitEnd(t, s, 1)
	for i, reason := range together(hostileLines, 500) {
		s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "campaign_id": hostile[i], "reason": reason})
		awaitEnd(t, s, int64(i+2))
	}
	for i, g := range s.items(t, "/api/v1/failures/groups") {
		s.post(t, http.StatusOK, "/api/v1/failures/groups/note", map[string]any{"fingerprint": g.Fingerprint, "note": hostileAnywhere[i%len(hostileAnywhere)], "reason": hostileAnywhere[len(hostileAnywhere)-1-i%len(hostileAnywhere)]})
	}
	rows := []map[string]any{{"campaign_id": hostile[1], "seq": 2}, {"campaign_id": hostile[2], "seq": 2}}
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"rows": rows, "canary": true, "reason": together(hostileLines, 500)[0]})
	awaitOperation(t, s, 1)
	skipped := hostile[skippedCampaign]
	s.post(t, http.StatusOK, "/api/v1/rows/"+url.PathEscape(skipped)+"/2/skip", map[string]any{"reason": together(hostileLines, 500)[1], "confirm": "skip " + skipped + " 2"})
	s.post(t, http.StatusOK, "/api/v1/projections/hostile/pause", map[string]any{"campaign_id": hostile[4], "reason": together(hostileLines, 500)[2]})
	s.post(t, http.StatusOK, "/api/v1/publishers/picked/file/pause", map[string]any{"reason": together(hostileControls, 500)[0]})
	for i, reason := range hostileLines[:len(hostile)] {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/campaigns/"+url.PathEscape(hostile[i])+"/pause", strings.NewReader(js(map[string]string{"reason": reason})))).Or(t)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", cmp.Or(strings.ToValidUTF8(strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, reason), ""), "key"))
		must.Equal(t, must.Get(s.send(r)).Or(t).status, http.StatusOK, "a pause of campaign", hostile[i])
	}
	for _, reason := range hostileControls {
		s.post(t, http.StatusOK, "/api/v1/campaigns/"+url.PathEscape(hostile[0])+"/resume", map[string]any{"reason": reason})
		s.post(t, http.StatusOK, "/api/v1/campaigns/"+url.PathEscape(hostile[0])+"/pause", map[string]any{"reason": reason})
	}
}

// together joins texts to longer ones of at most so many bytes.
func together(texts []string, most int) []string {
	const between = " · "
	all := []string{""}
	for _, text := range texts {
		if last := all[len(all)-1]; last != "" && len(last)+len(text)+len(between) > most {
			all = append(all, "")
		}
		all[len(all)-1] += text + between
	}
	return all
}

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
		b.expect("response: "+status, "status of "+status)
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
	eventually(b.t, "what runs is heard", func() (bool, string) {
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
