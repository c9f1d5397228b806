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
	for _, act := range []func(outbox.Command) error{
		func(o outbox.Command) error { _, err := f.PauseCampaign(f.Ctx, o, "a"); return err },
		func(o outbox.Command) error { _, err := f.ResumeCampaign(f.Ctx, o, "a"); return err },
	} {
		must.OK(t, act(anaAs(outbox.RoleAdmin, "")))
	}
	all, err := f.AuditLog(f.Ctx, outbox.AuditFilter{Limit: 200})
	if err != nil || len(all.Items) != 62 {
		t.Fatalf("%d acts, %v", len(all.Items), err)
	}
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string, set func(outbox.AuditEntry)) {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				set(rapid.SampledFrom(all.Items).Draw(t, name+" of"))
			}
		}
		filter := outbox.AuditFilter{Limit: rapid.SampledFrom([]int{1, 7, 200}).Draw(t, "limit"), Reverse: rapid.Bool().Draw(t, "reverse")}
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
		var want []int64
		for _, a := range all.Items {
			if filter.Matches(a) {
				want = append(want, a.ID)
			}
		}
		if filter.Reverse {
			slices.Reverse(want)
		}
		var got []int64
		for {
			page := must.Get(f.AuditLog(f.Ctx, filter)).Or(t)
			for _, a := range page.Items {
				got = append(got, a.ID)
			}
			if page.Total == nil || *page.Total != int64(len(want)) || page.TotalCapped {
				t.Fatalf("%+v: %v match, want %d", filter, page.Total, len(want))
			}
			if page.NextCursor == nil {
				break
			}
			filter.Cursor = *page.NextCursor
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: got %v, want %v", filter, got, want)
		}
	})
}
