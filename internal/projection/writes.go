package projection

import (
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
		names, end := s.items(i+1, nil)
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
			exprs, end := s.items(i+2, nil)
			all = append(all, paired(columns, exprs, write{tuple: tuple, free: true})...)
			i = end + 1
			if next(s.tokens, i).text != "," {
				break
			}
		}
	case next(s.tokens, i).is("select"):
		exprs, _ := s.items(i+1, []string{"from", "where", "on", "returning", "union", "group", "order", "limit"})
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
// returns where that is.
func (s Statement) items(i int, stop []string) (all [][2]int, end int) {
	depth, start := 0, i
	for ; i < len(s.tokens); i++ {
		t := s.tokens[i]
		switch {
		case t.kind == punct && t.text == "(":
			depth++
		case t.kind == punct && t.text == ")" && depth > 0:
			depth--
		case depth > 0:
		case t.kind == punct && t.text == ")", t.oneOf(stop...):
			return append(all, [2]int{start, i}), i
		case t.kind == punct && t.text == ",":
			all, start = append(all, [2]int{start, i}), i+1
		}
	}
	return append(all, [2]int{start, i}), i
}

// assigned lists the columns of each set clause.
func (s Statement) assigned() []write {
	var all []write
	for i, t := range s.tokens {
		if !t.is("set") {
			continue
		}
		exprs, _ := s.items(i+1, []string{"where", "from", "returning", "on"})
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

// argument is the index of what a binding token binds; -1 for any other token.
func (h *handlerStatement) argument(t token) int {
	if t.kind != binding {
		return -1
	}
	v, err := parseBinding(t.text)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(h.args, func(a value) bool { return a.from == v.from && a.path == v.path })
}

// within lists the arguments that an expression binds.
func (h *handlerStatement) within(w write) []int {
	var all []int
	for _, t := range h.tokens[w.from:w.to] {
		if n := h.argument(t); n >= 0 {
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
		if arg := h.argument(t); arg >= 0 {
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
