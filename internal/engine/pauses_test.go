package engine

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// A pause ends at its time, which is told until then. The end of a pause that was resumed ends no later pause.
func TestPauses_endByThemselves(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	e := Wire(f.Store)
	p := &Process{Config: Config{Engine: e, Set: &projection.Set{}, Logger: slog.New(slog.DiscardHandler)}}
	f.MustAppend(event.Event{CampaignID: "a", EventType: "x", Payload: json.RawMessage(`{}`)}, event.Event{CampaignID: "b", EventType: "x", Payload: json.RawMessage(`{}`)})
	by := func(lasts operator.PauseFor, reason string) operator.Command {
		return operator.Command{By: operator.Operator{Name: "ana"}, Lasts: lasts, Reason: reason}
	}
	pause := func(id string, o operator.Command) { t.Helper(); must.Get(e.Queue.PauseCampaign(f.Ctx, o, id)).Or(t) }
	paused := func(id string) bool { t.Helper(); return must.Get(f.Campaign(f.Ctx, id)).Or(t).Paused != nil }
	over := func() {
		t.Helper()
		f.Exec(`update pause_ends set ends_at = 1`)
		must.Get(p.endPauses(f.Ctx)).Or(t)
	}

	_, err := e.Queue.PauseCampaign(f.Ctx, by(operator.UntilResumed, ""), "a")
	must.Hold(t, errors.Is(err, event.ErrInvalid) && strings.Contains(err.Error(), "takes a reason") && !paused("a"), "without a reason: %v", err)

	pause("a", by("1h", ""))
	sum := must.Get(f.Summarize(f.Ctx)).Or(t)
	c := must.Get(f.Campaign(f.Ctx, "a")).Or(t)
	must.Hold(t, len(sum.PauseEnds) == 1 && sum.PauseEnds[0].Until.Sub(c.Paused.At) == time.Hour, "ends %+v", sum.PauseEnds)
	says := c.Why(c.Paused.At, sum.Surroundings())
	must.Hold(t, strings.Contains(says, "Paused by ana 0 s ago until "+sum.PauseEnds[0].Until.UTC().Format("Jan 2 15:04 UTC")), "%s", says)
	must.Get(p.endPauses(f.Ctx)).Or(t)
	must.Hold(t, paused("a"), "ended before its time")

	must.Get(e.Queue.ResumeCampaign(f.Ctx, by("", ""), "a")).Or(t)
	pause("a", by(operator.UntilResumed, "a migration"))
	over()
	must.Hold(t, paused("a"), "ended by the end of a pause before it")

	must.Get(e.Queue.ResumeCampaign(f.Ctx, by("", ""), "a")).Or(t)
	pause("a", by("4h", ""))
	err = p.endPause(f.Ctx, campaign.PauseEnd{Resume: operator.ActionResume, CampaignID: "a", By: "ana", Until: sum.PauseEnds[0].Until})
	must.Hold(t, errors.Is(err, event.ErrConflict) && paused("a"), "ended by the late end of a pause before it: %v", err)
	must.Get(e.Queue.ResumeCampaign(f.Ctx, by("", ""), "a")).Or(t)
	pause("a", by(operator.UntilResumed, "a migration"))

	pause("b", by("4h", ""))
	over()
	must.Hold(t, !paused("b") && paused("a"), "it did not end")
	must.Equal(t, len(must.Get(f.Summarize(f.Ctx)).Or(t).PauseEnds), 0, "ends left")
	acts := must.Get(f.LatestActs(f.Ctx, operator.AuditFilter{Limit: 1})).Or(t)
	must.Hold(t, acts[0].Actor == "outboxweb" && acts[0].Reason == "the time of the pause by ana was over", "recorded as %+v", acts[0])
}
