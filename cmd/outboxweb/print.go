package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// jsonFlag is of the commands that can print a document.
type jsonFlag struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// actionFlags are of the commands that change something.
type actionFlags struct {
	Reason string `placeholder:"TEXT" help:"The reason, for the audit log."`
	jsonFlag
}

// listFlags are of the commands that list a page of something.
type listFlags struct {
	Limit int `default:"${default_page}" placeholder:"N" help:"Maximum number to list, up to ${max_page}."`
	jsonFlag
}

// print prints a document where --json asks for one, and a sentence otherwise.
func (f jsonFlag) print(a *app, document any, format string, args ...any) error {
	if f.JSON {
		return a.printJSON(document)
	}
	fmt.Fprintln(a.out, fmt.Sprintf(format, args...))
	return nil
}

// printJSON writes one indented JSON document to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printTable prints a line for each item below the headings, which have tabs
// between them.
func printTable[T any](w io.Writer, headings string, items []T, cells func(T) []any) error {
	t := table(w)
	fmt.Fprintln(t, headings)
	for _, item := range items {
		t.row(cells(item)...)
	}
	return t.Flush()
}

// printList prints the items of a list as a document, in which they stand under
// a name, or as a table. Where there are none, it says so.
func printList[T any](a *app, f jsonFlag, name string, items []T, headings string, cells func(T) []any) error {
	switch {
	case f.JSON:
		return a.printJSON(map[string][]T{name: items})
	case len(items) == 0:
		fmt.Fprintln(a.out, "no "+name)
		return nil
	}
	return printTable(a.out, headings, items, cells)
}

// columns aligns what is written to it, cells with tabs between them, as it will
// be seen.
type columns struct {
	visible
	cells *tabwriter.Writer
}

// table makes columns that are written to w when they are flushed.
func table(w io.Writer) columns {
	cells := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	return columns{visible{cells}, cells}
}

// row writes one line.
func (c columns) row(cells ...any) {
	format := strings.TrimPrefix(strings.Repeat("\t%v", len(cells)), "\t")
	fmt.Fprintf(c, format+"\n", cells...)
}

// Flush writes the rows so far; those to come are aligned anew.
func (c columns) Flush() error { return c.cells.Flush() }

// firstLine is the beginning of a text, fit for one line of a table.
func firstLine(text string, most int) string {
	for i, r := range text {
		if r == '\n' || r == '\t' || i >= most {
			return text[:i] + "…"
		}
	}
	return text
}

// stamp is how tables write a time.
func stamp(t time.Time) string { return t.Format(time.RFC3339) }

// stampOr is the stamp of a time, or another word where there is none.
func stampOr(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return stamp(*t)
}
