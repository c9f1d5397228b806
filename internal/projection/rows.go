package projection

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// Rows are the rows of a query of a Go handler. They are in memory and need not be closed.
type Rows struct {
	cells [][]any
	at    int // of the current row, from 1
}

// Next moves to the next row; false when there is none.
func (r *Rows) Next() bool {
	if r.at >= len(r.cells) {
		return false
	}
	r.at++
	return true
}

// Scan copies the columns of the current row, as database/sql does. Destinations are pointers to
// string, int, int64, float64, bool, []byte, json.RawMessage or any, or an sql.Scanner.
func (r *Rows) Scan(dest ...any) error {
	if r.at == 0 {
		return errors.New("Scan is called before Next")
	}
	row := r.cells[r.at-1]
	if len(dest) != len(row) {
		return fmt.Errorf("the row has %d columns and Scan %d destinations", len(row), len(dest))
	}
	for i, cell := range row {
		if err := scanCell(dest[i], cell); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

func scanCell(dest, cell any) error {
	switch d := dest.(type) {
	case *any:
		*d = cell
		return nil
	case sql.Scanner:
		return d.Scan(cell)
	case *string:
		return scanAs(d, cell)
	case *int:
		return scanAs(d, cell)
	case *int64:
		return scanAs(d, cell)
	case *float64:
		return scanAs(d, cell)
	case *bool:
		return scanAs(d, cell)
	case *[]byte:
		return scanAs(d, cell)
	case *json.RawMessage:
		return scanAs((*[]byte)(d), cell)
	}
	return fmt.Errorf("a %T is no destination", dest)
}

// scanAs converts as database/sql does. Only a slice can take a null.
func scanAs[T any](dest *T, cell any) error {
	var value sql.Null[T]
	if err := value.Scan(cell); err != nil {
		return err
	}
	if _, slice := any(dest).(*[]byte); !value.Valid && !slice {
		return fmt.Errorf("it is null, which a %T cannot be; use a pointer to sql.Null", *dest)
	}
	*dest = value.V
	return nil
}
