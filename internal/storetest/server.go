package storetest

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// UnusedDatabase is the URL of a database that does not exist. It is dropped at the test's end.
func UnusedDatabase(tb testing.TB, name string) string {
	tb.Helper()
	address := dbtest.Server().URL(name)
	tb.Cleanup(func() { AtServer(tb, `drop database if exists `+pgx.Identifier{name}.Sanitize()+` with (force)`) })
	return address
}

// AtServer runs statements on the server, in no test's database.
func AtServer(tb testing.TB, statements ...string) {
	tb.Helper()
	db := dbtest.Open(tb, dbtest.Server().URL("postgres"))
	defer db.Close()
	for _, statement := range statements {
		_, err := db.Exec(statement)
		must.Hold(tb, err == nil, "%s: %v", statement, err)
	}
}

// Role creates a user without privileges.
func Role(tb testing.TB, name string) string {
	tb.Helper()
	AtServer(tb, `create role `+name+` login`)
	tb.Cleanup(func() { AtServer(tb, `drop role `+name) })
	return name
}
