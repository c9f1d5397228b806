package sqldb

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// pins are the server's parameters that decide what a value means, what a statement does, or
// what a commit promises. Every session has them, whatever its role, its database or its server
// has for others, so that what a row becomes depends on its events alone. Times and limits of the
// program's own follow them, see setTransactions; the encoding is part of the connection.
var pins = []struct {
	name, value string
	kept        string // values, separated by spaces, that are left as they are
}{
	{"TimeZone", "UTC", ""}, {"timezone_abbreviations", "Default", ""}, {"DateStyle", "ISO, MDY", ""}, {"IntervalStyle", "postgres", ""},
	{"lc_monetary", "C", ""}, {"lc_numeric", "C", ""}, {"lc_time", "C", ""},
	{"extra_float_digits", "1", ""}, {"bytea_output", "hex", ""}, {"xmlbinary", "base64", ""}, {"xmloption", "content", ""}, {"array_nulls", "on", ""},
	{"standard_conforming_strings", "on", ""}, {"backslash_quote", "safe_encoding", ""}, {"quote_all_identifiers", "off", ""}, {"transform_null_equals", "off", ""},
	{"default_text_search_config", "pg_catalog.english", ""}, {"gin_fuzzy_search_limit", "0", ""}, {"synchronize_seqscans", "off", ""}, {"row_security", "on", ""},
	{"default_transaction_isolation", "read committed", ""}, {"default_transaction_deferrable", "off", ""},
	{"statement_timeout", "0", ""}, {"lock_timeout", "0", ""}, {"idle_in_transaction_session_timeout", "0", ""}, {"idle_session_timeout", "0", ""}, {"transaction_timeout", "0", ""},
	// The journal's triggers must run. Only a superuser may set it.
	{"session_replication_role", "origin", "origin"},
	{"synchronous_commit", "on", "remote_write remote_apply"},
}

// pinning is the statement that sets the pins for which a condition holds, for the session or for the
// transaction. Parameters that the server does not have are left out. A row for each is faster than a
// statement for each, and than an expression for each.
func pinning(local bool, condition string) string {
	var rows []string
	for _, p := range pins {
		rows = append(rows, fmt.Sprintf("('%s', '%s', '%s')", p.name, p.value, p.kept))
	}
	return fmt.Sprintf("select set_config(name, value, %t) from (values %s) as pin (name, value, kept)"+
		" where %s and current_setting(name, true) <> all (string_to_array(kept, ' '))", local, strings.Join(rows, ", "), condition)
}

// pinTransaction pins a transaction, where only what differs is set, since that is faster.
var pinTransaction = pinning(true, "current_setting(name, true) <> value")

// pinSession pins the session of a connection, unless there is a pooler in between, whose next
// transaction may have another session, and this one another client. What is equal is set as well: a
// reload of the server's configuration would change it otherwise.
func pinSession(conn *pgx.Conn) string {
	return pinning(false, fmt.Sprintf("pg_backend_pid() = %d and current_setting(name, true) is not null", conn.PgConn().PID()))
}

// Pin gives a new connection the parameters that what is read and written must not depend on. It
// does nothing behind a transaction pooler.
func Pin(ctx context.Context, conn *pgx.Conn) error {
	return conn.PgConn().Exec(ctx, pinSession(conn)).Close()
}
