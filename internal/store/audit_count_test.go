package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestActions_countAndListAsAFilterMatches(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 60 {
		o := ana("")
		o.By.Name, o.By.Auth = []string{"ana", "ben"}[i%2], []outbox.Auth{outbox.AuthJWT, outbox.AuthToken, outbox.AuthOS}[i%3]
		o.By.Role, o.RequestID = []outbox.Role{outbox.RoleOperator, outbox.RoleAdmin}[i/2%2], fmt.Sprint("r-", i%7)
		r := outbox.RefusedAction{Action: []outbox.Action{outbox.ActionPause, outbox.ActionSkip}[i/3%2], CampaignID: []string{"", "a", "b"}[i/4%3], Seq: int64(i % 3), Refusal: "no"}
		if r.CampaignID == "" {
			r.Target = []outbox.Target{"", outbox.RunTarget(7), outbox.ProjectionTarget("p")}[i%3]
		}
		f.must(f.RecordRefusal(f.Ctx, o, r))
		f.Clock.Advance(time.Minute)
	}
	f.AppendN("a", 1)
	f.must(f.PauseCampaign(f.Ctx, anaAs(outbox.RoleAdmin, ""), "a"))
	f.must(f.ResumeCampaign(f.Ctx, anaAs(outbox.RoleAdmin, ""), "a"))
	all, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Limit: 200})
	must.Need(t, err == nil && len(all.Items) == 62, "%d acts, %v", len(all.Items), err)
	rapid.Check(t, func(rt *rapid.T) {
		maybe := func(name string, set func(outbox.AuditEntry)) {
			if rapid.IntRange(0, 3).Draw(rt, name) == 0 {
				set(rapid.SampledFrom(all.Items).Draw(rt, name+" of"))
			}
		}
		filter := outbox.AuditFilter{Limit: rapid.SampledFrom([]int{1, 7, 200}).Draw(rt, "limit"), Reverse: rapid.Bool().Draw(rt, "reverse")}
		maybe("actor", func(a outbox.AuditEntry) { filter.Actor = a.Actor })
		maybe("action", func(a outbox.AuditEntry) { filter.Action = a.Action })
		maybe("campaign", func(a outbox.AuditEntry) { filter.CampaignID = a.CampaignID })
		maybe("seq", func(a outbox.AuditEntry) { filter.Seq = a.Seq })
		maybe("target", func(a outbox.AuditEntry) { filter.Target = a.Target })
		maybe("outcome", func(a outbox.AuditEntry) { filter.Outcome = a.Outcome })
		maybe("auth", func(a outbox.AuditEntry) { filter.Auth = a.Auth })
		maybe("role", func(a outbox.AuditEntry) { filter.Role = a.Role })
		maybe("request", func(a outbox.AuditEntry) { filter.RequestID = a.RequestID })
		maybe("since", func(a outbox.AuditEntry) { filter.Since = a.At })
		maybe("until", func(a outbox.AuditEntry) { filter.Until = a.At })
		want := []string{}
		for _, a := range all.Items {
			if filter.Matches(a) {
				want = append(want, fmt.Sprint(a.ID))
			}
		}
		if filter.Reverse {
			slices.Reverse(want)
		}
		read := f.actPager(filter)
		if page := read(""); page.Total == nil || *page.Total != int64(len(want)) || page.TotalCapped {
			rt.Fatalf("%+v: %v match, want %d", filter, page.Total, len(want))
		}
		if got := read.BothWays(t, fmt.Sprintf("%+v", filter)); !slices.Equal(got, want) || t.Failed() {
			rt.Fatalf("%+v: got %v, want %v", filter, got, want)
		}
	})
}
