package timetravel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// longCell is the size in bytes from which a value is stored apart from its row.
const longCell = 512

// cell is a value of a row and what set it.
type cell struct {
	value json.RawMessage // nil for a long one
	long  int64           // id of a long value; 0 otherwise
	sum   string          // of a long value
	seq   int64           // of the event that set it; 0 if that is not kept
	step  int             // index of the statement
}

func (c *cell) holds(value json.RawMessage) bool {
	if c.long == 0 {
		return bytes.Equal(c.value, value)
	}
	return len(value) > longCell && c.sum == sumOf(value)
}

// cut reports whether a text is that of the cell's value, truncated for display with its digest.
func (c *cell) cut(text json.RawMessage) bool {
	return c.long > 0 && bytes.Contains(text, []byte("sha256 "+c.sum))
}

func (c *cell) same(o *cell) bool {
	return c.sum == o.sum && bytes.Equal(c.value, o.value)
}

func sumOf(value json.RawMessage) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// A row's cells are stored as JSON: [[value, seq, step], …], with [[id, sum], seq, step] for a long
// value. Values themselves are never arrays.

func encodeCells(cells []cell) []byte {
	b := []byte{'['}
	for i := range cells {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		if c := &cells[i]; c.long > 0 {
			b = fmt.Appendf(b, `[%d,%q]`, c.long, c.sum)
		} else {
			b = append(b, c.value...)
		}
		b = append(b, ',')
		b = strconv.AppendInt(b, cells[i].seq, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(cells[i].step), 10)
		b = append(b, ']')
	}
	return append(b, ']')
}

func decodeCells(text []byte) ([]cell, error) {
	var stored [][3]json.RawMessage
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("read a kept row: %w", err)
	}
	cells := make([]cell, len(stored))
	for i, s := range stored {
		c := &cells[i]
		c.value = s[0]
		if s[0][0] == '[' {
			c.value = nil
			if err := json.Unmarshal(s[0], &[]any{&c.long, &c.sum}); err != nil {
				return nil, fmt.Errorf("read a kept row: %w", err)
			}
		}
		var err error
		if c.seq, err = strconv.ParseInt(string(s[1]), 10, 64); err != nil {
			return nil, err
		}
		if c.step, err = strconv.Atoi(string(s[2])); err != nil {
			return nil, err
		}
	}
	return cells, nil
}
