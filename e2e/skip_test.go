package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// skipState is what the tests below read of GET /api/v1/campaigns/{id}.
type skipState struct {
	State      string
	Skips      int64
	AppliedSeq int64 `json:"applied_seq"`
}

// An operator finds a dead event that can never be applied, skips it, sees the campaign drain, and
// is told that the skip cannot be undone once later events have been applied.
func TestBrowser_operatorSkipsAnEventThatCanNeverBeApplied(t *testing.T) {
	t.Parallel()
	for _, kind := range bothTabs {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s, d := startSeats(t, quickDeath...)
			appendTo(t, s, "", "poisoned", seats("ana", "ben", "ana", "dee", "eve"))
			awaitCounts(t, s, "", 2, 0, 1)

			b := kind.open(t, s)
			b.expectRefusal("422")
			b.open("/campaigns/poisoned/events/3")
			b.await("the skip is not in the way", `!document.querySelector(".skipform").open`)
			b.click(marked("skip-open"))
			b.await("it says what it does", telling(".skipform", "never applied to any projection")+" && "+telling(".skipform", "2 rows behind it are released"))
			b.typeInto("#skip-reason", "ana cannot sit twice")
			b.typeInto("#skip-confirm", "skip it")
			b.click(marked("skip"))
			b.await("another phrase is refused, and what was typed is kept", b.refusedWith("#skip-form", "skip poisoned 3", map[string]string{"#skip-confirm": "skip it", "#skip-reason": "ana cannot sit twice"}))
			b.sound("a refused skip")
			if b.scripts {
				b.await("the field at fault has the focus", `document.activeElement.id === "skip-confirm" && document.activeElement.matches("[aria-invalid][aria-describedby=refusal]")`)
				value[bool](b, `(() => { document.activeElement.value = ""; return true })()`)
			} else {
				b.open("/campaigns/poisoned/events/3")
				b.click(marked("skip-open"))
				b.typeInto("#skip-reason", "ana cannot sit twice")
			}
			b.typeInto("#skip-confirm", "skip poisoned 3")
			b.click(marked("skip"))
			b.await("the act is confirmed", telling(marked("flash"), "Skipped event 3 of campaign poisoned"))
			b.lookUntil("the row is gone", telling("main", "Skipped: no projection applied it")+" && "+telling(marked("skipped"), "ana cannot sit twice"))

			b.click(`.crumbs a[href="/campaigns/poisoned"]`)
			b.at("/campaigns/poisoned")
			b.lookUntil("the campaign is current", telling("#live", "current")+" && "+telling("#live", "5 of 5"))
			b.await("the event is marked in the list", telling("#event-3", "skipped")+" && "+telling("#event-4", "applied"))
			b.await("the ledger has it, and no way back", telling(marked("skip-3"), "ana cannot sit twice")+` && !document.querySelector(`+js(marked("unskip"))+`)`)
			b.open("/campaigns/poisoned/events/3")
			b.await("the event says it", telling(marked("skipped"), "No projection applied this event"))
			b.open("/")
			b.lookUntil("the overview counts it", saying(marked("count-skips"), "1"))

			var c skipState
			s.get(t, "/api/v1/campaigns/poisoned", &c)
			if c != (skipState{"current", 1, 5}) {
				t.Errorf("the campaign is %+v", c)
			}
			a := s.post(t, http.StatusConflict, "/api/v1/campaigns/poisoned/events/3/unskip", map[string]any{"reason": "perhaps it fits now"})
			if !strings.Contains(string(a.body), "events 4 to 5 of campaign") {
				t.Errorf("un-skipping is refused with %s", a.body)
			}
			if users := scalar[int64](t, d.projections(), `select count(*) from seats where campaign_id = 'poisoned'`); users != 4 {
				t.Errorf("%d seats are taken, want those of the other four events", users)
			}
			if report := checkClean(t, d, writeProjections(t, seatProjections)...); report.Checked["skips"] != 1 || report.Checked["replayed"] != 1 {
				t.Errorf("checked %+v", report.Checked)
			}
		})
	}
}

// The last event of a campaign is skipped and un-skipped from the command line, beside the server,
// and applied once its cause is fixed.
func TestSkip_isTakenBackFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s, d := startSeats(t, quickDeath...)
	appendTo(t, s, "", "poisoned", seats("ana", "ben", "ana"))
	awaitCounts(t, s, "", 0, 0, 1)

	if r := command(t, d, nil, "skip", "poisoned", "3", "--reason", "ana cannot sit twice"); r.code != 2 || !strings.Contains(r.stderr, `--confirm 'skip poisoned 3'`) {
		t.Fatalf("skip without its phrase: %+v", r)
	}
	mustCommand(t, d, nil, "skip", "poisoned", "3", "--reason", "ana cannot sit twice", "--confirm", "skip poisoned 3")
	awaitSkips(t, s, skipState{"current", 1, 3})
	projections := writeProjections(t, seatProjections)
	digest := append([]string{"digest", "--campaign", "poisoned", "--json"}, projections...)
	live := mustCommand(t, d, nil, digest...)
	replayed := mustCommand(t, d, nil, append(digest, "--until", "3")...)
	if live != replayed {
		t.Errorf("the live digest is %s, that of a replay %s", live, replayed)
	}
	checkClean(t, d, projections...)

	change(t, d.projections(), freeSeat, "poisoned", "ana")
	var skip struct {
		UndoneReason string `json:"undone_reason"`
	}
	if err := json.Unmarshal([]byte(mustCommand(t, d, nil, "unskip", "poisoned", "3", "--reason", "she left the first", "--json")), &skip); err != nil || skip.UndoneReason != "she left the first" {
		t.Errorf("unskip printed %+v, %v", skip, err)
	}
	awaitSkips(t, s, skipState{"current", 0, 3})
	if seat := scalar[string](t, d.projections(), `select seat from seats where user_id = 'ana'`); seat != "seat-3" {
		t.Errorf("ana sits on %s, want the seat of the event that was skipped", seat)
	}
}

func awaitSkips(t *testing.T, s *server, want skipState) {
	t.Helper()
	eventually(t, patience, fmt.Sprintf("the campaign is %+v", want), func() (bool, string) {
		var c skipState
		s.get(t, "/api/v1/campaigns/poisoned", &c)
		return c == want, fmt.Sprintf("%+v", c)
	})
}

// skippedPages starts a server in which an event can be skipped, one skip can be undone, one cannot
// any more, and one was undone.
func skippedPages(t *testing.T) (*server, map[string]string) {
	t.Helper()
	s, _ := startSeats(t, quickDeath...)
	for _, campaign := range []string{"dead", "last", "past"} {
		appendTo(t, s, "", campaign, seats("ana", "ben", "ana"))
	}
	awaitCounts(t, s, "", 0, 0, 3)
	skip := func(campaign string) {
		s.post(t, http.StatusOK, "/api/v1/rows/"+campaign+"/3/skip", map[string]any{"reason": "ana cannot sit twice, and nobody knows which of the seats was meant", "confirm": "skip " + campaign + " 3"})
	}
	skip("last")
	skip("past")
	awaitCounts(t, s, "", 0, 0, 1)
	s.post(t, http.StatusOK, "/api/v1/campaigns/past/events/3/unskip", map[string]any{"reason": "she may yet leave"})
	awaitCounts(t, s, "", 0, 0, 2)
	skip("past")
	appendTo(t, s, "", "past", []event{taken("seat-9", "dee")})
	awaitCounts(t, s, "", 0, 0, 1)
	return s, map[string]string{
		"skip-overview": "/", "skip-row": "/campaigns/dead/events/3", "skip-gone": "/campaigns/past/events/3", "skip-event": "/campaigns/last/events/3",
		"skip-last": "/campaigns/last", "skip-past": "/campaigns/past", "skip-campaigns": "/campaigns",
	}
}

func TestBrowser_pagesOfSkippedEvents(t *testing.T) {
	t.Parallel()
	s, pages := skippedPages(t)
	inspectPages(t, s, pages)
}
