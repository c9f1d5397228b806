package templates

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// A writer's mistake half an hour after a deploy is not put down to the deploy.
func TestCause_isPutDownToADeployJustBeforeItAlone(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		20 * time.Second: `ago</time>, after <a href="/projections/orders">projection orders changed to v2 on h</a>`,
		30 * time.Minute: `ago</time>; the last change was 30 min earlier: <a href="/projections/orders">`,
		2 * time.Hour:    `ago</time></span>`,
	} {
		g := outbox.ErrorGroup{Dead: 1, Heads: 1, Campaigns: 1, FirstAt: &first, Tried: []outbox.Tried{{Projection: "orders"}}}
		m := outbox.Marker{At: first.Add(-ago), Kind: outbox.MarkerVersion, Subject: "orders", Version: "v2", Host: "h"}
		c := causeView{AssessedGroup: outbox.AssessedGroup{ErrorGroup: g}, After: deployBefore([]outbox.Marker{m}, g)}
		var b strings.Builder
		if err := cause(Page{Now: first.Add(time.Minute)}, c).Render(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); !strings.Contains(text, want) {
			t.Errorf("%v before: lacks %q:\n%s", ago, want, text)
		}
	}
}

func TestCounts_ofOneAreSingular(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][3]string{1: {"event behind", "failing cause", ">campaign waiting for it<"}, 2: {"events behind", "failing causes", ">campaigns waiting for it<"}} {
		v := Overview{Summary: outbox.Summary{Lag: outbox.Lag{Events: n}}, Causes: make([]outbox.AssessedGroup, n)}
		numbers := heroNumbers(Page{}, v)
		if numbers[0].name != want[0] || numbers[2].name != want[1] {
			t.Errorf("%d: %q, %q", n, numbers[0].name, numbers[2].name)
		}
		var b strings.Builder
		if err := projectionCounts(Page{}, outbox.ProjectionInfo{Name: "orders", Blocking: n}).Render(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want[2]) {
			t.Errorf("%d: %s", n, b.String())
		}
	}
}
