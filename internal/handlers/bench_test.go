package handlers

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// BenchmarkRender renders each kind of page with 50 rows. A page may cost at
// most 2 ms.
func BenchmarkRender(b *testing.B) {
	now := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	p := templates.Page{Links: templates.NewLinks("/ops"), Origin: "http://127.0.0.1:8080", Title: "Benchmark", Now: now, Self: "/", Twin: "/"}
	rows, campaigns := fifty(now)
	event := outbox.Event{CampaignID: "c-1", Seq: 7, EventType: "character.created", Payload: json.RawMessage(`{"a":[` + strings.Repeat(`{"n":1},`, 500) + `0]}`)}
	overview := templates.Overview{}
	for i, c := range campaigns[:20] {
		g := outbox.ErrorGroup{Fingerprint: fmt.Sprint(i), Example: "constraint failed", Dead: 1}
		g.AddCampaign(outbox.CauseCampaign{CampaignID: c.CampaignID, HeadSeq: c.HeadSeq, HeadStatus: outbox.Dead, EventsWaiting: 400})
		overview.Causes = append(overview.Causes, outbox.AssessedGroup{ErrorGroup: g})
	}
	for name, c := range map[string]templ.Component{
		"overview":  templates.OverviewPage(p, overview, templates.OverviewLive(p, overview)),
		"rows":      templates.RowsPage(p, templates.RowsView{Page: outbox.Page[outbox.Row]{Items: rows}}),
		"event":     templates.EventPage(p, templates.EventView{EventDetail: outbox.EventDetail{Event: event}, Campaign: campaigns[0], Row: &outbox.RowDetail{Row: rows[0], Event: event, Campaign: campaigns[0]}}),
		"campaigns": templates.CampaignsPage(p, templates.CampaignsView{Page: outbox.Page[outbox.Campaign]{Items: campaigns}}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Render(b.Context(), io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func fifty(now time.Time) (rows []outbox.Row, campaigns []outbox.Campaign) {
	for i := range 50 {
		id := fmt.Sprintf("bdsewd4qujfbhle3m7pgb4w%03d", i)
		rows = append(rows, outbox.Row{CampaignID: id, Seq: int64(i + 1), EventType: "participant.updated", Status: outbox.Dead, AttemptCount: 8,
			LastError: strings.Repeat("constraint failed ", 12), EnqueuedAt: now.Add(-time.Hour), UpdatedAt: now, IsHead: true, BlockedBehind: 44200})
		campaigns = append(campaigns, outbox.Campaign{CampaignID: id, HighWaterSeq: 500, AppliedSeq: 100, HeadSeq: 101, HeadStatus: outbox.Dead,
			Counts: outbox.Counts{Pending: 399, Dead: 1}, OldestEnqueuedAt: now.Add(-time.Hour)})
	}
	return rows, campaigns
}
