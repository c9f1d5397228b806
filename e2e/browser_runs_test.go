package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
)

// drift makes rows of the sample's read models differ in each way, has a run find it, and another
// one fix a campaign.
func drift(t *testing.T, s *server, d databases) {
	t.Helper()
	change(t, d.projections(), `update characters set name = '<script>alert("x")</script> שלום '`)
	change(t, d.projections(), `update campaigns set theme_prompt = $1`, fmt.Sprintf("%04000d", 7))
	change(t, d.projections(), `delete from participants where id in (select min(id) from participants group by campaign_id)`)
	change(t, d.projections(), `insert into sessions (campaign_id, id, name, status, started_at, updated_at) select campaign_id, 'ghost', 'nobody', 'ACTIVE', 1, 1 from campaigns`)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "all_campaigns": true, "reason": "the names look odd"})
	if r := awaitEnd(t, s, 1); r.Verdict != "drift" {
		t.Fatalf("the run is %+v", r)
	}
	var campaigns struct{ Items []campaignName }
	s.get(t, "/api/v1/campaigns?state=drifted&limit=1", &campaigns)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "rebuild", "campaign_id": campaigns.Items[0].ID})
	awaitEnd(t, s, 2)
}

// An operator verifies a campaign in whose read model a field was changed by hand, sees which field
// and since which event, rebuilds it, and sees that it matches.
func TestBrowser_verifyFindsAPlantedWrongFieldAndItsFirstSeq(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabases(t)
			s := start(t, d, append(writeProjections(t, guestProjections("name", "name")), "--poll-interval", "100ms")...)
			const campaign = "the ball/1"
			appendTo(t, s, "", campaign, []event{guest("guest.came"), guest("guest.waved"), guest("guest.waved"), guest("guest.left")})
			appendTo(t, s, "", "other", []event{guest("guest.came")})
			s.awaitSettled(t)
			change(t, d.projections(), `update guests set name = 'eve' where campaign_id = $1 and seq = 3`, campaign)

			b := kind.open(t, s)
			b.open("/campaigns/" + url.PathEscape(campaign))
			b.await("it was never verified", telling("#live", "Never verified"))
			b.click(marked("start-verify"))
			b.at("/runs/new")
			b.await("the page says what it will do", telling(marked("run-preview"), "This verify replays 4 events of 1 campaign"))
			b.typeInto("input[name=reason]", "eve was not invited")
			b.click(marked("run-start"))

			b.at("/runs/1")
			b.lookUntil("the run ends with a drift", telling(marked("run-why"), "completed")+" && "+telling(marked("run-verdict"), "drift"))
			b.await("its progress is full", `(p => p.value === 4 && p.max === 4)(document.querySelector(`+js(marked("run-progress"))+`))`)
			b.sound("a run that found a drift")
			if r := awaitEnd(t, s, 1); r.Verdict != "drift" || r.Counts.Drifted != 1 || r.Digests["guests"] == r.Before["guests"] || r.Digests["guests"] == "" {
				t.Errorf("the API tells of %+v", r)
			}
			b.click(marked("result-"+campaign) + " a")
			b.at("/runs/1/results/the%20ball%2F1")
			b.await("the field is shown", telling(marked("row-change"), "name")+" && "+telling(marked("row-change"), `"eve"`)+" && "+telling(marked("row-change"), `"ana"`))
			b.await("and its first seq", saying(marked("first-seq"), "event 3"))
			b.sound("a result that differs")
			var result struct {
				Projections []struct {
					Comparison struct {
						Changed  int64
						FirstSeq int64 `json:"first_seq"`
					}
				}
			}
			s.get(t, "/api/v1/runs/1/results/the%20ball%2F1", &result)
			if c := result.Projections[0].Comparison; c.Changed != 1 || c.FirstSeq != 3 {
				t.Errorf("the API tells of %+v, want 1 changed row from event 3 on", c)
			}
			b.open("/")
			b.lookUntil("the overview is loud about it", telling(marked("drifted"), campaign))

			b.click(marked("drifted") + " a")
			b.at("/runs/1/results/the%20ball%2F1")
			b.click(marked("start-rebuild"))
			b.at("/runs/new")
			b.await("the page says that rows are replaced", telling(marked("run-preview"), "replaces the live rows"))
			b.click(marked("run-start"))
			b.at("/runs/2")
			b.lookUntil("the rebuild is done", telling(marked("run-why"), "completed"))
			if name := scalar[string](t, d.projections(), "select name from guests where campaign_id = $1 and seq = 3", campaign); name != "ana" {
				t.Errorf("the row is %q", name)
			}
			b.open("/campaigns/" + url.PathEscape(campaign))
			b.await("it is known to match again", telling(marked("verified-guests"), "match")+" && "+telling(marked("verified-guests"), "event 4"))
			b.click(marked("start-verify"))
			b.at("/runs/new")
			b.click(marked("run-start"))
			b.at("/runs/3")
			b.lookUntil("a verify agrees", telling(marked("run-verdict"), "match"))
			b.open("/")
			b.lookUntil("the overview is calm", `!document.querySelector(`+js(marked("drifted"))+`)`)
			checkClean(t, d, writeProjections(t, guestProjections("name", "name"))...)
		})
	}
}

// A run's page refreshes while the run is in progress, and not after its end.
func TestBrowser_aRunThatHasEndedIsNotReadAgain(t *testing.T) {
	t.Parallel()
	s, _ := startSeats(t, "--poll-interval", "100ms")
	appendTo(t, s, "", "c-1", seats("ana", "ben"))
	s.awaitSettled(t)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "all_campaigns": true})
	awaitEnd(t, s, 1)
	b := openTab(t, s)
	b.open("/runs/1")
	asked := value[float64](b, `new Promise(done => {
		let asked = 0
		document.addEventListener("htmx:beforeSend", () => asked++)
		setTimeout(() => done(asked), 4500)
	})`)
	if asked != 0 {
		t.Errorf("the page asked %v times, want 0", asked)
	}
	if value[bool](b, `document.querySelector(".looked").classList.contains("old")`) {
		t.Error("what cannot change is called old")
	}
}

// From a dead row an operator sees why its event fails and, with the projection fixed, what it
// would do. The dry run changes nothing.
func TestBrowser_aDryRunTellsWhatARowWouldDo(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	flags := []string{"--max-attempts", "2", "--retry-base", "50ms", "--poll-interval", "100ms"}
	s := start(t, d, append(flags, writeProjections(t, guestProjections("nam", "name"))...)...)
	appendTo(t, s, "", "c-1", []event{guest("guest.waved"), guest("guest.came"), guest("guest.left"), guest("guest.waved")})
	awaitCounts(t, s, "", 2, 0, 1)
	b := openTab(t, s)
	b.open("/campaigns/c-1/events/2")
	b.click(marked("dry-run-open"))
	b.at("/rows/c-1/2/dry-run")
	b.await("it fails at once", telling(marked("dry-run"), "No event would be applied")+" && "+saying(marked("dry-run-failed"), "Event 2"))
	b.sound("a dry run that fails")
	b.do("leave the page, which would miss its server", chromedp.Navigate("about:blank"))
	s.stop(t)
	s = start(t, d, append(flags, writeProjections(t, guestProjections("name", "name"))...)...)
	b.s = s
	b.open("/rows/c-1/2/dry-run?next=1")
	b.await("it goes through", telling(marked("dry-run"), "Events 2 to 3 would be applied"))
	b.await("the rows are shown", `document.querySelectorAll(`+js(marked("row-change"))+`).length === 2`+" && "+telling(marked("row-change"), `"ana"`)+" && "+telling(marked("projection-guests"), "2 rows added"))
	var tried struct {
		Applied     int64
		UntilSeq    int64 `json:"until_seq"`
		Projections []struct{ Comparison struct{ Added int64 } }
	}
	s.get(t, "/api/v1/rows/c-1/2/dry-run?next=1", &tried)
	if tried.Applied != 2 || tried.UntilSeq != 3 || tried.Projections[0].Comparison.Added != 2 {
		t.Errorf("the API tells of %+v", tried)
	}
	awaitCounts(t, s, "", 2, 0, 1)
	if n := scalar[int64](t, d.projections(), "select count(*) from guests"); n != 1 {
		t.Errorf("%d guests, want the one from before", n)
	}
}
