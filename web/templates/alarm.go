package templates

import (
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/static"
)

// alarmTitle starts the title of every page while something is wrong, such as "✕ 40 blocked · ".
func alarmTitle(a outbox.Alarm) string {
	if a.Level == "" {
		return ""
	}
	return levelGlyph(a.Level) + " " + a.Text + " · "
}

// alarmIcon is the icon of the browser's tab.
func alarmIcon(level outbox.Level) string {
	switch level {
	case outbox.LevelBad:
		return static.IconBad
	case outbox.LevelWarn:
		return static.IconWarn
	}
	return static.Icon
}

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
