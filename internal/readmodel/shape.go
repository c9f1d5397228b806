package readmodel

import (
	"context"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

var shape = catalog{
	sqlite: `select sql from sqlite_master where tbl_name = $1 and sql is not null order by type, name`,

	// Indexes and triggers are left out, since their definitions contain the schema.
	postgres: `
select attname || ' ' || format_type(atttypid, atttypmod) || case when attnotnull then ' not null' else '' end as part
from pg_attribute
where attrelid = to_regclass($1)
  and attnum > 0
  and not attisdropped
union all
select pg_get_constraintdef(oid)
from pg_constraint
where conrelid = to_regclass($1)
  and contype in ('p', 'u', 'c', 'x')
order by part`,
}

// MadeOtherwise lists the tables of the Scratch that have another definition in the projections
// database: another version of the projection's file created them, and they may refuse rows of
// the scratch ones.
func (c *Scratch) MadeOtherwise(ctx context.Context, tables []string) ([]string, error) {
	return sqldb.Reading(ctx, c.model, "compare the tables with those of the projections' files", func(t *sqldb.Tx) (others []string, err error) {
		for _, table := range tables {
			wanted, err := shape.list(c.Each, t.Dialect(), sqldb.Temporary, table)
			if err != nil {
				return nil, err
			}
			there, err := shape.list(t.Each, t.Dialect(), t.Schema(), table)
			if err != nil {
				return nil, err
			}
			if !slices.EqualFunc(wanted, there, sameText) {
				others = append(others, table)
			}
		}
		return others, nil
	})
}

// sameText reports whether two texts are equal except for white space.
func sameText(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }
