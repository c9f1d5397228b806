package readmodel

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// quietly runs fn with the tables' triggers disabled and, where the database supports it, with
// foreign keys between them checked at commit. An empty schema means the search path's.
func quietly(ctx context.Context, t *sqldb.Tx, schema string, tables []string, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switches, err := triggers(t, schema, tables)
	if err != nil {
		return fmt.Errorf("read triggers: %w", err)
	}
	if !t.Dialect().TempTables {
		// This pragma takes effect when it is compiled, so it must not stay prepared.
		if err := t.Define("pragma defer_foreign_keys = on"); err != nil {
			return err
		}
	}
	for _, s := range switches {
		if err := t.Define(s.off); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	for _, s := range switches {
		if err := t.Define(s.on); err != nil {
			return err
		}
	}
	return nil
}

// triggerSwitch is the statements that disable and enable a trigger.
type triggerSwitch struct{ off, on string }

// selectTriggers lists the switches of a table's triggers. On SQLite one that is off is dropped, which
// no other transaction sees.
var selectTriggers = catalog{
	sqlite: `
select 'drop trigger "' || replace(name, '"', '""') || '"', sql
from sqlite_master
where type = 'trigger'
  and tbl_name = $1 collate nocase`,

	postgres: `
select format('alter table %s disable trigger %I', cast($1 as text), tgname),
  format('alter table %s enable %strigger %I', cast($1 as text), case tgenabled when 'A' then 'always ' else '' end, tgname)
from pg_trigger
where tgrelid = to_regclass(cast($1 as text))
  and not tgisinternal
  and tgenabled in ('O', 'A')`,
}

func triggers(t *sqldb.Tx, schema string, tables []string) (switches []triggerSwitch, err error) {
	var b sqldb.Batch
	for _, table := range tables {
		query, name := selectTriggers.of(t.Dialect(), schema, table)
		b.Each(func(row sqldb.Row) error {
			var s triggerSwitch
			err := row.Scan(&s.off, &s.on)
			switches = append(switches, s)
			return err
		}, query, name)
	}
	err = t.RunAll(&b)
	return switches, err
}
