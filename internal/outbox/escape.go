package outbox

import "fmt"

// EscapeRune writes a character as JSON's escape, or pair of escapes, of it.
func EscapeRune(r rune) string {
	if r > 0xffff {
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
