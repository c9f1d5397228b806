package templates

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
)

// readAttributes are the attributes of a tag that a person reads. Their values
// stand in double quotes, and have none within.
var readAttributes = regexp.MustCompile(`( (?:title|aria-label|placeholder|alt)=")([^"]+)`)

// VisibleHTML is Visible for what a person reads in a page that a template has
// written: texts, titles and labels. What is sent back, or leads somewhere, stays
// as it is: values, addresses, and what stands in a textarea.
func VisibleHTML(page []byte) []byte {
	if bytes.IndexFunc(page, unseen) < 0 {
		return page
	}
	var b bytes.Buffer
	for rest := page; len(rest) > 0; {
		start := bytes.IndexByte(rest, '<')
		if start < 0 {
			start = len(rest)
		}
		b.WriteString(Visible(string(rest[:start])))
		rest = rest[start:]
		end := tagEnd(rest)
		b.Write(readAttributes.ReplaceAllFunc(rest[:end], func(attribute []byte) []byte { return []byte(Visible(string(attribute))) }))
		raw := bytes.HasPrefix(rest, []byte("<textarea"))
		rest = rest[end:]
		if raw {
			end = max(0, bytes.Index(rest, []byte("</textarea")))
			b.Write(rest[:end])
			rest = rest[end:]
		}
	}
	return b.Bytes()
}

// tagEnd is where the tag ends with which a text begins.
func tagEnd(text []byte) int {
	quoted := false
	for i, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '>' && !quoted:
			return i + 1
		}
	}
	return len(text)
}

// turned cuts a name out of a sentence when it is written from right to left, so
// that it can be kept apart: numbers and signs that follow it would be drawn in.
func turned(sentence, name string) (before, after string, found bool) {
	if !strings.ContainsFunc(name, rightToLeft) {
		return sentence, "", false
	}
	return strings.Cut(sentence, name)
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan, unicode.Mandaic, unicode.Adlam, unicode.Hanifi_Rohingya)
}
