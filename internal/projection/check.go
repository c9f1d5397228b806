package projection

import (
	"context"
	"regexp"
	"strings"

	"outboxweb/internal/outbox"
)

// Check loads projections from sources as Load does, for both dialects, then
// creates their tables in an in-memory SQLite database and prepares every
// statement and digest there. It returns the set for SQLite. Errors are
// *outbox.Refusal with outbox.ErrSetup, and begin with FILE:LINE where they
// are about a file. No other database is needed.
func Check(ctx context.Context, sources ...string) (*Set, error) {
	if _, err := Load("postgres", sources...); err != nil {
		return nil, err
	}
	s, err := Load("sqlite", sources...)
	if err != nil {
		return nil, err
	}
	c, err := s.NewScratch(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	err = CheckPrepared(ctx, s, func(query string) error {
		stmt, err := c.conn.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		return stmt.Close()
	})
	if err != nil {
		return nil, err
	}
	return s, c.checkDigests(ctx)
}

// checkDigests runs each digest over empty tables, which finds columns that
// are not there.
func (c *Scratch) checkDigests(ctx context.Context) error {
	for _, p := range c.set.projections {
		if _, err := p.digest(ctx, c.conn, ""); err != nil {
			return outbox.Setup("%v", err)
		}
	}
	return nil
}

// CheckPrepared prepares every statement and digest of the set on the
// database that prepare speaks to, where the schema must be in place. The
// first error is an *outbox.Refusal with outbox.ErrSetup that begins with
// FILE:LINE.
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
			return st.refuse(err)
		}
	}
	return nil
}

var (
	// sqliteNoise is what the SQLite driver wraps around SQLite's sentence.
	sqliteNoise = regexp.MustCompile(`^(?:SQL logic error|constraint failed): (.*) \(\d+\)$`)
	// culprit is the word a database complains about.
	culprit = regexp.MustCompile(`(?:near|no such \w+:|has no column named|ambiguous column name:|column|relation|function:?) "?([A-Za-z_][A-Za-z0-9_]*)`)
)

// plain is a database's complaint on one line, without what the driver wraps
// around it.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if m := sqliteNoise.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return text
}

// refuse turns a database's complaint about the statement into a sentence
// with the file and, where the word it complains about stands once in the
// statement, that word's line.
func (s Statement) refuse(err error) error {
	text := plain(err)
	line := s.Line
	if m := culprit.FindStringSubmatch(text); m != nil {
		found := 0
		for _, t := range s.tokens {
			if strings.EqualFold(t.text, m[1]) {
				line = t.line
				found++
			}
		}
		if found != 1 {
			line = s.Line
		}
	}
	return outbox.Setup("%s:%d: %s", s.File, line, text)
}
