package projection

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Queryer reads the projections: *sql.DB, *sql.Conn and *sql.Tx implement it.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// digest is one query whose rows a projection's digest covers.
type digest struct {
	Statement
	name string   // empty for an only digest
	json []string // columns that hold JSON text
	// ordered rows are read in an order that is the same on every database. Others are sorted by
	// their canonical form.
	ordered bool
}

func (r *parser) addDigest(statements [][]token) error {
	if len(statements) > 1 {
		return faultf(statements[1][0].line, "a digest is one select; this is a second statement")
	}
	tokens := statements[0]
	st, err := r.compile(tokens, "campaign_id")
	switch {
	case err != nil:
		return err
	case !tokens[0].is("select") && !tokens[0].is("with"):
		return faultf(tokens[0].line, "a digest is a select; this statement begins with %s", tokens[0].text)
	case len(targets(tokens)) > 0:
		return faultf(tokens[0].line, "a digest only reads; this statement changes table %q", targets(tokens)[0].name())
	case len(st.args) == 0:
		return faultf(tokens[0].line, "this digest does not use :campaign_id; a digest covers the rows of one campaign")
	case !r.active:
		return nil
	}
	for _, d := range r.p.digests {
		if d.name == r.digest.name {
			return faultf(r.section.line, "this digest has the same name as the one in line %d; give each its own name, as in -- digest NAME: select …", d.Line)
		}
		if d.name == "" || r.digest.name == "" {
			return faultf(r.section.line, "of several digests each needs a name, as in -- digest NAME: select …")
		}
	}
	r.digest.Statement = st
	r.digest.ordered = orders(tokens)
	r.p.digests = append(r.p.digests, r.digest)
	return nil
}

// orders reports whether a select has a top-level order by, not only one inside parentheses.
func orders(tokens []token) bool {
	for i, t := range outside(tokens) {
		if t.is("order") && next(tokens, i+1).is("by") {
			return true
		}
	}
	return false
}

// finishDigests makes the default digest, every column of every table in key order, if the file
// defines none.
func (r *parser) finishDigests() {
	if r.p.covers = len(r.p.digests) == 0; r.p.covers {
		for _, t := range r.created {
			r.p.digests = append(r.p.digests, &digest{
				Statement: Statement{SQL: t.selectAll(r.dialect), File: r.name, Line: t.line},
				name:      t.name, ordered: true,
			})
		}
	}
	slices.SortFunc(r.p.digests, func(a, b *digest) int { return cmp.Compare(a.name, b.name) })
}

// byteOrder is the collation that orders text by its bytes.
var byteOrder = map[string]string{"sqlite": "binary", "postgres": `"C"`}

// selectAll reads the rows of one campaign by primary key, or by all columns without one, in byte
// order and NULL first on both databases.
func (t *table) selectAll(dialect string) string {
	nulls := ""
	if len(t.key) == 0 && dialect == "postgres" {
		nulls = " nulls first"
	}
	collation, columns := map[string]string{}, make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = quoteName(c.name)
		if c.text {
			collation[c.name] = " collate " + byteOrder[dialect]
		}
	}
	var order []string
	for _, name := range t.keyColumns() {
		order = append(order, quoteName(name)+collation[name]+nulls)
	}
	return fmt.Sprintf("select %s from %s where %s = $1 order by %s",
		strings.Join(columns, ", "), quoteName(t.name), quoteName("campaign_id"), strings.Join(order, ", "))
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Digests computes the digest of each projection's rows for one campaign, as "sha256:" and hex
// digits, by projection name; and the full one, over the single ones joined by colons in load
// order. With only, it reads just the named projections, and full covers them. An unknown name is
// event.ErrNotFound.
//
// All digests should be read from one snapshot: pass a transaction if there may be concurrent
// writes.
func (s *Set) Digests(ctx context.Context, q Queryer, campaignID string, only ...string) (digests map[string]string, full string, err error) {
	for _, name := range only {
		if s.Named(name) == nil {
			return nil, "", event.NotFound("there is no projection %q", name)
		}
	}
	digests = make(map[string]string)
	var joined []string
	for _, p := range s.projections {
		if len(only) > 0 && !slices.Contains(only, p.Name) {
			continue
		}
		sum, err := p.digest(ctx, q, campaignID)
		if err != nil {
			return nil, "", fmt.Errorf("digest of projection %q for campaign %q: %w", p.Name, campaignID, err)
		}
		digests[p.Name] = sum
		joined = append(joined, sum)
	}
	return digests, FullDigestOf(joined), nil
}

// CoversAll reports whether the projection's digest covers every column of its tables, as it does
// unless its file defines a digest. Otherwise rows may differ although the digests are equal.
func (s *Set) CoversAll(name string) bool {
	p := s.Named(name)
	return p != nil && p.covers
}

func (p *Projection) digest(ctx context.Context, q Queryer, campaignID string) (string, error) {
	h := sha256.New()
	named := p.digests[0].name != ""
	separator := byte('{')
	for _, d := range p.digests {
		if named {
			h.Write(append(appendString([]byte{separator}, d.name), ':'))
			separator = ','
		}
		if err := d.write(ctx, q, campaignID, h); err != nil {
			return "", fmt.Errorf("%s: %w", d.Statement, err)
		}
	}
	if named {
		h.Write([]byte("}"))
	}
	return DigestPrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// write adds the digest's rows as a JSON array.
func (d *digest) write(ctx context.Context, q Queryer, campaignID string, h hash.Hash) error {
	rows, err := q.QueryContext(ctx, d.SQL, campaignID)
	if err != nil {
		return err
	}
	defer rows.Close()
	enc, err := newRowEncoder(rows, d.json)
	if err != nil {
		return err
	}
	var unordered [][]byte
	row := []byte("[")
	for rows.Next() {
		if row, err = enc.append(row); err != nil {
			return err
		}
		if d.ordered {
			h.Write(row)
			row = append(row[:0], ',')
			continue
		}
		unordered = append(unordered, bytes.Clone(row[1:]))
		row = row[:1]
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if row[0] == '[' {
		h.Write(row[:1]) // no row has followed it yet
	}
	slices.SortFunc(unordered, bytes.Compare)
	h.Write(bytes.Join(unordered, []byte(",")))
	h.Write([]byte("]"))
	return nil
}
