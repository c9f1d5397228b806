package templates

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestLagText_saysHowMuchIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p          outbox.Publisher
		text, note string
	}{
		{outbox.Publisher{}, "0", ""},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70}, "1,204", "the first waiting for 1 min"},
		{outbox.Publisher{LagEvents: 1204, LagSeconds: 70, LagCapped: true}, "at least 1,204", "the first waiting for 1 min"},
		{outbox.Publisher{LagCapped: true}, "not known", "scanning; no event of the topic found so far"},
	} {
		if text, note := lagText(c.p), lagNote(c.p); text != c.text || note != c.note {
			t.Errorf("%q, %q, want %q, %q", text, note, c.text, c.note)
		}
	}
}

// A setting is shown as it is, not as an age, which is rounded down.
func TestSettingsLines_areExact(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{.05: "50 ms", 1: "1 s", 1.5: "1,500 ms", 60: "1 min", 90: "90 s", 5400: "90 min", 3600: "1 h"} {
		if got := exactly(seconds); got != want {
			t.Errorf("%v seconds are shown as %q, want %q", seconds, got, want)
		}
	}
}
