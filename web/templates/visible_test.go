package templates

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestVisibleHTML_escapesWhatIsReadAndKeepsWhatIsSent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`<p title="a b">é 日本</p>`: `<p title="a b">é 日本</p>`,
		"<p>\u202egnp.exe</p>":    `<p>\u202egnp.exe</p>`,
		"<td title=\"a\u202e &gt; b\" data-testid=\"row-\u202e\"><a href=\"/x\" aria-label=\"\u200b\">\x1b[31m</a>": "<td title=\"a\\u202e &gt; b\" data-testid=\"row-\u202e\"><a href=\"/x\" aria-label=\"\\u200b\">\\u001b[31m</a>",
		"<input value=\"a > \u202e\" placeholder=\"\u2066\">\u2069":                                                 "<input value=\"a > \u202e\" placeholder=\"\\u2066\">\\u2069",
		"<textarea name=\"n\">\u202e<\x01</textarea>\x01":                                                           "<textarea name=\"n\">\u202e<\x01</textarea>\\u0001",
		"\u202e <":                      `\u202e <`,
		"<textarea>\u202e":              "<textarea>\\u202e",
		"<b>x\u200cy \U0001F469\u200d…": "<b>x\u200cy \U0001F469\u200d…",
	} {
		if got := VisibleHTML([]byte(in)); string(got) != want {
			t.Errorf("%+q becomes %+q, want %+q", in, got, want)
		}
	}
}

// A character is found wherever it is in a text, and only Unicode's controls, formats, private-use
// characters and line separators are.
func TestVisible_findsEachCharacterAtEachPlace(t *testing.T) {
	t.Parallel()
	const around = "plain text of 24 letters"
	for r := range unicode.MaxRune + 1 {
		want := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) || r == utf8.RuneError || !utf8.ValidRune(r)
		if strings.ContainsRune("\n\t\r\u200c\u200d", r) {
			want = false
		}
		at := int(r) % len(around)
		if text := around[:at] + string(r) + around[at:]; allSeen([]byte(text)) == want {
			t.Errorf("%+q: found: %v, want %v", text, !want, want)
		}
	}
	for b := range 256 {
		for at := range 17 {
			text := []byte(around)
			text[at] = byte(b)
			want := b >= utf8.RuneSelf || b < ' ' && !strings.ContainsRune("\n\t\r", rune(b)) || b == 0x7f
			if allSeen(text) == want {
				t.Errorf("%+q: found: %v, want %v", text, !want, want)
			}
		}
	}
}

func FuzzVisibleHTML(f *testing.F) {
	f.Add([]byte("<p title=\"\u202e\">\x01</p><textarea>\u202e</textarea>"))
	f.Fuzz(func(t *testing.T, page []byte) {
		once := VisibleHTML(bytes.Clone(page))
		if again := VisibleHTML(bytes.Clone(once)); !bytes.Equal(once, again) {
			t.Errorf("%+q becomes %+q, and that %+q", page, once, again)
		}
		if n := bytes.Count(page, []byte("<")); bytes.Count(once, []byte("<")) != n {
			t.Errorf("%+q becomes %+q", page, once)
		}
	})
}
