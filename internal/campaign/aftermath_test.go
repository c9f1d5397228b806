package campaign

import (
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"testing"
	"time"
)

func TestOfRow_tellsWhatBecameOfTheRow(t *testing.T) {
	t.Parallel()
	act := operator.AuditEntry{At: noon}
	at := func(d time.Duration, fingerprint string) Attempt {
		return Attempt{At: noon.Add(d), Fingerprint: fingerprint}
	}
	row := func(status event.Status, updated time.Duration, attempts ...Attempt) *RowDetail {
		return &RowDetail{Row: Row{Status: status, UpdatedAt: noon.Add(updated)}, Attempts: attempts}
	}
	for _, c := range []struct {
		row   *RowDetail
		level finding.Level
		says  string
	}{
		{nil, finding.OK, "It has been applied."},
		{row(event.Pending, 0, at(-time.Minute, "a")), finding.Busy, "It is waiting to be applied."},
		{row(event.Processing, time.Second, at(-time.Minute, "a")), finding.Busy, "It is being applied."},
		{row(event.Dead, 8*time.Second, at(8*time.Second, "a"), at(-time.Minute, "a")), finding.Warn, "It failed again 8 s later with the same error."},
		{row(event.Failed, 8*time.Second, at(8*time.Second, "b"), at(-time.Minute, "a")), finding.Warn, "It failed again 8 s later with another error."},
		{row(event.Dead, time.Minute, at(time.Minute, "b"), at(3*time.Millisecond, "a"), at(-time.Minute, "a")), finding.Warn, "It failed again with the same error."},
		{row(event.Failed, 8*time.Second, at(8*time.Second, "a"), Attempt{At: noon.Add(7 * time.Second), Fingerprint: "q", Quarantined: true}, at(-time.Minute, "a")), finding.Warn, "It failed again 8 s later with the same error."},
		{row(event.Dead, time.Minute, at(2*time.Second, "a")), finding.Warn, "It failed again 2 s later."},
		{row(event.Dead, time.Minute), finding.Warn, "It failed again."},
	} {
		must.Equal(t, OfRow(act, c.row), Aftermath{c.level, c.says}, c.row)
	}
}
