package system

import (
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestInstances_showWhatIsKnownAndNoMore(t *testing.T) {
	t.Parallel()
	many := storetest.InstanceIn(noon, campaign.InstanceRunning)
	for range campaign.MaxHeldLeases + 4 {
		many.Leases.Add(campaign.HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, ExpiresAt: noon.Add(time.Minute)})
	}
	withheld := storetest.InstanceIn(noon, campaign.InstanceSilent)
	withheld.Leases.Add(campaign.HeldLease{CampaignID: "c", Epoch: 2, Withheld: true, ExpiresAt: noon.Add(-time.Minute)})
	idle := storetest.InstanceIn(noon, campaign.InstanceIdle)
	idle.Here = true
	unknown := campaign.InstanceState{ID: "<x>", Leases: storetest.InstanceIn(noon, campaign.InstanceSilent, time.Minute).Leases}
	for name, c := range map[string]struct {
		list   []campaign.InstanceState
		shows  []string
		hushes []string
	}{
		"running": {[]campaign.InstanceState{many}, []string{`class="badge s-running"`, "0/s", "<details><summary>Running; 24 campaigns leased.", "and 4 more, whose leases expire later; 120 rows in total"}, nil},
		"idle":    {[]campaign.InstanceState{idle}, []string{`class="badge s-idle"`, "Idle for 1 h; nothing leased.", "No heartbeat (SQLite)"}, []string{"0/s", `class="held"`, "not seen"}},
		"unseen":  {[]campaign.InstanceState{storetest.InstanceIn(noon, campaign.InstanceIdle)}, []string{"</span> not seen<", "Not seen for 1 h; nothing leased."}, []string{"0/s", "dle for"}},
		"silent":  {[]campaign.InstanceState{withheld}, []string{`class="badge s-silent"`, "<details open>", "paused or diverged, epoch 2", "ended"}, []string{"0/s", "event 0"}},
		"stopped": {[]campaign.InstanceState{storetest.InstanceIn(noon, campaign.InstanceStopped)}, []string{`class="badge s-stopped"`, "nothing leased."}, []string{"0/s", `class="held"`}},
		"unknown": {[]campaign.InstanceState{unknown}, []string{"&lt;x&gt;", "unknown", "–", "events 3–7, epoch 2"}, []string{"<x>", "process 0", "version", ">0<"}},
	} {
		html := string(must.Get(templ.ToGoHTML(t.Context(), InstancesLive(ui.Page{Now: noon}, InstancesView{List: c.list, Range: samples.Range{}, History: samples.History{Window: samples.Range{}.Window(noon)}}))).Or(t))
		_, table, _ := strings.Cut(html, "<tbody>")
		for _, text := range c.shows {
			must.Hold(t, strings.Contains(table, text), "%s: lacks %q:\n%s", name, text, table)
		}
		for _, text := range c.hushes {
			must.Hold(t, !strings.Contains(table, text), "%s: has %q:\n%s", name, text, table)
		}
	}
}
