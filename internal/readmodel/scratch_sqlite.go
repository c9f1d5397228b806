package readmodel

import "github.com/outboxweb/outboxweb/internal/sqldb"

// trigger is a trigger of a SQLite table, with the statement that creates it.
type trigger struct{ name, text string }

// quietlySQLite is quietly on SQLite: the triggers are dropped while fn runs, which no other
// transaction sees.
func (t *tx) quietlySQLite(tables []string, fn func() error) error {
	var triggers []trigger
	for _, table := range tables {
		err := t.Each(func(row sqldb.Row) error {
			var one trigger
			err := row.Scan(&one.name, &one.text)
			triggers = append(triggers, one)
			return err
		}, `select name, sql from sqlite_master where type = 'trigger' and tbl_name = $1 collate nocase`, table)
		if err != nil {
			return err
		}
	}
	// This pragma takes effect when it is compiled, so it must not stay prepared.
	if err := t.Define("pragma defer_foreign_keys = on"); err != nil {
		return err
	}
	for _, one := range triggers {
		if err := t.Define("drop trigger " + QuoteName(one.name)); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	for _, one := range triggers {
		if err := t.Define(one.text); err != nil {
			return err
		}
	}
	return nil
}
