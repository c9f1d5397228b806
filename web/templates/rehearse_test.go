package templates

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Nothing is to be requeued after a rehearsal of healthy campaigns: a verify says what to rebuild.
func TestRehearsalAnswer_leadsToAVerifyIfNothingWasBlocked(t *testing.T) {
	t.Parallel()
	d := outbox.FixRehearsal{Run: outbox.Run{ID: 3, Status: outbox.RunCompleted}, Counts: outbox.RehearsalCounts{OtherRows: 2}, Versions: []outbox.RehearsalVersion{{Projection: "guests"}}}
	d.Describe()
	admin := Page{Me: outbox.Identity{Role: outbox.RoleAdmin}}
	for loaded, want := range map[bool]string{false: "then a verify can be started here, and says what to rebuild", true: `href="/runs/new?all=1&amp;kind=verify&amp;projection=guests" data-testid="rehearsal-verify"`} {
		d.Loaded = loaded
		html := rendered(t, rehearsalAnswer(admin, d))
		if text := html; !strings.Contains(text, want) || strings.Contains(text, "canary") || !strings.Contains(text, "healthy ones alone are compared") || !strings.Contains(text, "2 of 2 healthy campaigns would get other rows") {
			t.Errorf("loaded %v: %s", loaded, text)
		}
	}
}
