package system

import (
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// markup is a block of an embedded document, whose links begin with the base path.
func markup(p ui.Page, b docs.Block) templ.Component {
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
func commands(p ui.Page, code string) string {
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
