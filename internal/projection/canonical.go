package projection

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rowEncoder writes rows in canonical JSON: an object with its keys in byte order and no blanks;
// integers in decimal, other numbers as strings with their shortest decimal form (databases and
// languages print floats differently), booleans as 1 and 0, blobs as strings of hex digits, NULL as
// null. A PostgreSQL decimal, which sums of integers are too, is written as the integer or the
// number that SQLite has instead.
type rowEncoder struct {
	*scanner
	fields []encodedField // in key order
}

type encodedField struct {
	key    []byte // "name":
	column int
	json   bool
}

// scanner reads rows whose columns may be of any type.
type scanner struct {
	rows    *sql.Rows
	values  []any // of the current row
	into    []any // pointers to them
	decimal []bool
}

func newScanner(rows *sql.Rows) (*scanner, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	s := &scanner{rows: rows, values: make([]any, len(types)), into: make([]any, len(types)), decimal: make([]bool, len(types))}
	for i, t := range types {
		s.into[i], s.decimal[i] = &s.values[i], t.DatabaseTypeName() == "NUMERIC"
	}
	return s, nil
}

func (s *scanner) scan() error { return s.rows.Scan(s.into...) }

// appendCell appends column i of the current row to b.
func (s *scanner) appendCell(b []byte, i int) []byte {
	if text, ok := s.values[i].(string); ok && s.decimal[i] {
		return appendDecimal(b, text)
	}
	return appendValue(b, s.values[i])
}

func newRowEncoder(rows *sql.Rows, jsonColumns []string) (*rowEncoder, error) {
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for _, name := range jsonColumns {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("the digest has no column %q to read as JSON; it has %s", name, strings.Join(names, ", "))
		}
	}
	s, err := newScanner(rows)
	if err != nil {
		return nil, err
	}
	enc := &rowEncoder{scanner: s}
	for i, name := range names {
		enc.fields = append(enc.fields, encodedField{append(appendString(nil, name), ':'), i, slices.Contains(jsonColumns, name)})
	}
	slices.SortFunc(enc.fields, func(a, b encodedField) int { return strings.Compare(names[a.column], names[b.column]) })
	for i := 1; i < len(enc.fields); i++ {
		if name := names[enc.fields[i].column]; name == names[enc.fields[i-1].column] {
			return nil, fmt.Errorf("the digest has two columns named %q", name)
		}
	}
	return enc, nil
}

func (enc *rowEncoder) append(b []byte) ([]byte, error) {
	if err := enc.scan(); err != nil {
		return b, err
	}
	b = append(b, '{')
	for i, f := range enc.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.key...)
		if f.json {
			var err error
			if b, err = appendJSONColumn(b, enc.values[f.column]); err != nil {
				return b, fmt.Errorf("column %s %w", bytes.TrimSuffix(f.key, []byte(":")), err)
			}
			continue
		}
		b = enc.appendCell(b, f.column)
	}
	return append(b, '}'), nil
}

// appendDecimal appends a decimal without trailing zeros in its fraction.
func appendDecimal(b []byte, s string) []byte {
	if _, err := strconv.ParseFloat(s, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return appendString(b, s)
	}
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	if strings.Trim(s, "-0123456789") == "" {
		return append(b, s...)
	}
	return appendString(b, s)
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendString(b, strconv.FormatFloat(v, 'f', -1, 64))
	case bool:
		if v {
			return append(b, '1')
		}
		return append(b, '0')
	case string:
		return appendString(b, v)
	case []byte:
		return appendString(b, hex.EncodeToString(v))
	case time.Time:
		return appendString(b, v.UTC().Format(time.RFC3339Nano))
	default:
		return appendString(b, fmt.Sprint(v))
	}
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string, escaping only what must be escaped, as in RFC 8785.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= 0x20:
			b = append(b, c)
		default:
			if j := strings.IndexByte("\b\t\n\f\r", c); j >= 0 {
				b = append(b, '\\', "btnfr"[j])
			} else {
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
		}
	}
	return append(b, '"')
}

// appendJSONColumn parses JSON text and writes it canonically.
func appendJSONColumn(b []byte, v any) ([]byte, error) {
	var raw []byte
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		raw = []byte(v)
	case []byte:
		raw = v
	default:
		return b, fmt.Errorf("holds %T, not JSON text", v)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return b, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return b, fmt.Errorf("is not JSON: there is text behind it")
	}
	return appendTree(b, tree), nil
}

func appendTree(b []byte, tree any) []byte {
	switch t := tree.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, k := range slices.Sorted(maps.Keys(t)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, k), ':')
			b = appendTree(b, t[k])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range t {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendTree(b, item)
		}
		return append(b, ']')
	case bool:
		return strconv.AppendBool(b, t)
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return appendValue(b, n)
		}
		f, err := t.Float64()
		if err != nil || strings.Trim(t.String(), "-0123456789") == "" {
			return append(b, t...) // a number beyond float64, or an integer beyond int64
		}
		return appendValue(b, f)
	default:
		return appendValue(b, t)
	}
}
