package ui

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestVisible_escapesWhatCannotBeSeenAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é 日本 \U0001F600": "plain é 日本 \U0001F600", "a\u202eb": `a\u202eb`, "\u2066x\u2069": `\u2066x\u2069`, "\u061c\u200e\u200f": `\u061c\u200e\u200f`,
		"\x7f\u0085": `\u007f\u0085`, "\u2028\ufeff\u200b": `\u2028\ufeff\u200b`, "\U000E0041": `\udb40\udc41`, "\xff": `\ufffd`, "\x1b[31m": `\u001b[31m`,
		"\u0646\u0645\u06cc\u200c\u062e": "\u0646\u0645\u06cc\u200c\u062e", "a\nb\tc": "a\nb\tc",
	} {
		must.Equal(t, Visible(in), want, in, "is shown as")
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		stored := must.Get(json.Marshal(s)).Or(t)
		shown := Visible(string(stored))
		var back string
		err := json.Unmarshal([]byte(shown), &back)
		must.Need(t, err == nil && (back == strings.ToValidUTF8(s, "\ufffd") || strings.Contains(s, "\xff")), "%+q is shown as %+q, which means %+q, %v", s, shown, back, err)
		i := strings.IndexFunc(shown, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) })
		must.Need(t, i < 0, "%+q holds a character that turns the text", shown)
	})
}

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
		must.Equal(t, string(VisibleHTML([]byte(in))), want, "becomes")
	}
}

func FuzzVisibleHTML(f *testing.F) {
	f.Add([]byte("<p title=\"\u202e\">\x01</p><textarea>\u202e</textarea>"))
	f.Fuzz(func(t *testing.T, page []byte) {
		once := VisibleHTML(bytes.Clone(page))
		again := VisibleHTML(bytes.Clone(once))
		must.Hold(t, bytes.Equal(once, again), "%+q becomes %+q, and that %+q", page, once, again)
		must.Equal(t, bytes.Count(once, []byte("<")), bytes.Count(page, []byte("<")), page, "becomes")
	})
}

// A character is found wherever it is in a text, and only Unicode's controls, formats, private-use characters and line separators are.
func TestVisible_findsEachCharacterAtEachPlace(t *testing.T) {
	t.Parallel()
	const around = "plain text of 24 letters"
	for r := range unicode.MaxRune + 1 {
		want := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) || r == utf8.RuneError || !utf8.ValidRune(r)
		if strings.ContainsRune("\n\t\r\u200c\u200d", r) {
			want = false
		}
		at := int(r) % len(around)
		text := around[:at] + string(r) + around[at:]
		must.Hold(t, allSeen([]byte(text)) != want, "%+q: found: %v, want %v", text, !want, want)
	}
	for b := range 256 {
		for at := range 17 {
			text := []byte(around)
			text[at] = byte(b)
			want := b >= utf8.RuneSelf || b < ' ' && !strings.ContainsRune("\n\t\r", rune(b)) || b == 0x7f
			must.Hold(t, allSeen(text) != want, "%+q: found: %v, want %v", text, !want, want)
		}
	}
}
