package outbox

import (
	"fmt"
	"time"
)

// Alarm is the health in two or three words, for the title of a page and its icon. It is empty
// unless someone should look.
type Alarm struct {
	Level Level // LevelWarn or LevelBad; empty without an alarm
	Text  string
}

// Alarm shortens Health to what fits into the title of a page.
func (s Summary) Alarm(now time.Time) Alarm {
	level := s.Health(now).Level
	if level != LevelBad && level != LevelWarn {
		return Alarm{}
	}
	if len(s.Faults) > 0 {
		return Alarm{level, faultKinds[s.Faults[0].Kind].title}
	}
	c := s.Campaigns
	for _, found := range []struct {
		n    int64
		text string
	}{
		{c.Diverged, "diverged"},
		{c.Blocked, "blocked"},
		{c.Unverifiable, "unverifiable"},
		{c.Drifted, "drifted"},
		{s.Counts.Failed, "failing"},
	} {
		if found.n > 0 {
			return Alarm{level, fmt.Sprintf("%d %s", found.n, found.text)}
		}
	}
	if level == LevelBad {
		return Alarm{level, "trouble"}
	}
	return Alarm{level, "warning"}
}
