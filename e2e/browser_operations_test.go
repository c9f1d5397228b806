package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// guestProjections is a read model with two mistakes: it reads a name from two fields that no event
// has. Events can never succeed with it, so they are dead at once.
func guestProjections(came, left string) map[string]string {
	return map[string]string{"guests.sql": `
-- projection: guests
-- tables: guests

-- schema
create table guests (campaign_id text not null, seq bigint not null, name text not null, primary key (campaign_id, seq));

-- on: guest.came
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + came + `);

-- on: guest.left
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.` + left + `!);

-- on: guest.waved
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, :payload.name!);
`}
}

func guest(eventType string) event {
	return event{EventType: eventType, Payload: map[string]any{"name": "ana"}}
}

// operationState is the API's state of an operation.
type operationState struct {
	Status string
	Why    string
	Totals struct {
		Chosen, Waiting, Requeued, Done, Skipped, Left int64
		FailedAgain                                    int64 `json:"failed_again"`
	}
	Groups []struct {
		Wave   int64
		Totals struct{ Chosen int64 }
	}
}

// awaitOperation waits until an operation has ended.
func awaitOperation(t *testing.T, s *server, id int64) (o operationState) {
	t.Helper()
	eventually(t, 2*patience, fmt.Sprintf("operation %d ends", id), func() (bool, string) {
		s.get(t, fmt.Sprintf("/api/v1/operations/%d", id), &o)
		return o.Status != "running", o.Why
	})
	return o
}

// Two groups of dead rows, of 3 and of 40 campaigns, are tried by their canaries: once with the
// mistakes still there, which costs one more failure per group and touches nothing else, and once
// fixed.
func TestBrowser_operatorTriagesTwoErrorGroups(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabases(t)
			flags := []string{"--max-attempts", "3", "--retry-base", "50ms", "--poll-interval", "100ms"}
			s := start(t, d, append(flags, writeProjections(t, guestProjections("nam", "nick"))...)...)
			for i := range 43 {
				campaign, fatal := fmt.Sprintf("many-%02d", i), "guest.came"
				if i >= 40 {
					campaign, fatal = fmt.Sprintf("few-%d", i-40), "guest.left"
				}
				appendTo(t, s, "", campaign, []event{guest("guest.waved"), guest(fatal), guest("guest.waved"), guest("guest.waved")})
			}
			awaitCounts(t, s, "", 86, 0, 43)
			attempts := func() int64 { return scalar[int64](t, d.journal(), "select count(*) from attempts") }
			before := attempts()

			b := kind.open(t, s)
			b.open("/")
			b.lookUntil("the overview counts the dead", saying(marked("count-dead"), "43"))
			b.open("/rows?status=dead")
			b.click(marked("requeue-all"))
			b.at("/operations/new")
			b.await("the page says what it will do", telling("main", "43 dead rows of 43 campaigns")+" && "+telling("main", "86 rows behind are released"))
			b.await("it names campaigns and groups", telling("main", "few-0")+" && "+telling("main", "and 23 others")+` && document.querySelectorAll(".causes li").length === 2`)
			b.sound("an operation of 43 rows before it starts")
			b.await("the canary is the default", `document.querySelector("#canary").checked`)
			b.typeInto("input[name=reason]", "perhaps mended")
			b.click(marked("requeue-confirm"))

			b.at("/operations/1")
			b.lookUntil("the operation stops by itself", telling(marked("operation-why"), "stopped")+" && "+telling(marked("operation-why"), "2 of 2 error groups stopped"))
			b.await("each group says why", telling(marked("group-1"), "failed again with the same error")+" && "+telling(marked("group-2"), "failed again with the same error"))
			b.await("its rows are counted", telling("#live", "✕ failed again 2")+" && "+telling("#live", "‖ not attempted 41"))
			b.await("nothing else failed", telling("#live", "Nothing else that failed since it started still fails"))
			b.sound("an operation that stopped")
			if o := awaitOperation(t, s, 1); o.Totals.FailedAgain != 2 || o.Totals.Left != 41 {
				t.Errorf("the API tells of %+v", o)
			}
			if more := attempts() - before; more != 2 {
				t.Errorf("%d more failures, want one for each group", more)
			}
			if untouched := scalar[int64](t, d.journal(), "select count(*) from (select seq from attempts group by campaign_id, seq having count(*) = 1) as once"); untouched != 41 {
				t.Errorf("%d rows are as they were, want 41", untouched)
			}
			b.click(`.choices a[href="/operations/1?status=failed_again"]`)
			b.await("the rows that failed are listed", `document.querySelectorAll("[data-testid^=result-]").length === 2`)
			b.typeInto("input[name=reason]", "the projection is still wrong")
			b.click(marked("operation-acknowledge"))
			b.await("it is acknowledged", telling(marked("flash"), "Acknowledged operation 1")+` && !document.querySelector(`+js(marked("operation-acknowledge"))+`)`)

			b.do("leave the page, which would miss its server", chromedp.Navigate("about:blank"))
			s.stop(t)
			s = start(t, d, append(flags, writeProjections(t, guestProjections("name", "name"))...)...)
			b.s = s
			b.open("/operations/new")
			b.typeInto("input[name=reason]", "mended")
			b.click(marked("requeue-confirm"))
			b.at("/operations/2")
			b.lookUntil("the operation is done", telling(marked("operation-why"), "done")+" && "+telling("#live", "✓ done 43"))
			if o := awaitOperation(t, s, 2); o.Status != "done" || o.Totals.Done != 43 || len(o.Groups) != 2 || o.Groups[0].Wave != 6 {
				t.Errorf("the API tells of %+v, want all done, the larger group in its sixth wave", o)
			}
			s.awaitSettled(t)
			b.sound("an operation that is done")
			b.open("/")
			b.agrees()
			b.lookUntil("the overview remembers", telling(marked("health"), "All 43 campaigns are current")+" && "+telling("#live", "1 operation has ended and not been acknowledged"))
			b.click(`nav [data-go="j"]`)
			b.at("/operations")
			b.click(`.choices a[href="/operations?acknowledged=false"]`)
			b.await("only the second is open", `!!document.querySelector(`+js(marked("operation-2"))+`) && !document.querySelector(`+js(marked("operation-1"))+`)`)
			checkClean(t, d, writeProjections(t, guestProjections("name", "name"))...)
		})
	}
}

// An operation on a killed server is continued by the next one.
func TestOperation_survivesKill(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := append(writeProjections(t, guestProjections("nam", "name")), "--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms", "--lease", "2s")
	s := start(t, d, flags...)
	for i := range 40 {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), []event{guest("guest.came"), guest("guest.waved")})
	}
	awaitCounts(t, s, "", 40, 0, 40)
	s.stop(t)
	flags = append(writeProjections(t, guestProjections("name", "name")), flags[2:]...)
	s = start(t, d, flags...)
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"filter": map[string]any{}, "canary": true, "reason": "mended"})
	eventually(t, patience, "the operation is half way", func() (bool, string) {
		var o operationState
		s.get(t, "/api/v1/operations/1", &o)
		return o.Totals.Done > 0, o.Why
	})
	s.kill()
	s = start(t, d, flags...)
	if o := awaitOperation(t, s, 1); o.Status != "done" || o.Totals.Done != 40 {
		t.Errorf("the operation is %+v, want all 40 rows done", o)
	}
	s.awaitSettled(t)
}

// overprinted lists pairs of texts whose visible boxes overlap.
const overprinted = `(() => {
	const boxes = []
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let text = texts.nextNode(); text; text = texts.nextNode()) {
		const parent = text.parentElement
		if (!text.data.trim() || !parent.checkVisibility({contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true})) continue
		const range = document.createRange()
		range.selectNodeContents(text)
		for (const r of range.getClientRects()) {
			const box = {left: r.left, right: r.right, top: r.top, bottom: r.bottom, text}
			for (let e = parent; e; e = e.parentElement) {
				if (getComputedStyle(e).overflow === "visible") continue
				const clip = e.getBoundingClientRect()
				if (e === document.documentElement || e === document.body) continue
				box.left = Math.max(box.left, clip.left); box.right = Math.min(box.right, clip.right)
				box.top = Math.max(box.top, clip.top); box.bottom = Math.min(box.bottom, clip.bottom)
			}
			if (box.right - box.left > 2 && box.bottom - box.top > 2) boxes.push(box)
		}
	}
	const found = []
	boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
		const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)
		if (a.text !== b.text && across > 1 && down > 4) found.push(a.text.data.trim().slice(0, 60) + " | " + b.text.data.trim().slice(0, 60))
	}))
	return found
})()`

// Names and errors may be long: no text of the page that starts an operation is printed over
// another, in a large window or a small one.
func TestBrowser_newOperationOfLongNamesCanBeRead(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	for i := range 6 {
		long := strings.Repeat(fmt.Sprintf("the_rule_%c_of_seats_", 'a'+i), 12)
		fmt.Fprintf(&rules, ", constraint %s check (n <> %d)", long, i)
	}
	s := start(t, newDatabases(t), append(quickDeath, writeProjections(t, map[string]string{"wide.sql": `
-- projection: wide
-- tables: wide

-- schema
create table wide (campaign_id text not null, seq bigint not null, n bigint not null, primary key (campaign_id, seq)` + rules.String() + `);

-- on: counted
insert into wide (campaign_id, seq, n) values (:campaign_id, :seq, :payload.n!);
`})...)...)
	const campaigns = 40
	for i := range campaigns {
		id := fmt.Sprintf("%02d-%s", i, strings.Repeat("a-long-name-without-end", 1+i%8))
		appendTo(t, s, "", id, []event{{EventType: "counted", Payload: map[string]any{"n": i % 6}}, {EventType: "counted", Payload: map[string]any{"n": 9}}})
	}
	awaitCounts(t, s, "", campaigns, 0, campaigns)
	b := openTab(t, s)
	for _, size := range []viewport{wide, {780, 900}, narrow} {
		b.size(size)
		b.open("/operations/new")
		b.await("the page names campaigns and groups", telling("main", "40 dead rows of 40 campaigns")+` && document.querySelectorAll(".causes li").length === 6`)
		if over := value[[]string](b, overprinted); len(over) > 0 {
			t.Errorf("%d wide: %d texts are printed over others: %s", size.width, len(over), strings.Join(over[:min(5, len(over))], "\n"))
		}
		if wider := value[float64](b, "document.documentElement.scrollWidth - innerWidth"); wider > 0 {
			t.Errorf("%d wide: the page is %v pixels wider", size.width, wider)
		}
		b.sound("a new operation of long names")
	}
}
