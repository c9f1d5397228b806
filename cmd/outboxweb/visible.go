package main

import (
	"bytes"
	"io"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

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
			b.WriteString(outbox.EscapeRune(r))
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
	return r != '\n' && r != '\t' && outbox.Unseen(r)
}
