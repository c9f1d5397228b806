package projection

import (
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// function is one created by a PostgreSQL schema.
type function struct {
	name string
	line int
}

// triggerFunctions are PostgreSQL's built-in functions that a trigger may run: they change only the
// row.
var triggerFunctions = []string{"suppress_redundant_updates_trigger", "tsvector_update_trigger", "tsvector_update_trigger_column"}

// checkTrigger checks that a trigger changes only the projection's tables: its own statements on
// SQLite, and on PostgreSQL those of a function created by the same file.
func (r *parser) checkTrigger(tokens []token) error {
	if begin := slices.IndexFunc(tokens, func(t token) bool { return t.is("begin") }); begin >= 0 {
		return r.checkWrites("trigger", tokens[begin:])
	}
	for i, t := range tokens {
		if !t.is("execute") || !next(tokens, i+1).oneOf("function", "procedure") {
			continue
		}
		name := next(tokens, i+2)
		own := slices.ContainsFunc(r.functions, func(f function) bool { return f.name == name.name() })
		if !own && !slices.Contains(triggerFunctions, name.name()) {
			return faultf(name.line, "this trigger runs function %q, which no schema above it in this file creates; a projection changes its own tables only", name.text)
		}
	}
	return nil
}

// checkFunction checks the same for a function, whose body must be readable for that, and records
// it.
func (r *parser) checkFunction(tokens []token) error {
	at := slices.IndexFunc(tokens, func(t token) bool { return t.is("function") })
	name := next(tokens, at+1)
	if name.name() == "" || next(tokens, at+2).text == "." {
		return faultf(tokens[at].line, "create function needs a plain name, without a schema")
	}
	f := function{name.name(), name.line}
	r.functions = append(r.functions, f)
	if r.active {
		r.p.functions = append(r.p.functions, f)
	}
	for i, t := range tokens {
		language := next(tokens, i+1)
		if t.is("language") && !slices.Contains([]string{"(", ","}, next(tokens, i-1).text) && !slices.Contains([]string{"sql", "plpgsql"}, strings.ToLower(strings.Trim(language.text, `'"`))) {
			return faultf(language.line, "function %q is written in %s; a projection's functions are in sql or plpgsql, so that what they change can be checked", name.text, language.text)
		}
		if !t.is("as") || language.kind != text {
			continue
		}
		body, err := readBody(language)
		if err != nil {
			return err
		}
		if err := r.checkWrites("function", body); err != nil {
			return err
		}
		r.noteCalls(body)
	}
	return r.checkWrites("function", tokens[at:])
}

// readBody splits the body of a function, a string, into tokens with their lines.
func readBody(t token) ([]token, error) {
	body := t.text
	switch {
	case strings.HasPrefix(body, "'"):
		body = strings.ReplaceAll(body[1:len(body)-1], "''", "'")
	case strings.HasPrefix(body, "$"):
		tag := body[:strings.Index(body[1:], "$")+2]
		body = strings.TrimSuffix(strings.TrimPrefix(body, tag), tag)
	default:
		return nil, faultf(t.line, "write the body of this function between $$ and $$, so that what it changes can be checked")
	}
	l := &lexer{src: body, body: true, line: t.line}
	return l.all()
}

// checkWrites checks that nested statements change only rows of the projection's tables.
func (r *parser) checkWrites(kind string, tokens []token) error {
	for i, t := range tokens {
		before := next(tokens, i-1)
		begins := before.kind == punct && before.text == ";" || i == 0 || before.oneOf("begin", "then", "else", "loop")
		switch {
		case begins && t.oneOf("truncate", "drop", "alter", "create", "copy", "grant"):
			return faultf(t.line, "this %s does more than change rows: %s; a projection inserts, updates and deletes rows of its own tables", kind, t.text)
		case kind == "function" && t.is("execute"):
			return faultf(t.line, "this %s executes a statement from a string, so what it changes cannot be checked; write the statement itself", kind)
		}
	}
	for _, t := range targets(withoutVariables(tokens)) {
		if !slices.Contains(r.p.Tables, t.name()) {
			return faultf(t.line, "this %s changes table %q, which %s does not list; a projection changes its own tables only", kind, t.name(), r.tables())
		}
	}
	return nil
}

// withoutVariables removes words that targets would mistake for tables: plpgsql selects into
// variables, and locks rows for no key update.
func withoutVariables(tokens []token) []token {
	var kept []token
	for i, t := range tokens {
		before := next(tokens, i-1)
		conflict := next(tokens, i-2).is("or") && next(tokens, i-3).is("insert")
		switch {
		case t.is("into") && !before.oneOf("insert", "replace", "merge") && !conflict:
		case t.is("update") && before.is("key"):
		default:
			kept = append(kept, t)
		}
	}
	return kept
}

// noteCalls records which functions a statement may call.
func (r *parser) noteCalls(tokens []token) {
	for i, t := range tokens {
		if r.active && t.name() != "" && next(tokens, i+1).text == "(" {
			r.p.calls = append(r.p.calls, function{t.name(), t.line})
		}
	}
}

// checkFunctions checks that neither of two projections creates or calls a function of the other.
func (p *Projection) checkFunctions(other *Projection) error {
	for _, f := range p.functions {
		for _, o := range other.functions {
			if f.name == o.name {
				return event.Setup("%s:%d: function %q also belongs to projection %q (%s:%d); a function belongs to one projection", p.file, f.line, f.name, other.Name, other.file, o.line)
			}
		}
	}
	for _, one := range []struct{ caller, owner *Projection }{{p, other}, {other, p}} {
		for _, call := range one.caller.calls {
			if slices.ContainsFunc(one.owner.functions, func(f function) bool { return f.name == call.name }) {
				return event.Setup("%s:%d: function %q belongs to projection %q (%s), whose tables it may change; a projection calls its own functions only", one.caller.file, call.line, call.name, one.owner.Name, one.owner.file)
			}
		}
	}
	return nil
}
