package ui

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
)

// Column is one column of a list of T, wherever the list is shown: on its page if it has a Head, in
// its file if it has a Name, in the table of a command if it has a Print. Text is what a file and a
// command have of an item, and so has a page without a Cell.
type Column[T any] struct {
	Head  string // the heading on the page
	Name  string // the field of the file
	Print string // the heading in a command's table
	Most  int    // characters of the text that a command prints; 0 means all
	// Lead is what a command prints before a text that is not empty; nil for nothing.
	Lead func(*T) string
	// Text is the value: a text, number, boolean or time, or a pointer to a time, nil for never.
	Text func(*T) any

	Class string // of the page's cells, and "n" also of the heading
	Row   bool   // it names the row
	Code  bool   // the text is code
	Free  bool   // the text is a person's or another program's, and may run from right to left
	Order Order
	None  string                          // what a page says in place of an empty text
	To    func(*Page, *T) URL             // where a page links the text to; empty: nowhere
	Look  func(*Page, *T) Look            // of the text as a badge
	Sub   func(*T) string                 // what a page says below the text
	Cell  func(*Page, *T) templ.Component // what a page shows in place of all these
	Tip   func(*T) string                 // the cell's title
	Top   templ.Component                 // what a page shows in place of Head
}

// Order is how the heading of a column sorts its list: not without To. Sorted is "ascending" or
// "descending" if the list is sorted by it, and Head is what the heading then says, if not the column's.
type Order struct {
	Head   string
	To     URL
	Sorted string
}

func (o Order) glyph() string {
	switch o.Sorted {
	case "ascending":
		return "▲"
	case "descending":
		return "▼"
	}
	return "⇅"
}

// Printed are the columns of a command's table.
func Printed[T any](all []Column[T]) []Column[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c Column[T]) bool { return c.Print == "" })
}

// Filed are the columns of the file.
func Filed[T any](all []Column[T]) []Column[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c Column[T]) bool { return c.Name == "" })
}

func onPage[T any](all []Column[T]) []Column[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c Column[T]) bool { return c.Head == "" && c.Top == nil })
}

// Without are the columns that do not have one of the headings.
func Without[T any](all []Column[T], heads ...string) []Column[T] {
	return slices.DeleteFunc(slices.Clone(all), func(c Column[T]) bool { return slices.Contains(heads, c.Head) })
}

// head are the attributes of the heading: its class is that of numbers, or of a control.
func (c Column[T]) head() templ.OrderedAttributes {
	class := ""
	if c.Class == "n" || c.Top != nil {
		class = c.Class
	}
	if c.Order.To != "" || c.Top != nil {
		class += " ctl"
	}
	return Marks("scope", "col", "class", class, "aria-sort", c.Order.Sorted)
}

// tags are what begins and ends the item's cell, unless the column has a Tip.
func (c Column[T]) tags() (begin, end string) {
	if c.Row {
		return tag("th", Marks("scope", "row", "class", c.Class)), "</th>"
	}
	return tag("td", Marks("data-label", c.Head, "class", c.Class)), "</td>"
}

func tag(name string, attributes templ.OrderedAttributes) string {
	var b strings.Builder
	b.WriteString("<" + name)
	_ = templ.RenderAttributes(context.Background(), &b, attributes) // a Builder takes everything
	b.WriteString(">")
	return b.String()
}

// lines are the rows of items; what is the same in each is composed once. A row has the attributes that
// attributes, unless it is nil, finds for its item.
func lines[T any](p *Page, columns []Column[T], items []T, attributes func(*T) templ.OrderedAttributes) templ.Component {
	begins, ends := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		begins[i], ends[i] = c.tags()
	}
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		to := output{w: w}
		for i := range items {
			item := &items[i]
			to.write("<tr")
			if attributes != nil {
				to.check(templ.RenderAttributes(ctx, w, attributes(item)))
			}
			to.write(">")
			for j := range columns {
				c := &columns[j]
				to.write(c.begin(begins[j], item))
				if c.Cell != nil {
					to.check(c.Cell(p, item).Render(ctx, w))
				} else {
					c.write(ctx, &to, p, item)
				}
				to.write(ends[j])
			}
			to.write("</tr>")
		}
		return to.err
	})
}

// output writes until the first error.
type output struct {
	w   io.Writer
	err error
}

func (o *output) write(s string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, s)
	}
}

func (o *output) check(err error) { o.err = cmp.Or(o.err, err) }

// begin is what begins an item's cell: that of its column, with the title.
func (c *Column[T]) begin(tag string, item *T) string {
	if c.Tip == nil {
		return tag
	}
	return strings.TrimSuffix(tag, ">") + ` title="` + templ.EscapeString(c.Tip(item)) + `">`
}

// write writes what a cell shows without a Cell of its column. Most show a text and nothing else, for
// which a component would cost more than the text.
func (c *Column[T]) write(ctx context.Context, to *output, p *Page, item *T) {
	switch v := c.Text(item).(type) {
	case time.Time:
		to.check(When(v, p.Now).Render(ctx, to.w))
	case *time.Time:
		to.check(When(OrZero(v), p.Now).Render(ctx, to.w))
	default:
		c.writeText(ctx, to, p, item, plain(v))
	}
	if c.Sub == nil {
		return
	}
	to.write(" ")
	if sub := c.Sub(item); sub != "" {
		to.write(`<span class="sub">` + templ.EscapeString(sub) + "</span>")
	}
}

func (c *Column[T]) writeText(ctx context.Context, to *output, p *Page, item *T, text string) {
	switch {
	case text == "" && c.None != "":
		to.write(`<span class="muted">` + templ.EscapeString(c.None) + "</span>")
		return
	case c.Look != nil:
		to.check(Badge(c.Look(p, item), text).Render(ctx, to.w))
		return
	}
	text = templ.EscapeString(text)
	if c.Free {
		text = "<bdi>" + text + "</bdi>"
	}
	if c.Code {
		text = "<code>" + text + "</code>"
	}
	if c.To != nil {
		if url := c.To(p, item); url != "" {
			text = `<a href="` + templ.EscapeString(string(url)) + `">` + text + "</a>"
		}
	}
	to.write(text)
}

// Anchor are the attributes of a row that links and tests find by a name.
func Anchor(name string) templ.OrderedAttributes { return Marks("id", name, "data-testid", name) }

// IDShown is how many characters of an id a command prints in a table: more than a UUID has.
const IDShown = 40

// OrZero is what a pointer points at, or nothing.
func OrZero[T any](v *T) (zero T) {
	if v == nil {
		return zero
	}
	return *v
}

// plain is the value of a column as a page shows it.
func plain(v any) string {
	switch v := reflect.ValueOf(v); v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Int, reflect.Int64:
		return Num(v.Int())
	}
	return fmt.Sprint(v)
}

// Marks are the attributes that have a value, from pairs of name and value.
func Marks(pairs ...string) templ.OrderedAttributes {
	all := make(templ.OrderedAttributes, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, templ.KV[string, any](pairs[i], pairs[i+1]))
		}
	}
	return all
}
