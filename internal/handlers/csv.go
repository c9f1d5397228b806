package handlers

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// csvRow appends one record to a file as RFC 4180 describes it. Cells are
// strings, whose every byte is kept, integers, booleans, float64 and time.Time;
// the zero time is an empty cell.
func csvRow(b []byte, cells ...any) []byte {
	for i, cell := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = csvCell(b, cell)
	}
	return append(b, '\r', '\n')
}

func csvCell(b []byte, cell any) []byte {
	switch v := cell.(type) {
	case string:
		return csvText(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	case float64:
		return strconv.AppendFloat(b, v, 'f', -1, 64)
	case time.Time:
		if v.IsZero() {
			return b
		}
		return v.UTC().AppendFormat(b, time.RFC3339Nano)
	}
	panic("a cell of no known type") // a mistake in this package
}

func csvText(b []byte, text string) []byte {
	if looksLikeFormula(text) {
		text = "'" + text
	}
	if !strings.ContainsAny(text, "\",\r\n") && strings.TrimSpace(text) == text {
		return append(b, text...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(text, `"`, `""`)...)
	return append(b, '"')
}

// looksLikeFormula reports whether a spreadsheet may take a text for something
// to calculate: campaign ids and errors come from anybody. The signs are those
// that OWASP lists, and their wide and small forms, also behind spaces and what
// cannot be seen, which some programs drop.
func looksLikeFormula(text string) bool {
	if text != "" && strings.ContainsRune("\t\r\n", rune(text[0])) {
		return true
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Cc, unicode.Cf) }))
	return strings.ContainsRune("=+-@＝＋－＠﹦﹢﹣﹫", first)
}
