package projection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Check loads projections from sources as Load does, for both dialects, then creates their tables
// in an in-memory SQLite database and prepares every statement and digest there. It returns the set
// for SQLite. Errors are *event.Refusal with event.ErrSetup, and begin with FILE:LINE if they are
// about a file. No other database is needed.
func Check(ctx context.Context, sources ...string) (*Set, error) {
	s, err := Load("postgres", sources...)
	if err != nil {
		return nil, err
	}
	return s.checked(ctx)
}

func (s *Set) checked(ctx context.Context) (*Set, error) {
	s, err := build("sqlite", s.files)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file::memory:?_pragma=foreign_keys(1)")
	if err != nil {
		return nil, fmt.Errorf("open a database in memory: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would open a database of its own
	for _, st := range s.schema() {
		if _, err := db.ExecContext(ctx, st.SQL); err != nil {
			return nil, st.Refuse(err)
		}
	}
	err = CheckPrepared(ctx, s, func(query string) error {
		stmt, err := db.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		return stmt.Close()
	})
	if err != nil {
		return nil, err
	}
	for _, p := range s.projections { // over empty tables, which detects unknown columns
		if _, err := p.digest(ctx, db, ""); err != nil {
			return nil, event.Setup("%v", err)
		}
	}
	return s, nil
}

func (s *Set) schema() []Statement {
	var all []Statement
	for _, p := range s.projections {
		all = append(all, p.SchemaStatements...)
	}
	return all
}

// CheckPrepared prepares every statement and digest of the set with prepare, on a database that
// already has the schema. The first error is an *event.Refusal with event.ErrSetup that begins
// with FILE:LINE, or event.ErrBusy.
func CheckPrepared(ctx context.Context, s *Set, prepare func(query string) error) error {
	statements := s.Queries()
	for _, p := range s.projections {
		for _, d := range p.digests {
			statements = append(statements, d.Statement)
		}
	}
	for _, st := range statements {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := prepare(st.SQL); err != nil {
			return st.Refuse(err)
		}
	}
	return nil
}

var (
	// sqliteNoise and postgresNoise match what the drivers add to the database's message.
	sqliteNoise   = regexp.MustCompile(`^(?:SQL logic error|constraint failed): (.*) \(\d+\)$`)
	postgresNoise = regexp.MustCompile(`(^|: )\p{Lu}+: (.*) \(SQLSTATE [0-9A-Z]{5}\)$`)
	// cause matches the word that a database complains about.
	atFault = regexp.MustCompile(`(?:(?:near|no such \w+:|has no column named|ambiguous column name:|column(?: reference)?|relation|entry for table|collation|function:?) "?|type (?:[\w ]+: )?")(?:\w+\.)*([A-Za-z_]\w*)`)
	// parameter matches a binding as sent to the database.
	parameter = regexp.MustCompile(`\$\d+`)
	// untyped matches the error about a parameter whose type is undetermined or ambiguous.
	untyped = regexp.MustCompile(`(?:data type of|types deduced for) parameter (:\S+)`)
)

// plain returns a database's error message on one line, without the driver's additions.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if m := sqliteNoise.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return postgresNoise.ReplaceAllString(text, "$1$2")
}

// Refuse turns a database error about the statement into an *event.Refusal with event.ErrSetup
// that begins with FILE:LINE; the line is that of the offending word if it occurs exactly once in
// the statement. An error of a busy database is returned unchanged, since it is not about the
// statement.
func (s Statement) Refuse(err error) error {
	if errors.Is(err, event.ErrBusy) {
		return err
	}
	blamed := ""
	text := parameter.ReplaceAllStringFunc(plain(err), func(numbered string) string {
		n, _ := strconv.Atoi(numbered[1:])
		if n < 1 || n > len(s.args) {
			return numbered
		}
		blamed = ":" + s.args[n-1].name
		return blamed
	})
	if m := atFault.FindStringSubmatch(text); m != nil {
		blamed = m[1]
	}
	if m := untyped.FindStringSubmatch(text); m != nil {
		text += "; say which with cast(" + m[1] + " as text), or as bigint"
	}
	return event.Setup("%s:%d: %s", s.File, s.lineOf(blamed), text)
}

// lineOf returns the line of a word or binding that occurs exactly once in the statement, or else
// the statement's first line.
func (s Statement) lineOf(blamed string) int {
	line, found := s.Line, 0
	for _, t := range s.tokens {
		if strings.EqualFold(strings.Trim(t.text, "'\"`!"), blamed) {
			line = t.line
			found++
		}
	}
	if found != 1 {
		return s.Line
	}
	return line
}
