package projection

import (
	"iter"
	"slices"
	"strconv"
)

// write is an expression that a statement writes to a column, or compares it with.
type write struct {
	column   string
	from, to int  // the expression, in the statement's tokens
	tuple    int  // of values (…), (…); from 0
	free     bool // the expression cannot name a column of a table
	compared bool // it is only compared, in a where clause
}

// target is the table that a statement changes, and its place in the tokens; empty if unknown.
func (s Statement) target() (string, int) {
	found := targets(s.tokens)
	if len(found) == 0 {
		return "", 0
	}
	at := slices.IndexFunc(s.tokens, func(t token) bool { return t.start == found[0].start })
	return found[0].name(), at
}

// writes lists what a statement writes to its table, as far as the statement's form says it.
func (s Statement) writes(t *table) []write {
	_, at := s.target()
	var all []write
	if next(s.tokens, at-1).is("into") {
		all = s.inserted(t, at+1)
	}
	return append(append(all, s.assigned()...), s.compared()...)
}

// inserted lists the columns of an insert whose table's name ends before token i.
func (s Statement) inserted(t *table, i int) []write {
	if next(s.tokens, i).is("as") {
		i += 2
	}
	var columns []string
	if next(s.tokens, i).text == "(" {
		names, end := items(s.tokens, i+1)
		for _, n := range names {
			columns = append(columns, next(s.tokens, n[0]).name())
		}
		i = end + 1
	} else {
		for _, c := range t.columns {
			columns = append(columns, c.name)
		}
	}
	var all []write
	switch {
	case next(s.tokens, i).is("values"):
		for tuple := 0; next(s.tokens, i+1).text == "("; tuple++ {
			exprs, end := items(s.tokens, i+2)
			all = append(all, paired(columns, exprs, write{tuple: tuple, free: true})...)
			i = end + 1
			if next(s.tokens, i).text != "," {
				break
			}
		}
	case next(s.tokens, i).is("select"):
		exprs, _ := items(s.tokens, i+1, "from", "where", "on", "returning", "union", "group", "order", "limit")
		all = paired(columns, exprs, write{})
	}
	return all
}

func paired(columns []string, exprs [][2]int, like write) []write {
	var all []write
	for i, e := range exprs[:min(len(exprs), len(columns))] {
		w := like
		w.column, w.from, w.to = columns[i], e[0], e[1]
		all = append(all, w)
	}
	return all
}

// items splits the tokens from i at commas, up to the closing parenthesis or a keyword of stop, and
// returns where that is; the number of tokens if it is not there.
func items(tokens []token, i int, stop ...string) (all [][2]int, end int) {
	start := i
	for n, t := range outside(tokens[i:]) {
		switch at := i + n; {
		case t.kind == punct && t.text == ")", t.oneOf(stop...):
			return append(all, [2]int{start, at}), at
		case t.kind == punct && t.text == ",":
			all, start = append(all, [2]int{start, at}), at+1
		}
	}
	return append(all, [2]int{start, len(tokens)}), len(tokens)
}

// outside visits the tokens that are not in parentheses, and a closing one that none of them opens.
func outside(tokens []token) iter.Seq2[int, token] {
	return func(yield func(int, token) bool) {
		depth := 0
		for i, t := range tokens {
			switch {
			case t.kind == punct && t.text == "(":
				depth++
			case t.kind == punct && t.text == ")" && depth > 0:
				depth--
			default:
				if depth == 0 && !yield(i, t) {
					return
				}
			}
		}
	}
}

// assigned lists the columns of each set clause.
func (s Statement) assigned() []write {
	var all []write
	for i, t := range s.tokens {
		if !t.is("set") {
			continue
		}
		exprs, _ := items(s.tokens, i+1, "where", "from", "returning", "on")
		for _, e := range exprs {
			equals := e[0] + slices.IndexFunc(s.tokens[e[0]:e[1]], func(t token) bool { return t.text == "=" })
			for _, left := range s.tokens[e[0]:max(e[0], equals)] { // one column, or (a, b)
				if left.name() != "" {
					all = append(all, write{column: left.name(), from: equals + 1, to: e[1]})
				}
			}
		}
	}
	return all
}

// compared lists the bindings that a column is compared with: column = :binding.
func (s Statement) compared() []write {
	var all []write
	from := slices.IndexFunc(s.tokens, func(t token) bool { return t.is("where") })
	if from < 0 {
		return nil
	}
	for i := from; i < len(s.tokens); i++ {
		if s.tokens[i].kind == binding && next(s.tokens, i-1).text == "=" && next(s.tokens, i-2).name() != "" {
			all = append(all, write{column: next(s.tokens, i-2).name(), from: i, to: i + 1, compared: true})
		}
	}
	return all
}

// within lists the arguments that an expression binds.
func (h *handlerStatement) within(w write) []int {
	var all []int
	for _, n := range h.bound[w.from:w.to] {
		if n >= 0 {
			all = append(all, n)
		}
	}
	return all
}

// expression is a write's expression in SQL whose bindings begin after $n, with the arguments that
// they bind; false if it may depend on a row.
func (h *handlerStatement) expression(dialect string, w write, n int) (sql string, args []int, ok bool) {
	if !w.free && w.to-w.from != 1 {
		return "", nil, false
	}
	ok = true
	sql = joined(h.tokens[w.from:w.to], func(i int) string {
		t := h.tokens[w.from+i]
		if arg := h.bound[w.from+i]; arg >= 0 {
			at := slices.Index(args, arg)
			if at < 0 {
				at, args = len(args), append(args, arg)
			}
			return "$" + strconv.Itoa(n+at+1)
		}
		ok = ok && (w.free || t.kind == number || t.kind == text)
		return spell(dialect, h.tokens, w.from+i)
	})
	return sql, args, ok
}
