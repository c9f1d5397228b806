package sqldb

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Identity is a column that PostgreSQL numbers from a sequence. A copy of tables or logical
// replication copies the rows and leaves the sequence behind: it draws numbers again that are taken,
// or below those of rows that readers have passed.
type Identity struct {
	Table, Column string
	Highest       int64 // number of a row
	Drawn         int64 // last number of the sequence
	sequence      string
}

// Raise is the statement that raises the sequence.
func (i Identity) Raise() string {
	return fmt.Sprintf("select setval('%s', %d)", i.sequence, i.Highest)
}

// selectIdentities lists the columns that are always numbered, as far as the user may read the
// table and the sequence.
const selectIdentities = `
select c.relname, a.attname, s.name
from pg_class c
join pg_attribute a on a.attrelid = c.oid
cross join lateral (select pg_get_serial_sequence(cast(cast(c.oid as regclass) as text), a.attname) as name) as s
where c.relnamespace = cast(current_schema() as regnamespace)
  and c.relkind = 'r'
  and a.attidentity = 'a'
  and has_table_privilege(c.oid, 'select')
  and has_sequence_privilege(s.name, 'select')
order by c.relname`

// BehindIdentities lists the identities of the database's tables whose sequences are behind.
func (t *Tx) BehindIdentities() ([]Identity, error) {
	if t.database.url == nil {
		return nil, nil
	}
	all, err := All(t, func(row Row) (i Identity, err error) {
		err = row.Scan(&i.Table, &i.Column, &i.sequence)
		return i, err
	}, selectIdentities, pgx.QueryExecModeExec)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var each []string
	for n, i := range all {
		each = append(each, fmt.Sprintf("select %d, (select coalesce(max(%s), 0) from %s), case when is_called then last_value else last_value - 1 end from %s",
			n, pgx.Identifier{i.Column}.Sanitize(), pgx.Identifier{i.Table}.Sanitize(), i.sequence))
	}
	var behind []Identity
	err = t.Each(func(row Row) error {
		var n int
		var highest, drawn int64
		err := row.Scan(&n, &highest, &drawn)
		if highest > drawn {
			i := all[n]
			i.Highest, i.Drawn = highest, drawn
			behind = append(behind, i)
		}
		return err
	}, strings.Join(each, "\nunion all\n"), pgx.QueryExecModeExec)
	return behind, err
}

// RaiseIdentities raises sequences that are behind, and reports whether there were any. It is an
// event.ErrSetup when the user may not.
func (d *DB) RaiseIdentities(ctx context.Context) (raised bool, err error) {
	err = d.WriteFrom(ctx, BeginAppendAlone, func(t *Tx) error {
		raised, err = t.raiseIdentities()
		return err
	})
	return raised && err == nil, err
}

// raiseIdentities is RaiseIdentities in a transaction with the lock around drawing positions. The number
// that it draws first keeps it from lowering a sequence of another table that is drawn from meanwhile.
func (t *Tx) raiseIdentities() (raised bool, err error) {
	behind, err := t.BehindIdentities()
	if err != nil {
		return false, fmt.Errorf("compare numbers with their sequences: %w", err)
	}
	d := t.database
	for _, i := range behind {
		if _, err := t.Exec(`select setval(cast($1 as regclass), greatest($2, nextval(cast($1 as regclass))))`, i.sequence, i.Highest); err != nil {
			if pgCode(err) == forbidden {
				err = event.Setup("the sequence of %s.%s in the %s database is at %d, below the highest number %d, as after a copy of the tables, and this user may not raise it; let the owner of the table run: %s",
					i.Table, i.Column, d.Name, i.Drawn, i.Highest, i.Raise())
			}
			return false, err
		}
		d.config.Log.Warn("a sequence was behind the rows of its table, as after a copy, and was raised", "database", d.Name, "table", i.Table, "from", i.Drawn, "to", i.Highest)
	}
	return len(behind) > 0, nil
}
