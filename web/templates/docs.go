package templates

import (
	"context"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Guide is an anchor of the runbook: the section or step for a problem. Empty means that nothing is
// wrong.
type Guide string

// The guides that pages link to; a test checks that the runbook has each.
const (
	GuideLag          Guide = "lag-rises"
	GuideFailed       Guide = "retry-a-failed-head-at-once"
	GuideDead         Guide = "dead-heads-grow"
	GuideCanary       Guide = "follow-it-and-acknowledge-the-outcome"
	GuideWorker       Guide = "a-worker-hangs-or-none-is-seen"
	GuideDiverged     Guide = "databases-restored-from-different-days"
	GuideUnverifiable Guide = "when-a-campaign-cannot-be-verified"
	GuideWrong        Guide = "a-projection-is-wrong"
	GuideAside        Guide = "a-projection-is-quarantined"
	GuideFile         Guide = "a-projection-file-changes"
	GuideDisk         Guide = "disk-full"
	GuideUpgrade      Guide = "before-and-after-an-upgrade"

	GuidePublisher Guide = "a-publisher-does-not-deliver"
)

// Docs is the list of documents, or of search results.
func (l Links) Docs(query string) URL {
	if query == "" {
		return l.at(nil, "docs")
	}
	return l.at(url.Values{"q": {query}}, "docs")
}

// Doc is a document, at a heading if one is given.
func (l Links) Doc(name, anchor string) URL {
	u := l.at(nil, "docs", name)
	if anchor != "" {
		u += "#" + URL(url.PathEscape(anchor))
	}
	return u
}

// Operating is the runbook, at a guide if one is given.
func (l Links) Operating(g Guide) URL { return l.Doc(docs.Operating, string(g)) }

// campaignGuides are the guides for what blocks a campaign.
var campaignGuides = map[outbox.State]Guide{outbox.StateDiverged: GuideDiverged, outbox.StateBlocked: GuideDead, outbox.StateFailing: GuideFailed,
	outbox.StateUnverifiable: GuideUnverifiable, outbox.StateDrifted: GuideWrong, outbox.StateLagging: GuideLag}

// campaignGuide is the guide for a campaign: where it lags since no worker is running, that for workers.
func (p Page) campaignGuide(c outbox.Campaign) Guide {
	if c.State() == outbox.StateLagging && len(p.Findings.Of(outbox.FindsWorker)) > 0 {
		return GuideWorker
	}
	return campaignGuides[c.State()]
}

// markup is a block of an embedded document, whose links begin with the base path.
func markup(p Page, b docs.Block) templ.Component {
	return templ.Raw(strings.ReplaceAll(b.HTML, docs.Base, templ.EscapeString(p.Links.Base())))
}

// hitTitle is the title of a section found by a search.
func hitTitle(h docs.Hit) string {
	if h.Heading == "" {
		return h.Document.Title
	}
	return h.Document.Title + ": " + h.Heading
}

// commands returns commands of the runbook with this server's flags.
func commands(p Page, code string) string {
	return strings.ReplaceAll(code, "$URL", p.Origin+p.Links.Base())
}

var flagsOf = regexp.MustCompile(`--[a-z][a-z-]*`)

// unbroken is commands with their flags marked: a browser breaks a line after the first hyphen of
// one, too.
func unbroken(text string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, flagsOf.ReplaceAllString(templ.EscapeString(text), "<span class=option>$0</span>"))
		return err
	})
}

// commandsFor says when to use a block of commands.
func commandsFor(words []string) string {
	names := map[string]string{"curl": "with curl", "cli": "as a command", "sqlite": "on SQLite", "postgres": "on PostgreSQL"}
	var all []string
	for _, w := range words {
		all = append(all, names[w])
	}
	return strings.Join(all, ", ")
}
