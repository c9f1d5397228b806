// Package csv writes records as spreadsheets read them, and none that one takes for a formula.
package csv

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Row appends one record in the format of RFC 4180. Cells are texts, kept byte for byte,
// integers, booleans, float64 and times; without a time a cell is empty.
func Row(b []byte, cells ...any) []byte {
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
	case *time.Time:
		if v == nil {
			return b
		}
		return csvCell(b, *v)
	case time.Time:
		if v.IsZero() {
			return b
		}
		return v.UTC().AppendFormat(b, time.RFC3339Nano)
	}
	return csvText(b, fmt.Sprint(cell))
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

// looksLikeFormula reports whether a spreadsheet may evaluate a text as a formula: campaign ids and
// errors come from untrusted sources. The characters are those that OWASP lists, and their
// full-width and small forms, also after spaces and invisible characters, which some programs drop.
func looksLikeFormula(text string) bool {
	if text != "" && strings.ContainsRune("\t\r\n", rune(text[0])) {
		return true
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Cc, unicode.Cf) }))
	return strings.ContainsRune("=+-@＝＋－＠﹦﹢﹣﹫", first)
}
