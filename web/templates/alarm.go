package templates

import (
	"outboxweb/internal/outbox"
	"outboxweb/web/static"
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
