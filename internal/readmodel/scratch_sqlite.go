package readmodel

import "outboxweb/internal/sqldb"

// trigger is one of a table of SQLite, with the text that creates it.
type trigger struct{ name, text string }

// quietlySQLite is quietly on SQLite: the triggers are dropped for as long as
// fn runs, which nobody else sees.
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
	// Such a pragma takes effect when it is compiled, so it must not stay prepared.
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
