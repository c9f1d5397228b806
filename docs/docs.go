// Package docs holds the documents that the program shows of itself, in the
// form in which they lie here and are read on the web.
package docs

import _ "embed"

//go:embed operating.md
var operating string

// Operating is the runbook, operating.md. It is read-only.
var Operating = mustParse(operating)

func mustParse(text string) Document {
	d, err := Parse(text)
	if err != nil {
		panic("embedded document: " + err.Error())
	}
	return d
}
