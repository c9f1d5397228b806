package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// hugePayload is a payload of 25 MB that the seats projection cannot apply.
func hugePayload() string {
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i := 0; b.Len() < 25_000_000; i++ {
		fmt.Fprintf(&b, `{"id":%d,"n":9007199254740993,"text":"item %d"},`, i, i)
	}
	b.WriteString(`0],"last":true}`)
	return b.String()
}

// oddPayload has everything that careless pages get wrong.
const oddPayload = `{"big":9007199254740993,"huge":1e400,"zero":-0,"twice":1,"twice":2,` +
	`"<img src=x onerror=alert(1)>":"</bdi></script><script>alert(1)</script>","turned":"` + "\u202e" + `gnp.exe","hebrew":"שלום עולם"}`

// appendDocuments appends the huge and the odd payload by the command line.
func appendDocuments(t *testing.T, d databases, payload string) {
	t.Helper()
	lines := io.MultiReader(strings.NewReader(`{"campaign_id":"large","event_type":"seat.taken","payload":`), strings.NewReader(payload),
		strings.NewReader("}\n"+`{"campaign_id":"odd","event_type":"note.added","payload":`+oddPayload+"}\n"))
	if out := mustCommand(t, d, lines, "append", "--max-payload", "33554432", "-"); !strings.HasPrefix(out, "appended 2,") {
		t.Fatal(out)
	}
}

// fetch reads a path whole.
func fetch(t *testing.T, s *server, path string) answer {
	t.Helper()
	a, err := s.do(t.Context(), http.MethodGet, path, nil)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("GET %s: %d, %v", path, a.status, err)
	}
	return a
}

// A payload of 25 MB is appended, its pages are as fast as any, and it is returned unchanged, on
// either database.
func TestDocuments_of25MBAreAppendedAndComeBack(t *testing.T) {
	t.Parallel()
	largeThere(t, newDatabases(t))
}
func TestPostgresDocuments_of25MBAreAppendedAndComeBack(t *testing.T) {
	t.Parallel()
	fullOnly(t, "the same is tested on SQLite")
	largeThere(t, newPostgres(t))
}

func largeThere(t *testing.T, d databases) {
	t.Helper()
	payload := hugePayload()
	refusal := command(t, d, strings.NewReader(`{"campaign_id":"large","event_type":"a","payload":`+payload+"}\n"), "append", "-")
	if refusal.code != 1 || !strings.Contains(refusal.stderr, "line 1") {
		t.Errorf("without --max-payload: %d, %s", refusal.code, refusal.stderr)
	}
	appendDocuments(t, d, payload)
	s := start(t, d, append(quickDeath, writeProjections(t, seatProjections)...)...)
	awaitCounts(t, s, "", 0, 0, 1)
	cost := func(path string, times int64) (ticks int64, length int) {
		began := cpuTicks(t, s)
		for range times {
			length = len(fetch(t, s, path).body)
		}
		return cpuTicks(t, s) - began, length
	}
	const times = 10
	whole, _ := cost("/campaigns/large/events/1/payload", times)
	for _, path := range []string{"/campaigns/large/events/1", "/campaigns/large", "/campaigns/large/events/1?tab=payload", "/rows"} {
		used, length := cost(path, times)
		t.Logf("%s takes %d ticks of processor time, the whole document %d", path, used, whole)
		if length > 100_000 {
			t.Errorf("%s has %d bytes", path, length)
		}
		if used > whole/2+ticksPerSecond/10 {
			t.Errorf("%s takes %d ticks of processor time, and to read the whole document %d", path, used, whole)
		}
	}
	for _, path := range []string{"/campaigns/large/events/1/payload", "/api/v1/campaigns/large/events/1/payload"} {
		if a := fetch(t, s, path); string(a.body) != payload || a.header.Get("Content-Disposition") != `attachment; filename="large-1.json"` {
			t.Errorf("%s has %d bytes, want %d; %v", path, len(a.body), len(payload), a.header)
		}
	}
	var row struct{ Event struct{ Payload rawText } }
	s.get(t, "/api/v1/rows/large/1", &row)
	if string(row.Event.Payload) != payload {
		t.Errorf("the row's payload has %d bytes, want %d", len(row.Event.Payload), len(payload))
	}
}

// rawText is JSON as written.
type rawText []byte

func (r *rawText) UnmarshalJSON(text []byte) error {
	*r = append((*r)[:0], text...)
	return nil
}

// says is the condition that some element says exactly this.
func says(selector, text string) string {
	return `[...document.querySelectorAll(` + js(selector) + `)].some(e => e.textContent === ` + js(text) + `)`
}

func TestBrowser_largeAndOddPayloads(t *testing.T) {
	t.Parallel()
	payload, d := hugePayload(), newDatabases(t)
	appendDocuments(t, d, payload)
	s := start(t, d, append(quickDeath, writeProjections(t, seatProjections)...)...)
	awaitCounts(t, s, "", 0, 0, 1)
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			b := kind.open(t, s)
			seeLarge(t, b, payload)
			seeOdd(b)
			if !b.scripts {
				return
			}
			seeNothing(b)
			for i, path := range []string{"/campaigns/large/events/1", "/campaigns/large/events/1?tab=payload", "/campaigns/odd/events/1?tab=payload", "/campaigns/large", "/campaigns/odd",
				"/campaigns/large/events/1/tree", "/campaigns/large/events/1/tree?part=payload&at=%2Fitems&from=300"} {
				b.open(path)
				b.inspect(path, i)
			}
		})
	}
}

func seeLarge(t *testing.T, b *tab, payload string) {
	t.Helper()
	b.open("/campaigns/large/events/1?tab=payload")
	b.await("the row is dead", telling(".rowstate", "dead"))
	b.await("the payload is not there yet", telling(marked("tree-payload"), "Show the payload (24 MiB)")+` && document.documentElement.outerHTML.length < 100000`)
	b.click(marked("show-payload"))
	b.await("its first items can be read", says(".tree bdi", "9007199254740993")+` || `+says(".tree .key bdi", `"items"`))
	b.click(`.tree details summary`) // closes the whole
	b.click(`.tree details summary`) // and opens it again
	if b.scripts {
		b.at("/campaigns/large/events/1")
		b.click(`.tree details details summary`)
		b.click(marked("tree-next"))
		b.await("the next items follow", says(".tree .key bdi", "199")+` && !`+says(".tree .key bdi", "200"))
		b.click(marked("tree-next"))
		b.await("and the next", says(".tree .key bdi", "299"))
	} else {
		b.at("/campaigns/large/events/1/tree")
		b.click(`.tree details details summary`)
		b.click(marked("tree-next"))
		b.await("the next items are a page", says(".tree .key bdi", "199")+` && location.search.includes("from=100")`)
	}
	b.await("numbers are exact", says(".tree bdi", "9007199254740993")+` && !document.body.innerText.includes("9007199254740992")`)
	b.await("the tab is not flooded", `document.querySelectorAll("*").length < 5000`)
	if !b.scripts {
		return
	}
	b.open("/campaigns/large/events/1?tab=payload")
	got := value[string](b, `(async () => {
		const bytes = await (await fetch(document.querySelector(`+js(marked("download"))+`).href)).arrayBuffer()
		return [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map(b => b.toString(16).padStart(2, "0")).join("")
	})()`)
	if want := sha256.Sum256([]byte(payload)); got != hex.EncodeToString(want[:]) {
		t.Errorf("what is downloaded has the hash %s", got)
	}
}

// An error about part of a tree is shown on a page, not inside the tree.
func seeNothing(b *tab) {
	b.t.Helper()
	b.expect("404")
	b.open("/campaigns/large/events/1?tab=payload")
	value[bool](b, `(() => {
		const link = document.querySelector(`+js(marked("show-payload"))+`)
		link.setAttribute("hx-get", link.getAttribute("hx-get") + "&at=/nowhere")
		htmx.process(link)
		return true
	})()`)
	b.click(marked("show-payload"))
	b.await("the page says so", telling("h1", "Not found")+` && document.querySelectorAll("h1, main, .tree").length === 2`)
}

func seeOdd(b *tab) {
	b.t.Helper()
	b.open("/campaigns/odd/events/1?tab=payload")
	for _, text := range []string{"9007199254740993", "1e400", "-0", `"</bdi></script><script>alert(1)</script>"`, `"\u202egnp.exe"`, `"שלום עולם"`} {
		b.await(text+" is shown", says(".tree li > bdi", text))
	}
	b.await("a key that appears twice is shown twice", `[...document.querySelectorAll(".tree .key bdi")].filter(e => e.textContent === '"twice"').length === 2`)
	b.await("nothing of it became part of the page", `!document.querySelector(".tree img, .tree script, .document script") && !document.body.textContent.includes("\u202e")`)
	b.await("text from right to left keeps to itself", `getComputedStyle([...document.querySelectorAll(".tree li > bdi")].at(-1)).unicodeBidi === "isolate"`)
}

// Texts to copy have a button that copies and confirms it.
func TestBrowser_copyButtons(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, quickDeath...)
	appendTo(t, s, "", "it's", seats("ana", "ana"))
	awaitCounts(t, s, "", 0, 0, 1)
	b := openTab(t, s)
	b.open("/campaigns/it's/events/2")
	// The shell has no window in which to ask whether a page may copy.
	tell(b, browser.SetPermission, browser.SetPermissionParams{BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		Permission: &browser.PermissionDescriptor{Name: "clipboard-write"}, Setting: browser.PermissionSettingGranted})
	b.click("#live .twins summary")
	const box = "#live .twins .copyable:nth-of-type(2)"
	command := value[string](b, `document.querySelector(`+js(box+" pre")+`).textContent`)
	if want := ` requeue --reason 'why' -- 'it'\''s' 2`; !strings.HasPrefix(command, "outboxweb --journal-db=") || !strings.HasSuffix(command, want) {
		t.Errorf("the command is %s, want one of these databases that ends in %s", command, want)
	}
	b.click(box + " .copy")
	b.await("it is said", saying("#copied", "Copied the command.")+` && document.querySelector("#copied").getAttribute("role") === "status"`)
	value[bool](b, `(() => { const e = document.createElement("textarea"); e.id = "pasted"; document.querySelector("main").append(e); e.focus(); return true })()`)
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Modifiers: 2, Key: "v", Code: "KeyV", Commands: []string{"paste"}})
	}
	b.await("it can be pasted", `document.querySelector("#pasted").value === `+js(command))

	plain := openTabWithoutScripts(t, s)
	plain.open("/campaigns/it's/events/2")
	if n := value[int](plain, `[...document.querySelectorAll(".copy")].filter(e => e.getClientRects().length > 0).length`); n > 0 {
		t.Errorf("without scripts %d buttons promise to copy", n)
	}
}
