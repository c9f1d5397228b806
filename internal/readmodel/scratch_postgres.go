package readmodel

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// quietly runs fn with the tables' triggers disabled and, where the database supports it, with
// foreign keys between them checked at commit. An empty schema means the search path's.
func (t *tx) quietly(ctx context.Context, schema string, tables []string, fn func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list := t.triggersSQLite
	if t.Dialect().TempTables {
		list = t.triggersPostgres
	}
	switches, err := list(schema, tables)
	if err != nil {
		return err
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

const selectTriggers = `
select tgname, tgenabled = 'A'
from pg_trigger
where tgrelid = to_regclass($1)
  and not tgisinternal
  and tgenabled in ('O', 'A')`

func (t *tx) triggersPostgres(schema string, tables []string) ([]triggerSwitch, error) {
	var switches []triggerSwitch
	var b sqldb.Batch
	for _, table := range tables {
		name := qualified(schema, table)
		b.Each(func(row sqldb.Row) error {
			var trigger string
			var always bool
			err := row.Scan(&trigger, &always)
			enable := " enable trigger "
			if always {
				enable = " enable always trigger "
			}
			switches = append(switches, triggerSwitch{
				off: "alter table " + name + " disable trigger " + QuoteName(trigger),
				on:  "alter table " + name + enable + QuoteName(trigger),
			})
			return err
		}, selectTriggers, name)
	}
	if err := t.RunAll(&b); err != nil {
		return nil, fmt.Errorf("read triggers: %w", err)
	}
	return switches, nil
}
