package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"
)

// A head that died on one instance is shown on the pages of another, fixed and requeued there, and
// gone from the pages of the first.
func TestPostgresInstances_deadHeadSeenAndRequeuedFromAnother(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	flags := slices.Concat(quickDeath, writeProjections(t, seatProjections))
	a := start(t, d, flags...)
	appendTo(t, a, "", "healthy", seats("ana", "ben", "cem"))
	appendTo(t, a, "", "poisoned", seats("ana", "ben", "ana", "dee", "eve", "fay"))
	awaitCounts(t, a, "", 3, 0, 1)
	b := start(t, d, flags...)
	if who := scalar[string](t, d.journal(), "select distinct worker from attempts"); instances(t, a, b)[who] != a {
		t.Fatalf("the head died on instance %s, not on the first", who)
	}

	onA, onB := openTab(t, a), openTab(t, b)
	board := marked("campaign-poisoned")
	for _, tab := range []*tab{onA, onB} {
		tab.open("/")
		tab.lookUntil("the overview counts the dead row", saying(marked("count-dead"), "1"))
		tab.await("the cause says why", telling(marked("cause"), "duplicate key value violates unique constraint"))
	}
	onB.click(board + ` a[href*="/events/"]`)
	onB.at("/campaigns/poisoned/events/3")
	onB.await("the row is dead", telling(".rowstate", "dead")+` && document.querySelectorAll(".attempts li").length === 2`)
	change(t, d.projections(), freeSeat, "poisoned", "ana")
	onB.typeInto("input[name=reason]", "ana left her first seat")
	onB.click(marked("requeue"))
	onB.await("the act is confirmed", telling(marked("flash"), "Requeued event 3 of campaign poisoned"))
	onB.lookUntil("the row is applied", telling(".rowstate", "Applied. All events up to"))

	onA.lookUntil("nothing is left to do", saying(marked("count-dead"), "0")+" && "+saying(marked("count-pending"), "0"))
	onA.lookUntil("the campaign has left its cause", `!document.querySelector(`+js(board)+`)`)
	onA.open("/audit")
	onA.await("the audit has the act, by whom and why", telling("tbody tr", "local")+" && "+
		telling("tbody tr", "Requeued event 3 of campaign poisoned")+" && "+telling("tbody tr", "ana left her first seat"))
	onA.await("the audit has it once", `document.querySelectorAll("tbody tr").length === 1`)
	checkClean(t, d, append([]string{"--no-replay"}, flags[len(quickDeath):]...)...) // the fix is not in the journal
}

// oneSilent starts three instances and kills one of them while it has leased campaigns. It returns
// another one, and the id of the silent one, whose lease lasts for some time.
func oneSilent(t *testing.T) (witness *server, id string) {
	t.Helper()
	d := newPostgres(t)
	// With small waves, one at a time, every instance has work.
	flags := append([]string{"--lease", "10m", "--event-timeout", "1m", "--batch-size", "8", "--concurrency", "1"}, writeProjections(t, historyProjections)...)
	servers := []*server{start(t, d, flags...), start(t, d, flags...), start(t, d, flags...)}
	victim := servers[1]
	for name, s := range instances(t, servers...) {
		if s == victim {
			id = name
		}
	}
	const campaigns = 40
	letGo := holdUp(t, d)
	mustCommand(t, d, numberedJournal(campaigns, 3), "append", "-")
	eventually(t, patience, "every instance holds campaigns", func() (bool, string) {
		n := scalar[int64](t, d.journal(), "select count(distinct lease_owner) from campaigns where lease_owner <> ''")
		return n == int64(len(servers)), fmt.Sprint(n, " do")
	})
	victim.kill()
	letGo()
	eventually(t, patience, "the others have applied what the silent one does not hold", func() (bool, string) {
		n := scalar[int64](t, d.journal(), "select count(*) from campaigns where lease_owner <> $1 and head_seq is not null", id)
		return n == 0, fmt.Sprint(n, " campaigns are left")
	})
	eventually(t, patience, "the instance is silent", func() (bool, string) {
		a := do(t, servers[0], http.MethodGet, "/api/v1/instances", nil)
		var list struct{ Items []struct{ ID, State string } }
		a.decode(t, &list)
		for _, instance := range list.Items {
			if instance.ID == id {
				return instance.State == "silent", instance.State
			}
		}
		return false, string(a.body)
	})
	return servers[0], id
}

// The page of instances shows at once that one is silent, its leases, and when others may claim its
// campaigns.
func TestPostgresInstances_silentOneIsShown(t *testing.T) {
	t.Parallel()
	s, id := oneSilent(t)
	var list struct {
		Items []struct {
			ID, Why string
			Leases  struct {
				Campaigns   int64
				ClaimableBy time.Time `json:"claimable_by"`
				Held        []struct {
					CampaignID string `json:"campaign_id"`
				}
			}
		}
	}
	s.get(t, "/api/v1/instances", &list)
	silent := list.Items[0]
	if silent.ID != id || silent.Leases.Campaigns == 0 || int64(len(silent.Leases.Held)) != silent.Leases.Campaigns {
		t.Fatalf("the instance that left something behind does not come first, with that: %+v", list.Items)
	}
	b := openTab(t, s)
	b.open("/instances")
	fate := fmt.Sprintf("its %d campaigns become claimable in ", silent.Leases.Campaigns)
	b.await("the page sums up", telling(".health", "2 instances running, 1 silent: "+fate))
	row := marked("instance-" + id)
	b.await("the instance is silent", telling(row+` [data-label="State"]`, "silent"))
	b.await("it says when others may go on", telling(row, fate)+" && "+telling(row, silent.Leases.ClaimableBy.UTC().Format("15:04:05 UTC")))
	text := value[string](b, `document.querySelector(`+js(row)+`).innerText`)
	if !regexp.MustCompile(`Silent for \d+ (s|min); its \d+ campaigns become claimable in \d+ min \(`).MatchString(text) {
		t.Errorf("the page says %q", text)
	}
	campaign := silent.Leases.Held[0].CampaignID
	b.click(row + ` a[href="/campaigns/` + campaign + `"]`)
	b.at("/campaigns/" + campaign)
	b.click(`main a[href="/instances#instance-` + id + `"]`)
	b.at("/instances")
}
