package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// What a projection does when the last attempt at an event fails.
const (
	Block      = "block"      // the row is dead and the campaign waits
	Quarantine = "quarantine" // the projection is quarantined for the campaign, the others go on
)

// file is one projection file as read from a source.
type file struct {
	name    string // its path, builtin:SET/FILE or go:NAME
	content string
	code    *Code // the handlers, of one written in Go
	above   int   // lines of the content above its own first line
}

// source identifies where the file is from: its path, or builtin:SET.
func (f file) source() string {
	if strings.HasPrefix(f.name, builtinPrefix) {
		return filepath.Dir(f.name)
	}
	if f.code != nil {
		return campaign.SourceGo
	}
	return f.name
}

// parser reads one file for one dialect.
type parser struct {
	dialect string
	name    string
	src     string
	code    bool // its handlers are written in Go
	p       *Projection

	headers map[string]int // line of each header found
	section token          // the current section; its line is 0 before the first one
	only    string         // the dialect that the section is for; empty for both
	active  bool           // the section is for this dialect
	types   []string
	digest  *digest

	created   []*table
	functions []function // created by schemas, including those for the other dialect
}

var (
	namePattern      = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	tablePattern     = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	eventTypePattern = regexp.MustCompile(`^(\*|[^ *]+(\.\*)?)$`)
	typeItem         = regexp.MustCompile(`^("(?:[^"]|"")*"|[^\s,@"][^\s,@]*)?[ \t]*`)
	afterTypes       = regexp.MustCompile(`^(?:(@)[ \t]*([^\s]*))?[ \t]*(--.*)?$`)
	reservedTable    = regexp.MustCompile(`^(projection_|sqlite_|pg_|goose_)|^failures$`)
	digestPattern    = regexp.MustCompile(`^--\s*digest(?:\s+([a-z][a-z0-9_-]*))?\s*(?:\(\s*json:\s*([^)]*)\))?\s*(?:@([A-Za-z]+))?\s*:$`)
)

// parse parses a projection file. Errors are *event.Refusal with ErrSetup and begin with
// FILE:LINE.
func parse(dialect string, f file) (*Projection, error) {
	sum := sha256.Sum256([]byte(f.content))
	r := &parser{dialect: dialect, name: f.name, code: f.code != nil, headers: map[string]int{}, src: strings.TrimPrefix(f.content, "\uFEFF"), p: &Projection{
		Version: hex.EncodeToString(sum[:]), OnFailure: Block, Source: f.source(), file: f.name,
	}}
	err := r.read()
	if at, ok := errors.AsType[*lineError](err); ok {
		place := fmt.Sprintf("%s:%d", f.name, at.line)
		if f.code != nil {
			place = fmt.Sprintf("projection %q, line %d of Schema", f.code.Name, max(at.line-f.above, 1))
		}
		return nil, event.Setup("%s: %s", place, at.detail)
	}
	if err != nil || f.code == nil {
		return r.p, err
	}
	for i := range r.p.SchemaStatements {
		r.p.SchemaStatements[i].raise(f.above)
	}
	return r.p, f.code.attach(r.p)
}

// tables is what lists the projection's tables.
func (r *parser) tables() string {
	if r.code {
		return "Tables"
	}
	return "-- tables"
}

func (r *parser) read() error {
	for i, line := range strings.Split(r.src, "\n") {
		if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
			return faultf(i+1, "the file is not UTF-8 text")
		}
	}
	tokens, err := (&lexer{src: r.src, line: 1}).all()
	if err != nil {
		return err
	}
	for len(tokens) > 0 {
		n := 1
		for n < len(tokens) && tokens[n].kind != directive {
			n++
		}
		if tokens[0].kind != directive {
			return faultf(tokens[0].line, "this statement stands before the first section; write -- schema or -- on: TYPE above it")
		}
		if err := r.directive(tokens[0]); err != nil {
			return err
		}
		if err := r.body(tokens[1:n]); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return r.finish()
}

// directive parses a header or the line that opens a section.
func (r *parser) directive(t token) error {
	head, rest, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(t.text, "--")), ":")
	key, _, _ := strings.Cut(head, " ")
	key = strings.TrimSpace(key)
	list := strings.TrimSpace(rest)
	rest, _, _ = strings.Cut(rest, "--")
	rest = strings.TrimSpace(rest)
	header := map[string]func(int, string) error{"projection": r.setName, "tables": r.setTables, "on-failure": r.setOnFailure, "max-attempts": r.setMaxAttempts, "graph": r.setGraph}
	switch set := header[key]; {
	case set != nil:
		return r.header(t, head, key, set, rest)
	case r.headers["projection"] == 0:
		return faultf(t.line, "a projection file begins with -- projection: NAME")
	}
	switch key {
	case "schema":
		m := schemaLine.FindStringSubmatch(t.text)
		if m == nil {
			return faultf(t.line, "a schema section begins with -- schema alone on its line, or with @sqlite or @postgres behind it")
		}
		return r.open(t, m[1])
	case "on":
		if r.code {
			return faultf(t.line, "the handlers of a projection written in Go are Go functions; this is a section of a file")
		}
		return r.openHandler(t, list)
	case "digest":
		return r.openDigest(t)
	}
	if r.section.line == 0 {
		return faultf(t.line, "unknown header %q; a projection has projection, tables, on-failure, max-attempts and graph, then sections (an ordinary comment must not begin with a word and a colon)", key)
	}
	return faultf(t.line, "unknown section %q; the sections are schema, on and digest (an ordinary comment must not begin with a word and a colon)", key)
}

// header parses one header. head is the text before its colon, and name its first word.
func (r *parser) header(t token, head, name string, set func(int, string) error, rest string) error {
	switch before := r.headers[name]; {
	case before != 0:
		return faultf(t.line, "-- %s is given twice, here and in line %d", head, before)
	case r.section.line != 0:
		return faultf(t.line, "-- %s belongs above the first section, which is in line %d", head, r.section.line)
	case rest == "":
		return faultf(t.line, "-- %s: is empty", head)
	}
	r.headers[name] = t.line
	return set(t.line, rest)
}

func (r *parser) setName(line int, name string) error {
	if !namePattern.MatchString(name) {
		return faultf(line, "%q cannot name a projection; use lower-case letters, digits, _ and -, beginning with a letter", name)
	}
	r.p.Name = name
	return nil
}

func (r *parser) setTables(line int, list string) error {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !tablePattern.MatchString(name):
			return faultf(line, "%q cannot name a table; use lower-case letters, digits and _, separated by commas", name)
		case reservedTable.MatchString(name):
			return faultf(line, "the table name %q is reserved; choose another", name)
		case slices.Contains(r.p.Tables, name):
			return faultf(line, "table %q is listed twice", name)
		}
		r.p.Tables = append(r.p.Tables, name)
	}
	return nil
}

func (r *parser) setOnFailure(line int, policy string) error {
	if policy != Block && policy != Quarantine {
		return faultf(line, "on-failure is block or quarantine, not %q", policy)
	}
	r.p.OnFailure = policy
	return nil
}

// mostAttempts bounds max-attempts: with the default waits it is about three days.
const mostAttempts = 1000

func (r *parser) setMaxAttempts(line int, most string) error {
	n, err := strconv.Atoi(most)
	if err != nil || n < 1 || n > mostAttempts {
		return faultf(line, "max-attempts is a whole number from 1 to %d, not %q", mostAttempts, most)
	}
	r.p.MaxAttempts = n
	return nil
}

// open starts a section. dialect is empty, or @ and a dialect's name.
func (r *parser) open(t token, dialect string) error {
	if r.headers["tables"] == 0 {
		return faultf(t.line, "-- tables: is missing above the first section; it lists every table the projection owns")
	}
	name := strings.TrimPrefix(dialect, "@")
	if dialect != "" && !slices.Contains(dialects, name) {
		return faultf(t.line, "unknown dialect %q; a section is for @sqlite or @postgres, or for both without a suffix", dialect)
	}
	r.section, r.types, r.digest = t, nil, nil
	r.only, r.active = name, name == "" || name == r.dialect
	return nil
}

// openHandler starts a section of event types, separated by commas. A type is quoted, as a name is in
// SQL, if it has a comma, a colon, an @, a quote, a blank or two hyphens.
func (r *parser) openHandler(t token, list string) error {
	var types []string
	for more := true; more; {
		item := typeItem.FindStringSubmatch(list)
		name, quoted := item[1], strings.HasPrefix(item[1], `"`)
		if quoted {
			name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
		switch {
		case name == "":
			return faultf(t.line, "-- on: needs event types, separated by commas")
		case !quoted && (strings.Contains(name, ":") || strings.Contains(name, "--")), !eventTypePattern.MatchString(name):
			return faultf(t.line, "%q is not an event type; write a full type, * for all types, or prefix.* for all types with that prefix, and in double quotes one with a comma, a colon, an @ or two hyphens", name)
		case slices.Contains(types, name):
			return faultf(t.line, "event type %q is listed twice in this section", name)
		}
		types = append(types, name)
		list, more = strings.CutPrefix(list[len(item[0]):], ",")
		list = strings.TrimLeft(list, " \t")
	}
	end := afterTypes.FindStringSubmatch(list)
	if end == nil {
		return faultf(t.line, "event types are separated by commas, and %q follows without one; no type has a space in it", list)
	}
	if err := r.open(t, end[1]+end[2]); err != nil {
		return err
	}
	r.types = types
	return nil
}

func (r *parser) openDigest(t token) error {
	m := digestPattern.FindStringSubmatch(t.text)
	if m == nil {
		return faultf(t.line, "a digest is written as -- digest: select …, -- digest NAME: select … or -- digest NAME (json: COLUMN): select …")
	}
	dialect := m[3]
	if dialect != "" {
		dialect = "@" + dialect
	}
	if err := r.open(t, dialect); err != nil {
		return err
	}
	r.digest = &digest{name: m[1]}
	for column := range strings.SplitSeq(m[2], ",") {
		if column = strings.TrimSpace(column); column != "" {
			r.digest.json = append(r.digest.json, column)
		}
	}
	return nil
}

// body parses the statements between two directives.
func (r *parser) body(tokens []token) error {
	if r.section.line == 0 {
		if len(tokens) > 0 {
			return faultf(tokens[0].line, "this statement stands before the first section; write -- schema or -- on: TYPE above it")
		}
		return nil
	}
	if err := r.refuseRollback(tokens); err != nil {
		return err
	}
	statements := split(tokens)
	if len(statements) == 0 {
		return faultf(r.section.line, "this section has no statement")
	}
	if r.digest != nil {
		return r.addDigest(statements)
	}
	if r.types == nil {
		return r.addSchema(statements)
	}
	return r.addHandler(statements)
}

// refuseRollback refuses SQLite's ways of rolling back the whole transaction, with which an event
// would undo those of other campaigns. The error quotes the file.
func (r *parser) refuseRollback(tokens []token) error {
	for i, t := range tokens {
		if i < 2 || !t.is("rollback") {
			continue
		}
		before, first := tokens[i-1], tokens[i-2]
		for _, way := range []struct{ text, instead string }{
			{"insert or", "insert or abort"}, {"update or", "update or abort"}, {"on conflict", "on conflict abort"}, {"raise (", "raise(abort, …)"},
		} {
			if strings.EqualFold(first.text+" "+before.text, way.text) {
				written := strings.Join(strings.Fields(r.src[first.start:t.end]), " ")
				return faultf(t.line, "%q would undo the events of other campaigns too; write %s", written, way.instead)
			}
		}
	}
	return nil
}

// split splits tokens into statements at semicolons. A trigger's body, between begin and end,
// belongs to its statement.
func split(tokens []token) [][]token {
	var out [][]token
	start, depth := 0, 0
	for i, t := range tokens {
		if t.kind == punct && t.text == ";" && depth == 0 {
			if i > start {
				out = append(out, tokens[start:i])
			}
			start = i + 1
			continue
		}
		if start < i && createsTrigger(tokens[start:i]) {
			switch {
			case t.is("begin"), t.is("case"):
				depth++
			case t.is("end"):
				depth = max(0, depth-1)
			}
		}
	}
	if start < len(tokens) {
		out = append(out, tokens[start:])
	}
	return out
}

func createsTrigger(statement []token) bool {
	for _, t := range statement[:min(len(statement), 5)] {
		if t.is("trigger") {
			return statement[0].is("create")
		}
	}
	return false
}

// finish checks what requires the whole file.
func (r *parser) finish() error {
	switch {
	case r.headers["projection"] == 0:
		return faultf(1, "a projection file begins with -- projection: NAME")
	case r.headers["tables"] == 0:
		return faultf(r.headers["projection"], "-- tables: is missing; it lists every table projection %q owns", r.p.Name)
	case len(r.p.sections) == 0 && !r.code:
		return faultf(r.headers["projection"], "projection %q handles no event type on %s; write a section -- on: TYPE", r.p.Name, r.dialect)
	}
	for _, name := range r.p.Tables {
		if r.table(name) == nil {
			return faultf(r.headers["tables"], "table %q is listed in %s but the schema does not create it on %s", name, r.tables(), r.dialect)
		}
	}
	r.p.tables = r.created
	for _, h := range r.p.handlers() {
		name, _ := h.target()
		h.keepDigits(r.dialect, r.p.table(name))
	}
	r.finishDigests()
	return r.finishGraph()
}

func (r *parser) table(name string) *table {
	return find(r.created, func(t *table) bool { return t.name == name })
}
