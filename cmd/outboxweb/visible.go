package main

import (
	"bytes"
	"io"
	"unicode"

	"outboxweb/internal/outbox"
)

// visible writes JSON with what a terminal would obey, or would not show as it
// stands, as the escapes that mean the same: JSON itself asks for those below the
// space only. Each Write must be of whole characters.
type visible struct{ w io.Writer }

func (v visible) Write(text []byte) (int, error) {
	if bytes.IndexFunc(text, hides) < 0 {
		return v.w.Write(text)
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if hides(r) {
			b.WriteString(outbox.EscapeRune(r))
		} else {
			b.WriteRune(r)
		}
	}
	if _, err := v.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

func hides(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
