package templates

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// RefusedForm is a submitted form that was refused.
type RefusedForm struct {
	Method  string // http.MethodGet or http.MethodPost
	Path    string // its target
	Values  url.Values
	Problem Problem
	// From is the address of the form's page. Forms on a page that is shown at another address
	// submit it.
	From string
	// Focus is the attribute that marks the element to focus.
	Focus string
}

// FromField is the form field with RefusedForm.From.
const FromField = "form_page"

// refusalID is the id of the element with the reason of a refusal.
const refusalID = "refusal"

// PutInto returns a page with the refusal at its form, and the submitted values in the form's
// fields. If the form is not on the page, or has no fields to fill in, the refusal is placed at the
// top; found is false if the form is not on the page.
func (f RefusedForm) PutInto(ctx context.Context, p Page, page []byte) (again []byte, found bool, err error) {
	doc, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		return nil, false, err
	}
	form := f.find(doc)
	e := f.Problem
	if form == nil {
		e.Typed = f.Values.Get("reason") + f.Values.Get("note")
	}
	said, err := refusalNode(ctx, p, e)
	if err != nil {
		return nil, false, err
	}
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Form && sendsPost(n) {
			n.AppendChild(element(atom.Input, "type", "hidden", "name", FromField, "value", f.From))
		}
	}
	f.place(doc, form, said)
	if form != nil && isFilter(form) {
		f.keepFiltering(form)
	}
	var b bytes.Buffer
	err = html.Render(&b, doc)
	return b.Bytes(), form != nil, err
}

// place puts the refusal at the form, or at the top, and the focus on the field at fault, or on the
// refusal.
func (f RefusedForm) place(doc, form, said *html.Node) {
	at := form
	if form == nil || !f.fill(form) {
		at = first(doc, atom.Main)
	}
	if at == nil {
		return
	}
	focus := said
	if form != nil {
		for n := range form.Ancestors() {
			if n.DataAtom == atom.Details {
				setAttr(n, "open", "")
			}
		}
		if field := f.wrongField(form); field != nil {
			focus = field
		}
	}
	setAttr(focus, f.Focus, "")
	at.InsertBefore(said, at.FirstChild)
}

// find returns the form on a page: it has the same target and method, and its hidden fields name
// the same object. Otherwise it returns the form that previews the action, whose submit button is
// not shown now.
func (f RefusedForm) find(doc *html.Node) (asks *html.Node) {
	for n := range doc.Descendants() {
		switch {
		case n.DataAtom != atom.Form || !f.sameSubject(n):
		case f.sentBy(n):
			return n
		case f.asksFirst(n):
			asks = n
		}
	}
	return asks
}

// isFilter reports whether a form is the filter of a list.
func isFilter(form *html.Node) bool { return attr(form, "role") == "search" }

// keepFiltering removes the list after its filter, which it does not match, shows the fields that were
// filled in, and keeps the submitted values that the filter has no field for, unless they are at fault.
func (f RefusedForm) keepFiltering(form *html.Node) {
	for form.NextSibling != nil {
		form.Parent.RemoveChild(form.NextSibling)
	}
	for n := range form.Descendants() {
		if n.DataAtom == atom.Details && slices.ContainsFunc(slices.Collect(n.Descendants()), func(field *html.Node) bool { return f.Values.Get(attr(field, "name")) != "" }) {
			setAttr(n, "open", "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		_, wrong := f.Problem.Fields[name]
		if wrong || name == "cursor" || hasField(form, name) {
			continue
		}
		for _, value := range f.Values[name] {
			form.AppendChild(element(atom.Input, "type", "hidden", "name", name, "value", value))
		}
	}
}

func hasField(form *html.Node, name string) bool {
	for n := range form.Descendants() {
		if attr(n, "name") == name {
			return true
		}
	}
	return false
}

func (f RefusedForm) asksFirst(form *html.Node) bool {
	page, err := url.Parse(f.From)
	return err == nil && !isFilter(form) && strings.EqualFold(attr(form, "method"), http.MethodGet) && samePath(attr(form, "action"), page.EscapedPath())
}

// sentBy reports whether the form itself, or one of its buttons, has the target of the refused one.
func (f RefusedForm) sentBy(form *html.Node) bool {
	if f.goesTo(attr(form, "method"), attr(form, "action")) {
		return true
	}
	for n := range form.Descendants() {
		if n.DataAtom == atom.Button && attr(n, "formaction") != "" && f.goesTo(attr(n, "formmethod"), attr(n, "formaction")) {
			return true
		}
	}
	return false
}

func (f RefusedForm) goesTo(method, action string) bool {
	u, err := url.Parse(action)
	return err == nil && strings.EqualFold(method, f.Method) && samePath(u.EscapedPath(), f.Path)
}

// samePath compares two escaped paths segment by segment, since browsers escape fewer characters
// than a server does.
func samePath(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	return slices.EqualFunc(as, bs, func(x, y string) bool {
		one, errOne := url.PathUnescape(x)
		other, errOther := url.PathUnescape(y)
		return errOne == nil && errOther == nil && one == other
	})
}

// sameSubject compares the hidden fields, except those about the state of the page when it was
// shown.
func (f RefusedForm) sameSubject(form *html.Node) bool {
	for n := range form.Descendants() {
		name := attr(n, "name")
		if n.DataAtom != atom.Input || attr(n, "type") != "hidden" || name == FromField || name == "idempotency_key" || strings.HasPrefix(name, "expected_") {
			continue
		}
		if !slices.Contains(f.Values[name], attr(n, "value")) {
			return false
		}
	}
	return true
}

// fill puts the submitted values into the fields that a user fills in, and reports whether there
// are any. A password is not sent back.
func (f RefusedForm) fill(form *html.Node) (fields bool) {
	for n := range form.Descendants() {
		name := attr(n, "name")
		if name == "" {
			continue
		}
		sent := f.Values[name]
		switch n.DataAtom {
		case atom.Input:
			switch attr(n, "type") {
			case "hidden", "password", "submit":
				continue
			case "checkbox", "radio":
				toggle(n, "checked", slices.Contains(sent, attr(n, "value")))
			default:
				setAttr(n, "value", strings.Join(sent, " "))
			}
		case atom.Textarea:
			for n.FirstChild != nil {
				n.RemoveChild(n.FirstChild)
			}
			n.AppendChild(&html.Node{Type: html.TextNode, Data: strings.ReplaceAll(strings.Join(sent, "\n"), "\r\n", "\n")})
		case atom.Select:
			for option := range n.Descendants() {
				if option.DataAtom == atom.Option {
					toggle(option, "selected", slices.Contains(sent, attr(option, "value")))
				}
			}
		default:
			continue
		}
		fields = true
	}
	return fields
}

// wrongField links the fields at fault to the refusal, and returns the first.
func (f RefusedForm) wrongField(form *html.Node) (found *html.Node) {
	for n := range form.Descendants() {
		if _, wrong := f.Problem.Fields[attr(n, "name")]; !wrong || attr(n, "type") == "hidden" {
			continue
		}
		setAttr(n, "aria-invalid", "true")
		setAttr(n, "aria-describedby", refusalID)
		if found == nil {
			found = n
		}
	}
	return found
}

func refusalNode(ctx context.Context, p Page, e Problem) (*html.Node, error) {
	var b bytes.Buffer
	if err := Refusal(p, e).Render(ctx, &b); err != nil {
		return nil, err
	}
	nodes, err := html.ParseFragment(bytes.NewReader(VisibleHTML(b.Bytes())), element(atom.Div))
	if err != nil {
		return nil, err
	}
	said := element(atom.Div)
	for _, n := range nodes {
		said.AppendChild(n)
	}
	said = first(said, atom.Div)
	said.Parent.RemoveChild(said)
	return said, nil
}

func sendsPost(form *html.Node) bool {
	if strings.EqualFold(attr(form, "method"), http.MethodPost) {
		return true
	}
	for n := range form.Descendants() {
		if strings.EqualFold(attr(n, "formmethod"), http.MethodPost) {
			return true
		}
	}
	return false
}

// first returns the first element of a kind, or nil.
func first(root *html.Node, kind atom.Atom) *html.Node {
	for n := range root.Descendants() {
		if n.DataAtom == kind {
			return n
		}
	}
	return nil
}

// element returns an element with attributes, given as names and values in turn.
func element(kind atom.Atom, attributes ...string) *html.Node {
	n := &html.Node{Type: html.ElementNode, DataAtom: kind, Data: kind.String()}
	for pair := range slices.Chunk(attributes, 2) {
		setAttr(n, pair[0], pair[1])
	}
	return n
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func setAttr(n *html.Node, name, value string) {
	toggle(n, name, false)
	n.Attr = append(n.Attr, html.Attribute{Key: name, Val: value})
}

// toggle sets or removes a boolean attribute.
func toggle(n *html.Node, name string, on bool) {
	n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if on {
		n.Attr = append(n.Attr, html.Attribute{Key: name})
	}
}
