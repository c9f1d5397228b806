package projection

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Statement is one SQL statement of a projection file, with bindings written as $1…$n. SQL is a
// constant of its Set, so that it can be the key of a prepared-statement cache.
type Statement struct {
	SQL  string
	File string // the file
	Line int    // its first line, from 1

	tokens []token
	args   []value // for $1…$n
	bound  []int   // for each token, the index of what it binds; -1 for one that is no binding
}

// section holds the statements for some event types.
type section struct {
	types      []string // full names, prefix.* or *
	statements []*handlerStatement
}

func (s *section) matches(eventType string) bool {
	for _, t := range s.types {
		if t == eventType || t == "*" {
			return true
		}
		if prefix, wild := strings.CutSuffix(t, "*"); wild && strings.HasPrefix(eventType, prefix) {
			return true
		}
	}
	return false
}

// handlerStatement is a statement that an event runs.
type handlerStatement struct {
	Statement
	projection *Projection
	code       Handler // a Go function instead of SQL
	index      int     // in the set's Statements
	// bounded statements cannot run for long whatever the data, so they need no deadline.
	bounded bool
}

// compile writes the statement's SQL without comments and with $n for bindings, the same $n for the
// same binding.
func (r *parser) compile(tokens []token, only ...string) (Statement, error) {
	st := Statement{File: r.name, Line: tokens[0].line, tokens: tokens, bound: make([]int, len(tokens))}
	for i, t := range tokens {
		st.bound[i] = -1
		if t.kind == punct && r.strayParameter(tokens, i) {
			return st, faultf(t.line, "%s starts a database-specific parameter; name the value instead, such as :campaign_id or :payload.name", t.text)
		}
		if t.kind != binding {
			continue
		}
		v, err := parseBinding(t.text)
		if err != nil {
			return st, faultf(t.line, "%v", err)
		}
		if len(only) > 0 && !slices.Contains(only, v.name) {
			return st, faultf(t.line, "there is no event here that :%s could come from; only :%s is known", v.name, strings.Join(only, ", :"))
		}
		n := slices.IndexFunc(st.args, func(a value) bool { return a.from == v.from && a.path == v.path })
		if n < 0 {
			n = len(st.args)
			st.args = append(st.args, v)
		}
		st.args[n].required = st.args[n].required || v.required
		st.bound[i] = n
	}
	st.SQL = assemble(r.dialect, tokens, st.bound)
	return st, nil
}

// assemble writes a statement without comments, with $n+1 for each token that binds n; see
// Statement.bound.
func assemble(dialect string, tokens []token, bound []int) string {
	return joined(tokens, func(i int) string {
		if n := bound[i]; n >= 0 {
			return "$" + strconv.Itoa(n+1)
		}
		return spell(dialect, tokens, i)
	})
}

// joined joins the texts of tokens, by a blank where anything is between them.
func joined(tokens []token, text func(i int) string) string {
	var all strings.Builder
	for i, t := range tokens {
		if i > 0 && t.start > tokens[i-1].end {
			all.WriteByte(' ')
		}
		all.WriteString(text(i))
	}
	return all.String()
}

// spell writes a token that is no binding in the dialect. Only the byte-order collation differs:
// PostgreSQL's "C" is SQLite's binary.
func spell(dialect string, tokens []token, i int) string {
	if tokens[i].text == `"C"` && next(tokens, i-1).is("collate") {
		return byteOrder[dialect]
	}
	return tokens[i].text
}

// strayParameter finds SQLite's ? and @name, which nothing would bind. Both are operators on
// PostgreSQL, so its own sections may use them.
func (r *parser) strayParameter(tokens []token, i int) bool {
	if r.only == "postgres" {
		return false
	}
	switch tokens[i].text {
	case "?":
		return true
	case "@":
		return i+1 < len(tokens) && tokens[i+1].kind == word && tokens[i+1].start == tokens[i].end
	}
	return false
}

func (r *parser) addHandler(statements [][]token) error {
	s := &section{types: r.types}
	for _, tokens := range statements {
		st, err := r.compile(tokens)
		if err != nil {
			return err
		}
		if err := r.checkHandler(st); err != nil {
			return err
		}
		r.noteCalls(tokens)
		s.statements = append(s.statements, &handlerStatement{Statement: st, projection: r.p, bounded: bounded(tokens)})
	}
	if !r.active {
		return nil
	}
	r.p.sections = append(r.p.sections, s)
	for _, t := range s.types {
		if !slices.Contains(r.p.EventTypes, t) {
			r.p.EventTypes = append(r.p.EventTypes, t)
		}
	}
	return nil
}

// checkHandler checks that a statement changes only the projection's own tables and the event's
// campaign: a projection is cleared and rebuilt campaign by campaign.
func (r *parser) checkHandler(st Statement) error {
	first := st.tokens[0]
	if !first.oneOf("insert", "update", "delete", "replace", "with") {
		return faultf(first.line, "a handler changes rows with insert, update or delete; this statement begins with %s", first.text)
	}
	targets := targets(st.tokens)
	if len(targets) == 0 {
		return faultf(first.line, "this statement changes nothing; a handler inserts, updates or deletes rows")
	}
	for _, t := range targets {
		if !slices.Contains(r.p.Tables, t.name()) {
			return faultf(t.line, "this statement changes table %q, which -- tables does not list; a projection changes its own tables only", t.name())
		}
	}
	if !slices.ContainsFunc(st.args, func(v value) bool { return v.from.name == "campaign_id" }) {
		return faultf(first.line, "this statement does not use :campaign_id, so it would reach rows of other campaigns; a projection is rebuilt campaign by campaign")
	}
	return nil
}

// targets returns the names of the tables that a statement changes, also in a with clause.
func targets(tokens []token) []token {
	var out []token
	for i, t := range tokens {
		var name int
		switch {
		case t.is("into"):
			name = i + 1
		case t.is("delete") && next(tokens, i+1).is("from"):
			name = i + 2
		case t.is("update") && !next(tokens, i-1).is("do") && !next(tokens, i-1).is("for"):
			name = i + 1
			if next(tokens, name).is("or") {
				name += 2
			}
		default:
			continue
		}
		if next(tokens, name).is("only") {
			name++
		}
		if target := next(tokens, name); target.name() != "" {
			// The schema prefix is kept, so that main.x is not mistaken for x.
			for next(tokens, name+1).text == "." {
				name += 2
				target.text += "." + next(tokens, name).text
			}
			out = append(out, target)
		}
	}
	return out
}

// next returns the token at i, or an empty one beyond either end.
func next(tokens []token, i int) token {
	if i < 0 || i >= len(tokens) {
		return token{}
	}
	return tokens[i]
}

// quick are the words that may precede an opening parenthesis in a statement whose running time the
// data cannot extend.
var quick = strings.Fields(`values conflict in and or not when then else case set where is null between
	key coalesce upper lower trim ltrim rtrim length nullif abs round min max substr substring iif ifnull
	greatest least cast sign excluded`)

// bounded reports whether a statement is a plain insert … values, update … where or delete … where:
// it reads rows of one table only and calls no function that could be slow. Every other statement
// runs under the event's deadline.
func bounded(tokens []token) bool {
	target := next(targets(tokens), 0)
	for i, t := range tokens {
		switch {
		case t.kind == punct && t.text == "(":
			before := next(tokens, i-1)
			if before.kind == word && !slices.Contains(quick, strings.ToLower(before.text)) && before.start != target.start {
				return false
			}
			if before.kind == quoted && before.start != target.start {
				return false
			}
		case t.kind != word:
		case t.is("from") && i == 1 && tokens[0].is("delete"):
		case t.oneOf("select", "with", "from", "join", "using", "like", "ilike", "glob", "regexp", "similar", "match"):
			return false
		}
	}
	return true
}

// raise moves a statement up by so many lines.
func (s *Statement) raise(lines int) {
	s.Line -= lines
	for i := range s.tokens {
		s.tokens[i].line -= lines
	}
}

func (s Statement) String() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }
