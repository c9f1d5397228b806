package ui

import (
	"bytes"
	"context"
	"encoding/binary"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
)

// readAttributes matches the attributes of a tag that a user reads. Their values are in double
// quotes, and contain none.
var readAttributes = regexp.MustCompile(`( (?:title|aria-label|placeholder|alt)=")([^"]+)`)

// VisibleHTML is Visible for the parts of a rendered page that a user reads: texts, titles and
// labels. Values that are sent back, addresses, and the contents of a textarea stay unchanged.
func VisibleHTML(page []byte) []byte {
	if allSeen(page) {
		return page
	}
	var b bytes.Buffer
	for rest := page; len(rest) > 0; {
		start := bytes.IndexByte(rest, '<')
		if start < 0 {
			start = len(rest)
		}
		b.Write(visible(rest[:start]))
		rest = rest[start:]
		end := tagEnd(rest)
		tag := rest[:end]
		if !allSeen(tag) {
			tag = readAttributes.ReplaceAllFunc(tag, visible)
		}
		b.Write(tag)
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

// Visible replaces invisible characters, and those that change how the text around them is read, by
// JSON escapes: controls, direction marks, and the like. Within a JSON string the meaning is the
// same.
func Visible(s string) string {
	if allSeen([]byte(s)) {
		return s
	}
	return string(visible([]byte(s)))
}

func visible(text []byte) []byte {
	if allSeen(text) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if unseen(r) {
			b.WriteString(event.EscapeRune(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// allSeen reports whether a text has no unseen character. Every byte of every page passes here, so
// it tests printable ASCII eight bytes at a time.
func allSeen(text []byte) bool {
	for len(text) > 0 {
		if len(text) >= 8 && printable(binary.LittleEndian.Uint64(text)) {
			text = text[8:]
			continue
		}
		r, size := rune(text[0]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text)
		}
		if unseen(r) {
			return false
		}
		text = text[size:]
	}
	return true
}

// printable reports whether each of eight bytes lies between a space and a tilde. A byte below what
// is subtracted from it sets its high bit; a borrow only reaches bytes above one that has failed
// already.
func printable(eight uint64) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	deleted := eight ^ 0x7f*each // 0 where a byte is DEL
	return (eight|(eight-' '*each)|(deleted-each)&^deleted)&high == 0
}

// unseen reports whether a character must be escaped to be seen. The two joiners stay: whole
// scripts and emoji need them. So do the line ends and tabs between the values of a document.
func unseen(r rune) bool {
	switch {
	case r == '\n', r == '\t', r == '\r', event.Joiner(r):
		return false
	}
	return r == utf8.RuneError || event.Unseen(r)
}

// tagEnd returns the end of the tag that a text begins with.
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

// turned splits a sentence around a right-to-left name, so that the name can be isolated: numbers
// and signs that follow it would otherwise be reordered.
func turned(sentence, name string) (before, after string, found bool) {
	if !strings.ContainsFunc(name, rightToLeft) {
		return sentence, "", false
	}
	return strings.Cut(sentence, name)
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan, unicode.Mandaic, unicode.Adlam, unicode.Hanifi_Rohingya)
}

// ShortID is an id without its middle if it is long, for titles.
func ShortID(id string) string {
	head, middle, tail := idParts(id)
	if middle == "" {
		return id
	}
	return head + "…" + tail
}

// idParts are the beginning, middle and end of an id; short ones have no middle.
func idParts(id string) (head, middle, tail string) {
	runes := []rune(id)
	if len(runes) <= shortFrom {
		return id, "", ""
	}
	return string(runes[:10]), string(runes[10 : len(runes)-7]), string(runes[len(runes)-7:])
}

// shortFrom is the length from which an id is shown without its middle.
const shortFrom = 24

func IsHidden(value string) bool { return value == string(event.HiddenJSON) }

type hidesPayloads struct{}

// WithHiddenPayloads is the context of pages of a server that hides payloads and row values, whatever
// they are.
func WithHiddenPayloads(ctx context.Context) context.Context {
	return context.WithValue(ctx, hidesPayloads{}, true)
}
