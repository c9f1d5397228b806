package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cells reads a row whose columns are not known: each cell is nil, int64, float64 or string, the same
// on both databases. A boolean is 1 or 0, and a time the microseconds since 1970.
func Cells(row Row) (cells []any, err error) {
	switch row := row.(type) {
	case *sql.Rows:
		columns, err := row.Columns()
		if err != nil {
			return nil, err
		}
		cells = make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range cells {
			dest[i] = &cells[i]
		}
		if err := row.Scan(dest...); err != nil {
			return nil, err
		}
	case pgx.Rows:
		if cells, err = row.Values(); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("a %T has no columns to read", row)
	}
	for i := range cells {
		if cells[i], err = plainCell(cells[i]); err != nil {
			return nil, fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return cells, nil
}

func plainCell(cell any) (any, error) {
	if valuer, ok := cell.(driver.Valuer); ok {
		var err error
		if cell, err = valuer.Value(); err != nil {
			return nil, err
		}
	}
	switch v := cell.(type) {
	case nil, int64, float64, string:
		return v, nil
	case int32:
		return int64(v), nil
	case int16:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case bool:
		return Truth(v), nil
	case time.Time:
		return v.UnixMicro(), nil
	case []byte:
		return string(v), nil
	}
	return fmt.Sprint(cell), nil
}
