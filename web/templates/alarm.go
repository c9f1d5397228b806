package templates

import "github.com/outboxweb/outboxweb/internal/outbox"

// flashLevel is how the action that led to a page turned out, so far.
func flashLevel(p Page) outbox.Level {
	switch {
	case wentWrong(*p.Flash):
		return outbox.LevelWarn
	case p.After.Level == "":
		return outbox.LevelOK
	}
	return p.After.Level
}

var flashMarks = map[outbox.Level]string{outbox.LevelOK: "✓", outbox.LevelBusy: "…", outbox.LevelWarn: "!"}
