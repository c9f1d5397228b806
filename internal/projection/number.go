package projection

import (
	"slices"
	"strconv"
	"strings"
)

// keepDigits marks the arguments that keep the digits of a number. PostgreSQL reads each as the type
// of its place. On SQLite a text is greater than every number and a column of numbers rounds it
// otherwise than a float64 is rounded, so that there a value keeps them only where it goes into text:
// into a column of texts, or by a cast. One that also goes elsewhere is two arguments.
func (h *handlerStatement) keepDigits(dialect string, t *table) {
	if dialect == "postgres" {
		for i := range h.args {
			h.args[i].digits = true
		}
		return
	}
	writes, places := h.writes(t), slices.Clone(h.bound)
	counted := make([]bool, len(h.args))
	for i := range h.tokens {
		text := castToText(h.tokens, i) || slices.ContainsFunc(writes, func(w write) bool {
			return w.from <= i && i < w.to && t.isText(w.column) && h.joins(w)
		})
		switch arg := places[i]; {
		case arg < 0 || h.args[arg].path == "":
		case text:
			h.args[arg].digits, places[i] = true, arg+len(h.args)
		default:
			counted[arg] = true
		}
	}
	copies := map[int]int{}
	for arg, numbers := range counted {
		copies[arg+len(counted)] = arg
		if numbers && h.args[arg].digits {
			copies[arg+len(counted)] = len(h.args)
			h.args = append(h.args, h.args[arg])
			h.args[arg].digits = false
		}
	}
	for i, place := range places {
		if copied, is := copies[place]; is {
			places[i] = copied
		}
	}
	h.SQL = assemble(dialect, h.tokens, places)
}

// castToText reports whether token i is all that is cast to text.
func castToText(tokens []token, i int) bool {
	return next(tokens, i-2).is("cast") && next(tokens, i-1).text == "(" && next(tokens, i+1).is("as") && isText(next(tokens, i+2))
}

// joins reports whether an expression passes its values on, or joins them as texts.
func (s Statement) joins(w write) bool {
	for i, t := range s.tokens[w.from:w.to] {
		calls := next(s.tokens, w.from+i+1).text == "(" && !t.oneOf("coalesce", "ifnull", "nullif", "cast")
		if t.kind == punct && !strings.Contains("(),|", t.text) || t.kind == word && (calls || t.oneOf("case", "between")) {
			return false
		}
	}
	return true
}

// boundNumber is a JSON number as an argument. A whole number of 64 bits is an int64 however it is
// written, such as 1e3 or 2.0, so that it reads the same in a text column on every database; a longer
// one written as digits is its text. Any other number is a float64, unless digits are to be kept that
// this does not have: then it is text without an exponent. A number out of a float64's range is not
// known.
func boundNumber(raw string, digits bool) (n any, known bool) {
	written, readable := readDecimal(raw)
	f, err := strconv.ParseFloat(raw, 64)
	if whole, ok := written.int64(); ok {
		return whole, true
	}
	switch {
	case !readable || err != nil || f == 0:
		return nil, false
	case strings.Trim(raw, "-0123456789") == "":
		return raw, true
	case !digits:
		return f, true
	}
	if held, _ := readDecimal(strconv.FormatFloat(f, 'e', -1, 64)); held == written {
		return f, true
	}
	if !strings.ContainsAny(raw, "eE") {
		return raw, true
	}
	return written.text(), true
}

// decimal is digits, without zeros at either end, times a power of ten; 0 has no digits.
type decimal struct {
	minus    bool
	digits   string
	exponent int
}

// readDecimal reads a JSON number; false for an exponent that is no int.
func readDecimal(raw string) (decimal, bool) {
	raw, minus := strings.CutPrefix(raw, "-")
	mantissa, power := raw, "0"
	if i := strings.IndexAny(raw, "eE"); i >= 0 {
		mantissa, power = raw[:i], raw[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	trimmed := strings.TrimRight(all, "0")
	digits := strings.TrimLeft(trimmed, "0")
	if digits == "" {
		return decimal{}, true
	}
	exponent, err := strconv.Atoi(power)
	return decimal{minus, digits, exponent - len(fraction) + len(all) - len(trimmed)}, err == nil
}

// int64 returns a whole number that fits.
func (d decimal) int64() (int64, bool) {
	const most = 19 // digits
	if d.exponent < 0 || d.exponent > most || len(d.digits)+d.exponent > most {
		return 0, false
	}
	n, err := strconv.ParseInt(d.text(), 10, 64)
	return n, err == nil
}

// text writes the number without an exponent.
func (d decimal) text() string {
	sign := ""
	if d.minus {
		sign = "-"
	}
	point := len(d.digits) + d.exponent
	switch {
	case d.digits == "":
		return "0"
	case d.exponent >= 0:
		return sign + d.digits + strings.Repeat("0", d.exponent)
	case point > 0:
		return sign + d.digits[:point] + "." + d.digits[point:]
	}
	return sign + "0." + strings.Repeat("0", -point) + d.digits
}
