package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

// Comparison is how live rows differ from a replay's: what a rebuild would change.
type Comparison struct {
	Added   int64 `json:"added"`   // rows missing in live data
	Changed int64 `json:"changed"` // rows with different fields
	Removed int64 `json:"removed"` // rows unexpected in live data
	// FirstSeq is the first divergence: the first event as of which the replay has what the live
	// rows lack. An earlier one may be the cause if later ones changed the same row, as with a counter. If
	// another version built rows, an earlier or a later one may be. It is 0 if no event explains the difference, as with
	// a row that nothing in the journal produces.
	FirstSeq int64 `json:"first_seq"`
	// what built the rows is known of differences only; if it is another version, every row may differ
	campaign.ReplayedWith
	Samples []RowChange `json:"samples" api:"max=20,nullable"` // some of the rows, spread over the tables; the counts are exact; null in a list of results: read the single one
}

// Differs reports whether any row differs.
func (c Comparison) Differs() bool { return c.Added+c.Changed+c.Removed > 0 }

// From says from which event on the rows differ, as far as known: "first divergence at event 5 or
// earlier". It is empty if no event explains the difference. Rows of another version may differ from the
// first event on, so that no event tells anything.
func (c Comparison) From() string {
	switch {
	case c.BuiltByOtherVersion:
		return c.Versions()
	case c.FirstSeq > 0:
		return fmt.Sprintf("first divergence at event %d or earlier", c.FirstSeq)
	}
	return ""
}

// The kinds of row changes.
const (
	RowAdded   = "added"
	RowChanged = "changed"
	RowRemoved = "removed"
)

// RowChange is one row of a read model that would change.
type RowChange struct {
	Table  string        `json:"table"`
	Kind   string        `json:"kind" api:"enum=added changed removed"`
	Key    []Field       `json:"key" api:"nullable"`    // the primary key, without the campaign
	Fields []FieldChange `json:"fields" api:"nullable"` // the fields that differ; for an added or removed row all but the key
}

// Field is a column's name and value as canonical JSON.
type Field struct {
	Name  string          `json:"name" redact:"-"`
	Value json.RawMessage `json:"value"` // any JSON value; nil when that side has none
}

// FieldChange is a column in which two versions of a row differ. It is nil on a side without the
// row or the column.
type FieldChange struct {
	Name     string          `json:"name" redact:"-"`
	Live     json.RawMessage `json:"live"`     // any JSON value; nil when that side has none
	Expected json.RawMessage `json:"expected"` // any JSON value; nil when that side has none
}

// FullDigestOf returns the digest over those of single projections, in load order.
func FullDigestOf(digests []string) string {
	sum := sha256.Sum256([]byte(strings.Join(digests, ":")))
	return DigestPrefix + hex.EncodeToString(sum[:])
}

// DigestPrefix is the prefix of every digest.
const DigestPrefix = "sha256:"

// MaxSamples is the maximum number of rows that a comparison shows.
const MaxSamples = 20
