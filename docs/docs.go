// Package docs holds the documentation that the program shows of itself, in the
// form in which it lies here and is read on the web.
package docs

import (
	"embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed *.md
var files embed.FS

// order is how the documents are listed; each is a file of its name.
var order = []string{
	"start", "concepts", "console", "commands", "configuration", "access", "deploy", "postgresql", "appending", "intake", "projections", "runs",
	"publishers", "embedding", "alerts", "operating", "metrics", "performance",
}

// All returns the documents, in the order in which they are listed. They are read with the first
// call, since no command but serve needs them, and are read-only.
var All = sync.OnceValue(mustRead)

// Operating is the name of the runbook.
const Operating = "operating"

// Named returns the document of a name, and nil where there is none.
func Named(name string) *Document {
	all := All()
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

func mustRead() []Document {
	var all []Document
	for _, name := range order {
		source, err := files.ReadFile(name + ".md")
		if err != nil {
			panic(fmt.Sprintf("embedded document: %v", err))
		}
		d, err := parse(name, source)
		if err != nil {
			panic(fmt.Sprintf("embedded document %s.md: %v", name, err))
		}
		all = append(all, d)
	}
	return all
}

// Hit is a section in which a search found its words.
type Hit struct {
	Document *Document
	Heading  string // of the section; empty for what stands before the first
	Anchor   string // its anchor; empty like Heading
	Text     string // the paragraph that has the words, or the section's first one
}

// maxHits bounds what a search finds.
const maxHits = 40

// Search finds the sections that have every word of the query, in any case:
// those with the words in their heading first, otherwise in the order of All.
func Search(query string) []Hit {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return nil
	}
	var inHeading, inText []Hit
	look := func(d *Document, s Section) {
		text, best := s.search(words)
		hit := Hit{Document: d, Heading: s.Name, Anchor: s.Anchor, Text: best}
		switch {
		case hasAll(strings.ToLower(d.Title+" "+s.Name), words):
			inHeading = append(inHeading, hit)
		case hasAll(strings.ToLower(d.Title+" "+s.Name+" "+text), words):
			inText = append(inText, hit)
		}
	}
	all := All()
	for i := range all {
		d := &all[i]
		look(d, Section{Blocks: d.Lead})
		for _, s := range d.Sections {
			look(d, s)
		}
	}
	hits := append(inHeading, inText...)
	return hits[:min(len(hits), maxHits)]
}

// search returns the text of the section's own blocks, and the paragraph that
// tells most about the words.
func (s Section) search(words []string) (all, best string) {
	var b strings.Builder
	most := -1
	for _, block := range s.Blocks {
		b.WriteString(block.Text + "\n")
		found := 0
		for _, w := range words {
			if strings.Contains(strings.ToLower(block.Text), w) {
				found++
			}
		}
		if block.Code == "" && found > most {
			best, most = block.Text, found
		}
	}
	return b.String(), best
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
