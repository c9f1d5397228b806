package main

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestDaysFlag_readsDaysAndDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "0d": 0, "1d": 24 * time.Hour, "365d": 8760 * time.Hour, "8760h": 8760 * time.Hour, "36h": 36 * time.Hour, "90m": 90 * time.Minute, "36500d": 36500 * 24 * time.Hour} {
		var d daysFlag
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %s, %v; want %s", text, time.Duration(d), err, want)
		}
		var again daysFlag
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%q is written %q, which is %s, %v", text, d, time.Duration(again), err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "+1d", "1.5d", "36501d", "99999999999999999999d", "-1h", "1", "1w", "1d12h", "876001h", "1 d", "٣d"} {
		var d daysFlag
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %s", text, time.Duration(d))
		}
	}
}

func FuzzDaysFlag(f *testing.F) {
	for _, text := range []string{"365d", "8760h", "0", "1h30m", "-1d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again daysFlag
		if d.UnmarshalText([]byte(text)) != nil {
			return
		}
		if d < 0 || time.Duration(d) > mostDays*24*time.Hour {
			t.Errorf("%q is %s", text, time.Duration(d))
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%q is written %q: %v", text, d, err)
		}
	})
}

func TestServe_keepsAuditRecordsAndHistoryADayAtLeast(t *testing.T) {
	t.Parallel()
	for keep, wrong := range map[string]bool{"0": false, "1d": false, "24h": false, "365d": false, "23h": true, "1s": true} {
		var d daysFlag
		must.OK(t, d.UnmarshalText([]byte(keep)))
		for flag, c := range map[string]serveCmd{"--keep-audit": {KeepAudit: d}, "--keep-history": {KeepHistory: d}} {
			err := c.checkKept()
			if (err != nil) != wrong || wrong && !strings.Contains(err.Error(), flag) {
				t.Errorf("%s %s: %v", flag, keep, err)
			}
		}
	}
}
