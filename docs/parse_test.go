package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := "# Title\n\nOne\nparagraph with `a < b`, **bold** and [a link](#the-step).\n\n| a | b |\n|---|---|\n| `c` | d |\n\n" +
		"## A section, or two\n\n**Do not.**\n\n### The step\n\n```sh curl\necho a | b\n\n# prints: …\n```\n"
	want := Document{
		Title: "Title",
		Lead: []Block{
			{Paragraph: []Span{{Text: "One paragraph with "}, {Text: "a < b", Code: true}, {Text: ", "}, {Text: "bold", Bold: true}, {Text: " and "}, {Text: "a link", To: "the-step"}, {Text: "."}}},
			{Table: [][][]Span{{{{Text: "a"}}, {{Text: "b"}}}, {{{Text: "c", Code: true}}, {{Text: "d"}}}}},
		},
		Sections: []Section{{Name: "A section, or two", Anchor: "a-section-or-two", Lead: []Block{{Paragraph: []Span{{Text: "Do not.", Bold: true}}}},
			Steps: []Section{{Name: "The step", Anchor: "the-step", Lead: []Block{{Code: "echo a | b\n\n# prints: …\n", For: []string{"curl"}}}}}}},
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What would be shown otherwise than it is meant is refused.
func TestParse_refusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"a list":               "- one\n",
		"a numbered list":      "1. one\n",
		"a quotation":          "> one\n",
		"indented code":        "    one\n",
		"HTML":                 "<b>one</b>\n",
		"HTML in a sentence":   "one <b>two</b>\n",
		"an entity":            "one &lt; two\n",
		"an image":             "![one](two.png)\n",
		"a link outside":       "[one](https://example.com/)\n",
		"an address":           "see https://example.com/\n",
		"a link to nowhere":    "[one](#nowhere)\n",
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
