package templates

import (
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/static"
)

// itemsNamed is the maximum number of objects that a finding names.
const itemsNamed = 5

// toldElsewhere are the kinds of findings that the overview has a section of its own for.
var toldElsewhere = []finding.Kind{outbox.FindsBlocked, outbox.FindsFailing, outbox.FindsLag, outbox.FindsPaused, outbox.FindsPausedHere, outbox.FindsNotDelivered}

func hasBlock(f finding.Finding) bool { return !slices.Contains(toldElsewhere, f.Kind) }

// blocks are the findings that the overview shows each in a block, the worst first.
func (v Overview) blocks() finding.List {
	return slices.DeleteFunc(v.Findings.Grouped(), func(f finding.Finding) bool { return !hasBlock(f) })
}

// worstGuide is the document about the worst finding, unless a block has it.
func (v Overview) worstGuide() string {
	if len(v.Findings) == 0 || hasBlock(v.Findings[0]) {
		return ""
	}
	return v.Findings[0].Guide
}

// Below is an address below the base path, with its query and anchor.
func (l Links) Below(page string) URL { return URL(l.base + page) }

// guideLink is a heading of a document: "operating#lag-rises".
func (l Links) guideLink(guide string) URL {
	doc, heading, _ := strings.Cut(guide, "#")
	return l.Doc(doc, heading)
}

// hueOf is the colour of a finding.
func hueOf(l finding.Level) string {
	return map[finding.Level]string{finding.Bad: "dead", finding.Warn: "failed", finding.Busy: "pending", finding.OK: "pending"}[l]
}

// leads reports whether the reader may use the page of a finding.
func leads(p Page, f finding.Finding) bool {
	return f.Link != "" && (!f.Runs || p.Offers(outbox.ActionRunStart))
}

// alarmTitle starts the title of every page while something is wrong, such as "✕ 40 blocked · ".
func alarmTitle(l finding.List) string {
	if l.Short() == "" {
		return ""
	}
	return levelGlyph(l.Worst()) + " " + l.Short() + " · "
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
