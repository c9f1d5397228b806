package docs

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := "# Title\n\nOne\nparagraph with `a < b` and [a link](#the-step).\n\n| a | b |\n|---|---|\n| `c\\|e` | d |\n\n" +
		"- see [the other](other.md#step)\n- `/rows?status=dead`, [two](https://example.com/) in [`a file`](a.service)\n\n<!-- a comment -->\n\n" +
		"## A section, or two\n\n### The step\n\n```sh curl\necho a | b\n\n# prints: …\n```\n"
	want := Document{
		Name: Operating, Title: "Title",
		Lead: []Block{
			{HTML: "<p>One\nparagraph with <code>a &lt; b</code> and <a href=\"$base/docs/operating#the-step\">a link</a>.</p>\n", Text: "One paragraph with a < b and a link."},
			{
				HTML: "<table class=\"plain\">\n<thead>\n<tr>\n<th scope=\"col\">a</th>\n<th scope=\"col\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td><code>c|e</code></td>\n<td>d</td>\n</tr>\n</tbody>\n</table>\n",
				Text: "a · b · c|e · d",
			},
			{
				HTML: "<ul>\n<li>see <a href=\"$base/docs/other#step\">the other</a></li>\n<li><a href=\"$base/rows?status=dead\"><code>/rows?status=dead</code></a>, <a href=\"https://example.com/\" rel=\"noopener\">two</a> in <code>a file</code></li>\n</ul>\n",
				Text: "see the other · /rows?status=dead, two in a file",
			},
		},
		Sections: []Section{
			{Name: "A section, or two", Anchor: "a-section-or-two"},
			{Name: "The step", Anchor: "the-step", Step: true, Blocks: []Block{{Code: "echo a | b\n\n# prints: …\n", For: []string{"curl"}, Text: "echo a | b\n\n# prints: …\n"}}},
		},
	}
	got := must.Get(parse(Operating, []byte(text))).Or(t)
	must.Equal(t, got, want)
}

func TestSearch_findsEveryWordAndHeadingsFirst(t *testing.T) {
	t.Parallel()
	hits := Search("CANARY group")
	must.Need(t, len(hits) != 0 && len(Search("canary")) >= len(hits), "%d hits", len(hits))
	for _, h := range hits {
		must.Hold(t, h.Document != nil && (h.Heading == "" || h.Anchor == Anchor(h.Heading)), "found %+v", h)
	}
	if first := Search("disk full")[0]; first.Heading != "Disk full" || first.Document.Name != Operating {
		t.Errorf("found %q of %s first", first.Heading, first.Document.Name)
	}
	if hits := Search(" "); hits != nil {
		t.Errorf("nothing is found as %v", hits)
	}
	must.Equal(t, len(Search("the")), maxHits, "hits")
}

// Every document that lies here is one that the program shows.
func TestAll_areTheFiles(t *testing.T) {
	t.Parallel()
	entries := must.Get(files.ReadDir(".")).Or(t)
	for _, e := range entries {
		must.Hold(t, Named(strings.TrimSuffix(e.Name(), ".md")) != nil, "%s is not shown", e.Name())
	}
	must.Equal(t, len(entries), len(All()), "the documents")
}

var update = flag.Bool("update", false, "write the files into the documents that include them")

var included = regexp.MustCompile("(?s)<!-- (deploy/[^ ]+) -->\n```([a-z]+)\n(.*?)```\n")

// A block of code behind a comment that names a file of deploy has the text of that file.
func TestDocuments_includeFiles(t *testing.T) {
	t.Parallel()
	for _, name := range order {
		old := must.Get(files.ReadFile(name + ".md")).Or(t)
		text := included.ReplaceAllStringFunc(string(old), func(block string) string {
			m := included.FindStringSubmatch(block)
			file := must.Get(os.ReadFile(filepath.Join("..", m[1]))).Or(t)
			return "<!-- " + m[1] + " -->\n```" + m[2] + "\n" + string(file) + "```\n"
		})
		switch {
		case text == string(old):
		case !*update:
			t.Errorf("%s.md has another text than the files of deploy that it includes; run make generate", name)
		default:
			must.OK(t, os.WriteFile(name+".md", []byte(text), 0o644))
		}
	}
}
