package readmodel

import "github.com/outboxweb/outboxweb/internal/sqldb"

// triggersSQLite lists the switches of triggers on SQLite, where one that is off is dropped, which no
// other transaction sees.
func (t *tx) triggersSQLite(_ string, tables []string) (switches []triggerSwitch, err error) {
	for _, table := range tables {
		err := t.Each(func(row sqldb.Row) error {
			var name, text string
			err := row.Scan(&name, &text)
			switches = append(switches, triggerSwitch{off: "drop trigger " + QuoteName(name), on: text})
			return err
		}, `select name, sql from sqlite_master where type = 'trigger' and tbl_name = $1 collate nocase`, table)
		if err != nil {
			return nil, err
		}
	}
	// This pragma takes effect when it is compiled, so it must not stay prepared.
	return switches, t.Define("pragma defer_foreign_keys = on")
}
