package docs

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Document is a text with a title and its sections.
type Document struct {
	Name     string // of its file, without .md
	Title    string
	Lead     []Block // before the first section
	Sections []Section
}

// Section is a heading with what follows it, up to the next one.
type Section struct {
	Name   string
	Anchor string // unique in the document; the one that GitHub gives it
	Step   bool   // a heading below that of a section
	Blocks []Block
}

// Block is code, or what else stands between two empty lines.
type Block struct {
	Code string
	For  []string // the words after the language of Code
	HTML string   // where it is no code; its links to pages of the program begin with Base
	Text string   // what it says, without marks
}

// Base stands in links for the path below which the program serves its pages.
const Base = "$base"

// Anchor is the anchor of a heading, as GitHub makes it.
func Anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// ours are the tables as the pages of the program have them.
var ours = strings.NewReplacer("<table>", `<table class="plain">`, "<th>", `<th scope="col">`)

func parse(name string, source []byte) (Document, error) {
	doc := Document{Name: name}
	into := &doc.Lead
	root := markdown.Parser().Parse(text.NewReader(source))
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			heading := textOf(n, source)
			if n.Level == 1 {
				doc.Title = heading
				continue
			}
			doc.Sections = append(doc.Sections, Section{Name: heading, Anchor: Anchor(heading), Step: n.Level > 2})
			into = &doc.Sections[len(doc.Sections)-1].Blocks
		case *ast.FencedCodeBlock:
			code := string(n.Lines().Value(source))
			words := strings.Fields(string(n.Info.Value(source)))
			*into = append(*into, Block{Code: code, For: words[1:], Text: code})
		case *ast.HTMLBlock: // a comment
		default:
			if err := lead(name, n, source); err != nil {
				return Document{}, err
			}
			var html bytes.Buffer
			if err := markdown.Renderer().Render(&html, source, n); err != nil {
				return Document{}, fmt.Errorf("render: %w", err)
			}
			*into = append(*into, Block{HTML: ours.Replace(html.String()), Text: textOf(n, source)})
		}
	}
	return doc, nil
}

// lead makes the links of a block lead to pages of the program: to documents, and in the runbook to
// the pages whose address it names as code. A file that is no document is named only, since the program
// does not serve it.
func lead(name string, block ast.Node, source []byte) error {
	var links []*ast.Link
	var pages []*ast.CodeSpan
	err := ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				links = append(links, n)
			}
		case *ast.CodeSpan:
			if at := textOf(n, source); entering && name == Operating && strings.HasPrefix(at, "/") && !strings.Contains(at, "$") {
				pages = append(pages, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, link := range links {
		to := string(link.Destination)
		document, anchor, isDocument := strings.Cut(to, ".md")
		switch {
		case strings.HasPrefix(to, "https://"):
			link.SetAttributeString("rel", []byte("noopener"))
		case isDocument:
			link.Destination = []byte(Base + "/docs/" + document + anchor)
		case strings.HasPrefix(to, "#"):
			link.Destination = []byte(Base + "/docs/" + name + to)
		default:
			for link.FirstChild() != nil {
				link.Parent().InsertBefore(link.Parent(), link, link.FirstChild())
			}
			link.Parent().RemoveChild(link.Parent(), link)
		}
	}
	for _, page := range pages {
		link := ast.NewLink()
		link.Destination = []byte(Base + textOf(page, source))
		page.Parent().ReplaceChild(page.Parent(), page, link)
		link.AppendChild(link, page)
	}
	return err
}

// textOf is what a node says, without its marks.
func textOf(node ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // this function returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Value(source))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.ListItem, *table.TableCell:
			if b.Len() > 0 {
				b.WriteString(" · ")
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
