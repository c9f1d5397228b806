package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := "# Title\n\nOne\nparagraph with `a < b`, **bold** and [a link](#the-step).\n\n| a | b |\n|---|---|\n| `c\\|e` | d |\n\n" +
		"- one, see [the other](other.md#step)\n- [two](https://example.com/) in [a file](a.service)\n\n<!-- a comment -->\n\n" +
		"## A section, or two\n\n**Do not.**\n\n### The step\n\n```sh curl\necho a | b\n\n# prints: …\n```\n"
	want := Document{
		Title: "Title",
		Lead: []Block{
			{Paragraph: []Span{{Text: "One paragraph with "}, {Text: "a < b", Code: true}, {Text: ", "}, {Text: "bold", Bold: true}, {Text: " and "}, {Text: "a link", To: "the-step"}, {Text: "."}}},
			{Table: [][][]Span{{{{Text: "a"}}, {{Text: "b"}}}, {{{Text: "c|e", Code: true}}, {{Text: "d"}}}}},
			{List: [][]Span{{{Text: "one, see "}, {Text: "the other", In: "other", To: "step"}}, {{Text: "two", URL: "https://example.com/"}, {Text: " in "}, {Text: "a file", Code: true}}}},
		},
		Sections: []Section{{Name: "A section, or two", Anchor: "a-section-or-two", Lead: []Block{{Paragraph: []Span{{Text: "Do not.", Bold: true}}}},
			Steps: []Section{{Name: "The step", Anchor: "the-step", Lead: []Block{{Code: "echo a | b\n\n# prints: …\n", For: []string{"curl"}}}}}}},
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Document{})); diff != "" {
		t.Error(diff)
	}
}

// What would be shown otherwise than it is meant is refused.
func TestParse_refusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"a list in a list":     "- one\n  - two\n",
		"an item of two lines": "- one\n  two\n",
		"another list":         "* one\n",
		"a numbered list":      "1. one\n",
		"a quotation":          "> one\n",
		"indented code":        "    one\n",
		"HTML":                 "<b>one</b>\n",
		"HTML in a sentence":   "one <b>two</b>\n",
		"an entity":            "one &lt; two\n",
		"an image":             "![one](two.png)\n",
		"a link outside":       "[one](http://example.com/)\n",
		"an address":           "see https://example.com/\n",
		"a link to nowhere":    "[one](#nowhere)\n",
		"a link upwards":       "[one](../README.md)\n",
		"emphasis":             "one *two* three\n",
		"half of bold":         "one **two three\n",
		"half of code":         "one `two three\n",
		"an escape":            "one \\* two\n",
		"code without an end":  "```sh\none\n",
		"code of no language":  "```\none\n```\n",
		"a fourth heading":     "## one\n### two\n#### three\n",
		"a step of no section": "### one\n",
		"a second title":       "# one\n",
		"one heading twice":    "## one\n## one\n",
		"a heading with code":  "## `one`\n",
		"a row of other cells": "| a | b |\n|---|---|\n| c |\n",
		"a row without an end": "| a | b\n",
		"a rule":               "one\n\n---\n",
		"an underlined title":  "one\n===\n",
	} {
		if d, err := Parse("# Title\n\n" + body); err == nil {
			t.Errorf("%s is read as %+v", what, d)
		} else if strings.TrimSpace(err.Error()) == "" {
			t.Errorf("%s is refused without a word", what)
		}
	}
	if _, err := Parse("one\n"); err == nil {
		t.Error("a document without a title is read")
	}
}

func TestSearch_findsEveryWordAndHeadingsFirst(t *testing.T) {
	t.Parallel()
	hits := Search("CANARY group")
	if len(hits) == 0 || len(Search("canary")) < len(hits) {
		t.Fatalf("%d hits", len(hits))
	}
	for _, h := range hits {
		if h.Document == nil || h.Heading != "" && h.Anchor != Anchor(h.Heading) {
			t.Errorf("found %+v", h)
		}
	}
	if first := Search("disk full")[0]; first.Heading != "Disk full" || first.Document.Name != Operating {
		t.Errorf("found %q of %s first", first.Heading, first.Document.Name)
	}
	if hits := Search(" "); hits != nil {
		t.Errorf("nothing is found as %v", hits)
	}
	if hits := Search("the"); len(hits) != maxHits {
		t.Errorf("%d hits", len(hits))
	}
}

// Every document that lies here is one that the program shows.
func TestAll_areTheFiles(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if Named(strings.TrimSuffix(e.Name(), ".md")) == nil {
			t.Errorf("%s is not shown", e.Name())
		}
	}
	if len(entries) != len(All()) {
		t.Errorf("%d files and %d documents", len(entries), len(All()))
	}
}
