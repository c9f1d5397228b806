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
