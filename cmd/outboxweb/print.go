package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// jsonFlag belongs to commands that can print a JSON document.
type jsonFlag struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// actionFlags belong to commands that change something.
type actionFlags struct {
	operator.ReasonRequest
	jsonFlag
}

// listFlags belong to commands that print a page of a list.
type listFlags struct {
	Limit int `default:"${default_page}" placeholder:"N" least:"1" most:"${max_page}" help:"Maximum number to list, up to ${max_page}. Default ${default_page}."`
	jsonFlag
}

// redactFlags belong to commands that show payloads and rows, and to serve.
type redactFlags struct {
	RedactKey    []string `placeholder:"NAME" sep:"none" help:"An additional key whose values are secrets, in words such as card number; matched in any case and spelling. Repeatable."`
	RedactValue  []string `placeholder:"REGEXP" sep:"none" help:"An additional regular expression (RE2) that matches secrets. Repeatable."`
	HidePayloads bool     `help:"Hide all payloads, metadata, tags and row values; an admin can reveal one event at a time."`
}

// redactor returns the redactor of the flags; an invalid pattern is wrong usage of the flag.
func (f redactFlags) redactor() (*redact.Redactor, error) {
	r, err := redact.New(redact.Config{Keys: f.RedactKey, Values: f.RedactValue, HidePayloads: f.HidePayloads})
	return r, asFlag(err)
}

// print prints the document with --json and the sentence otherwise.
func (f jsonFlag) print(a *app, document any, format string, args ...any) error {
	if f.JSON {
		return a.printJSON(document)
	}
	_, err := fmt.Fprintf(a.out, format+"\n", args...)
	return err
}

// show prints the document with --json; otherwise text prints it for people.
func (f jsonFlag) show(a *app, document any, text func() error) error {
	if f.JSON {
		return a.printJSON(document)
	}
	return text()
}

// answer returns the error of what a command asked for, or prints its outcome: the document with --json, the
// sentence otherwise.
func (f jsonFlag) answer(a *app, err error, document any, format string, args ...any) error {
	if err != nil {
		return err
	}
	return f.print(a, document, format, args...)
}

// printJSON writes one indented JSON document to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printTable prints one line per item below the headings, which are separated by tabs.
func printTable[T any](w io.Writer, headings string, items []T, cells func(T) []any) error {
	t := table(w)
	fmt.Fprintln(t, headings)
	for _, item := range items {
		t.row(cells(item)...)
	}
	return t.Flush()
}

// printColumns prints items in those columns of their list that a command has.
func printColumns[T any](w io.Writer, all []ui.Column[T], items []T) error {
	columns, t := ui.Printed(all), table(w)
	cells := make([]any, len(columns))
	for i, c := range columns {
		cells[i] = c.Print
	}
	t.row(cells...)
	for n := range items {
		for i, c := range columns {
			text := cellText(c.Text(&items[n]), c.Most)
			if text != "" && c.Lead != nil {
				text = c.Lead(&items[n]) + text
			}
			cells[i] = text
		}
		t.row(cells...)
	}
	return t.Flush()
}

// cellText is a value as a table has it: a text of at most so many characters, 0 meaning all.
func cellText(v any, most int) string {
	switch v := v.(type) {
	case time.Time:
		return stamp(v.UTC())
	case *time.Time:
		return stampOr(v, "never")
	}
	if most == 0 {
		return fmt.Sprint(v)
	}
	return firstLine(fmt.Sprint(v), most)
}

// printList prints items as a document, under the given name, or as a table. An empty table is a
// sentence.
func printList[T any](a *app, f jsonFlag, name string, items []T, columns []ui.Column[T]) error {
	switch {
	case f.JSON:
		return a.printJSON(map[string][]T{name: items})
	case len(items) == 0:
		fmt.Fprintln(a.out, "no "+name)
		return nil
	}
	return printColumns(a.out, columns, items)
}

// printPage is printList for a page, and says on stderr if there are more items. It returns the error of
// reading the page, if there is one.
func printPage[T any](a *app, f jsonFlag, err error, name string, page event.Page[T], columns []ui.Column[T]) error {
	if err != nil {
		return err
	}
	a.printCut(page.NextCursor, len(page.Items), name)
	return printList(a, f, name, page.Items, columns)
}

// pages reads pages from a cursor on until there are so many items, or no more, and says on stderr if there are.
func pages[T any](a *app, name string, most int, read func(cursor string, limit int) (event.Page[T], error)) ([]T, error) {
	items, next := []T{}, new("")
	for next != nil && len(items) < most {
		page, err := read(*next, min(event.MaxPage, most-len(items)))
		if err != nil {
			return nil, err
		}
		items, next = append(items, page.Items...), page.NextCursor
	}
	a.printCut(next, len(items), name)
	return items, nil
}

// shownNow is what the columns of lists need of a page.
func shownNow() ui.Page { return ui.Page{Now: time.Now()} }

// printCut says on stderr that a list ends at its limit; next leads to the rest, nil without one.
func (a *app) printCut(next *string, shown int, name string) {
	if next != nil {
		fmt.Fprintf(a.err, "there are more %s than these %d; raise --limit, or filter\n", name, shown)
	}
}

// columns pads cells that end with a tab to the width on a terminal of the column they form with those
// of the lines around.
type columns struct {
	visible
	text *strings.Builder
	to   io.Writer
}

// table returns columns that are written to w on Flush.
func table(w io.Writer) columns {
	text := new(strings.Builder)
	return columns{visible{text}, text, w}
}

// row writes one line.
func (c columns) row(cells ...any) {
	format := strings.TrimPrefix(strings.Repeat("\t%v", len(cells)), "\t")
	fmt.Fprintf(c, format+"\n", cells...)
}

// Flush writes the rows so far; later rows are aligned separately.
func (c columns) Flush() error {
	var lines [][]string
	for line := range strings.Lines(c.text.String()) {
		lines = append(lines, strings.Split(line, "\t"))
	}
	c.text.Reset()
	for column, more := 0, true; more; column++ {
		more = false
		for from, to := 0, 0; from < len(lines); from = to + 1 {
			wide := 0
			for to = from; to < len(lines) && column < len(lines[to])-1; to++ {
				wide, more = max(wide, widthOf(lines[to][column])), true
			}
			for _, line := range lines[from:to] {
				line[column] += strings.Repeat(" ", wide-widthOf(line[column])+2)
			}
		}
	}
	_, err := io.WriteString(c.to, strings.Join(slices.Concat(lines...), ""))
	return err
}

// widthOf is how many cells of a terminal a text takes.
func widthOf(text string) (n int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// firstLine shortens a text to one line of at most so many characters.
func firstLine(text string, most int) string {
	for i, r := range text {
		if r == '\n' || r == '\t' || i >= most {
			return text[:i] + "…"
		}
	}
	return text
}

// idShown is how many characters of an id tables show: more than a UUID has.
const idShown = 40

// stamp formats a time for tables.
func stamp(t time.Time) string { return t.Format(time.RFC3339) }

// stampOr formats a time, or returns none without one.
func stampOr(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return stamp(*t)
}

// visible escapes characters that a terminal would interpret or not show, as JSON escapes, which
// mean the same within JSON. Line endings and tabs stay, and so do invalid bytes: they may be part
// of a character split across two writes.
type visible struct{ w io.Writer }

func (v visible) Write(text []byte) (int, error) {
	if bytes.IndexFunc(text, hides) < 0 {
		return v.w.Write(text)
	}
	var b bytes.Buffer
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if hides(r) {
			b.WriteString(event.EscapeRune(r))
		} else {
			b.Write(rest[:size])
		}
		rest = rest[size:]
	}
	if _, err := v.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

func hides(r rune) bool {
	return r != '\n' && r != '\t' && event.Unseen(r)
}
