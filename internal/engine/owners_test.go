package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Who takes a finding is on it as long as it stands, also if it is gone for a moment, at most a day; alerts say so.
func TestOwners_endWithWhatTheyAreOn(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	e := Wire(f.Store)
	ana := operator.Command{By: operator.Operator{Name: "ana"}, Reason: "a migration"}
	f.MustAppend(event.Event{CampaignID: "a", EventType: "x", Payload: json.RawMessage(`{}`)})
	known := func() facts.Facts { t.Helper(); f.Changed(); return must.Get(e.Facts.Read(f.Ctx)).Or(t) }
	pause := func() { t.Helper(); must.Get(e.Queue.PauseCampaign(f.Ctx, ana, "a")).Or(t) }
	resume := func() { t.Helper(); must.Get(e.Queue.ResumeCampaign(f.Ctx, ana, "a")).Or(t) }
	owner := func() string {
		t.Helper()
		return known().Findings.Of(campaign.FindsPausedHere)[0].Owner.Says()
	}
	after := func(d time.Duration) {
		t.Helper()
		f.Clock.Advance(d)
		f.Changed()
		must.Get(e.Facts.ForgetOwners(f.Ctx)).Or(t)
	}
	take := func() {
		t.Helper()
		must.Get(e.Facts.Take(f.Ctx, ana, campaign.TakeRequest{Kind: campaign.FindsPausedHere})).Or(t)
	}

	pause()
	take()
	says := "ana is on it since " + f.Clock.Now().UTC().Format("15:04 UTC") + ": a migration"
	must.Equal(t, owner(), says, "it says")
	cause := alerts.AlertRule{Name: "paused", What: "paused"}.Causes(known())[0]
	m := alerts.Alert{Cause: cause}.Message(alerts.AlertRule{}, known(), alerts.AlertStarted, nil, func(string, string) string { return "" })
	must.Hold(t, m.Owner == says && slices.Contains(m.Lines(f.Clock.Now()), says), "the message is %+v", m)

	after(time.Hour)
	resume()
	after(time.Second)
	pause()
	after(time.Hour)
	must.Equal(t, owner(), says, "after it was gone for a second, it says")
	resume()
	after(time.Second)
	after(2 * time.Minute)
	pause()
	must.Equal(t, owner(), "", "after it was gone for two minutes, it says")

	take()
	after(23 * time.Hour)
	must.Hold(t, strings.HasPrefix(owner(), "ana is on it"), "nobody is on it after 23 h")
	f.Clock.Advance(2 * time.Hour)
	must.Equal(t, owner(), "", "after 25 h it says")
	after(0)
	must.Equal(t, len(known().Owners), 0, "owners left")
}
