// Package migrations holds the schemas of both databases, for SQLite and for
// PostgreSQL: each file is a step, applied once and in the order of their numbers.
package migrations

import "embed"

// Files are the steps, as DIALECT/DATABASE/NNNNN_name.sql.
//
//go:embed sqlite postgres
var Files embed.FS
