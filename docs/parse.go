package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// Document is a text with a title, its sections and their steps: headings of
// the first, second and third level.
type Document struct {
	Name     string // of its file, without .md
	Title    string
	Lead     []Block // before the first section
	Sections []Section

	links []string // to other documents, as NAME or NAME#ANCHOR
}

// Section is a heading with what follows it.
type Section struct {
	Name   string
	Anchor string    // unique in the document; the one that GitHub gives it
	Lead   []Block   // before the first subsection
	Steps  []Section // empty in a subsection
}

// Block is a paragraph, a list, a table or code: one of them is not empty.
type Block struct {
	Paragraph []Span
	List      [][]Span   // its items
	Table     [][][]Span // rows of cells; the first is the head
	Code      string
	For       []string // the words after the language of Code
}

// Span is a piece of a paragraph. Where it leads somewhere, neither Code nor Bold
// is set.
type Span struct {
	Text string
	Code bool
	Bold bool
	In   string // the document it leads to; empty for the one it stands in
	To   string // the anchor it leads to; empty for the beginning of In
	URL  string // the address on the web that it leads to
}

// Anchor is the anchor of a heading, as GitHub makes it.
func Anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Parse reads the part of Markdown that our documents keep to: headings of
// three levels, paragraphs, lists of one level, tables, fenced code, comments on
// a line of their own, and within text `code`, **bold** and links to headings,
// to documents.md beside it, to other files beside it, and to https addresses. It
// refuses what it does not know, naming the line, so that nothing is shown as it
// is not meant.
func Parse(text string) (Document, error) {
	p := parser{lines: strings.Split(text, "\n"), anchors: map[string]bool{}}
	for p.at < len(p.lines) {
		if err := p.next(); err != nil {
			return Document{}, fmt.Errorf("line %d: %w", p.at+1, err)
		}
	}
	if p.doc.Title == "" {
		return Document{}, fmt.Errorf("there is no title")
	}
	for _, to := range p.links {
		if !p.anchors[to] {
			return Document{}, fmt.Errorf("a link leads to #%s, which is no heading", to)
		}
	}
	p.doc.links = p.others
	return p.doc, nil
}

type parser struct {
	lines   []string
	at      int // the line to read next
	doc     Document
	anchors map[string]bool
	links   []string // anchors of this document
	others  []string // other documents, see Document.links
}

func (p *parser) next() error {
	line := p.lines[p.at]
	switch {
	case line == "":
		p.at++
		return nil
	case strings.HasPrefix(line, "#"):
		return p.heading(line)
	case strings.HasPrefix(line, "```"):
		return p.code(line)
	case strings.HasPrefix(line, "|"):
		return p.table()
	case strings.HasPrefix(line, "- "):
		return p.list()
	case strings.HasPrefix(line, "<!-- ") && strings.HasSuffix(line, " -->"):
		p.at++
		return nil
	default:
		return p.paragraph()
	}
}

func (p *parser) heading(line string) error {
	marks, name, _ := strings.Cut(line, " ")
	s := Section{Name: name, Anchor: Anchor(name)}
	switch {
	case name == "" || strings.ContainsAny(name, "`*[<"):
		return fmt.Errorf("%q is no heading of plain words", line)
	case marks == "#" && p.doc.Title == "" && p.at == 0:
		p.doc.Title = name
	case marks == "##":
		p.doc.Sections = append(p.doc.Sections, s)
	case marks == "###" && len(p.doc.Sections) > 0:
		last := p.section()
		last.Steps = append(last.Steps, s)
	default:
		return fmt.Errorf("the heading %q does not belong here", line)
	}
	if p.anchors[s.Anchor] {
		return fmt.Errorf("there is another heading %q", name)
	}
	p.anchors[s.Anchor] = true
	p.at++
	return nil
}

func (p *parser) section() *Section { return &p.doc.Sections[len(p.doc.Sections)-1] }

// add puts a block where it belongs: under the last heading.
func (p *parser) add(b Block) {
	into := &p.doc.Lead
	if len(p.doc.Sections) > 0 {
		section := p.section()
		into = &section.Lead
		if n := len(section.Steps); n > 0 {
			into = &section.Steps[n-1].Lead
		}
	}
	*into = append(*into, b)
}

func (p *parser) code(fence string) error {
	words := strings.Fields(strings.TrimPrefix(fence, "```"))
	if len(words) == 0 {
		return fmt.Errorf("code of no language")
	}
	for end := p.at + 1; end < len(p.lines); end++ {
		if p.lines[end] == "```" {
			p.add(Block{Code: strings.Join(p.lines[p.at+1:end], "\n") + "\n", For: words[1:]})
			p.at = end + 1
			return nil
		}
	}
	return fmt.Errorf("the code does not end")
}

func (p *parser) table() error {
	var b Block
	for ; p.at < len(p.lines) && strings.HasPrefix(p.lines[p.at], "|"); p.at++ {
		line := strings.TrimPrefix(p.lines[p.at], "|")
		inner, closed := strings.CutSuffix(line, "|")
		if !closed {
			return fmt.Errorf("the row does not end with |")
		}
		cells := strings.Split(strings.ReplaceAll(inner, `\|`, pipe), "|")
		if len(b.Table) > 0 && len(cells) != len(b.Table[0]) {
			return fmt.Errorf("the row has %d cells, and the first has %d", len(cells), len(b.Table[0]))
		}
		if strings.Trim(inner, "-|") == "" {
			continue
		}
		row := make([][]Span, len(cells))
		for i, cell := range cells {
			var err error
			if row[i], err = p.spans(strings.TrimSpace(strings.ReplaceAll(cell, pipe, "|"))); err != nil {
				return err
			}
		}
		b.Table = append(b.Table, row)
	}
	p.add(b)
	return nil
}

// pipe stands for a pipe that parts no cells, while a row is read.
const pipe = "\x00"

// list reads items of one line each.
func (p *parser) list() error {
	var b Block
	for ; p.at < len(p.lines); p.at++ {
		item, ok := strings.CutPrefix(p.lines[p.at], "- ")
		if !ok {
			break
		}
		spans, err := p.spans(item)
		if err != nil {
			return err
		}
		b.List = append(b.List, spans)
	}
	if p.at < len(p.lines) && unknown.MatchString(p.lines[p.at]) {
		return fmt.Errorf("%q continues an item; write each item on one line", p.lines[p.at])
	}
	p.add(b)
	return nil
}

// unknown is how lines begin that mean something in Markdown which is none of
// ours.
var unknown = regexp.MustCompile(`^(\s|[-*+>=~]|\d+[.)] |<|!|\[[^\]]*\]:)`)

func (p *parser) paragraph() error {
	from := p.at
	for ; p.at < len(p.lines); p.at++ {
		line := p.lines[p.at]
		if line == "" || strings.HasPrefix(line, "```") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") {
			break
		}
		if unknown.MatchString(line) && !strings.HasPrefix(line, "**") {
			return fmt.Errorf("%q begins like no paragraph", line)
		}
	}
	spans, err := p.spans(strings.Join(p.lines[from:p.at], " "))
	if err != nil {
		return fmt.Errorf("in the paragraph before: %w", err)
	}
	p.add(Block{Paragraph: spans})
	return nil
}

var (
	span  = regexp.MustCompile("`([^`]+)`|\\*\\*([^*`\\[]+)\\*\\*|\\[([^\\]`*]+)\\]\\(([^() ]+)\\)")
	local = regexp.MustCompile(`^(?:([a-z]+)\.md)?(?:#([a-z0-9_-]+))?$`)
	file  = regexp.MustCompile(`^[a-z]+\.(?:service|socket)$`)
	stray = regexp.MustCompile("[`\\[\\]<>\\\\]|\\*.*\\*|&[a-z#]|__|!\\(|https?:")
)

// spans tells the pieces of a text apart.
func (p *parser) spans(text string) ([]Span, error) {
	var all []Span
	plain := func(t string) error {
		if found := stray.FindString(t); found != "" {
			return fmt.Errorf("%q in %q is not understood", found, t)
		}
		if t != "" {
			all = append(all, Span{Text: t})
		}
		return nil
	}
	at := 0
	for _, m := range span.FindAllStringSubmatchIndex(text, -1) {
		if err := plain(text[at:m[0]]); err != nil {
			return nil, err
		}
		at = m[1]
		switch {
		case m[2] >= 0:
			all = append(all, Span{Text: text[m[2]:m[3]], Code: true})
		case m[4] >= 0:
			all = append(all, Span{Text: text[m[4]:m[5]], Bold: true})
		default:
			link, err := p.link(text[m[6]:m[7]], text[m[8]:m[9]])
			if err != nil {
				return nil, err
			}
			all = append(all, link)
		}
	}
	return all, plain(text[at:])
}

// link is a span that leads somewhere. A file that is no document is named only,
// since the program does not serve it.
func (p *parser) link(text, to string) (Span, error) {
	if strings.HasPrefix(to, "https://") {
		return Span{Text: text, URL: to}, nil
	}
	if file.MatchString(to) {
		return Span{Text: text, Code: true}, nil
	}
	m := local.FindStringSubmatch(to)
	if m == nil || to == "" {
		return Span{}, fmt.Errorf("the link to %q is not understood", to)
	}
	switch {
	case m[1] == "":
		p.links = append(p.links, m[2])
	case m[2] == "":
		p.others = append(p.others, m[1])
	default:
		p.others = append(p.others, m[1]+"#"+m[2])
	}
	return Span{Text: text, In: m[1], To: m[2]}, nil
}
