package intake

import (
	_ "embed"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/inbound"
)

//go:embed sqlite.sql
var sqliteSchema string

//go:embed postgres.sql
var postgresSchema string

//go:embed postgres_notify.sql
var postgresNotify string

// ownerSchema is the same for both dialects.
var ownerSchema = "-- Which journal the rows go to. Its server writes this when it first reads them.\n" + inbound.CreateIntakeOwners(inbound.IntakeOwners) + ";\n"

// Schema returns the statements that create the table where it is missing, and the small one that says
// which journal its rows go to, for the dialect sqlite or postgres. They may be run again at any time, for example as a step of the service's migrations. On
// PostgreSQL, processes that create the table at the same moment need a lock, such as
// pg_advisory_xact_lock in the same transaction: otherwise one of them may fail.
func Schema(dialect string) (string, error) {
	switch dialect {
	case "sqlite":
		return sqliteSchema + ownerSchema, nil
	case "postgres":
		return postgresSchema + ownerSchema, nil
	}
	return "", fmt.Errorf("there is no schema for %q; use sqlite or postgres", dialect)
}

// NotifySchema returns the statements that create a trigger on PostgreSQL, beside Schema's table. It
// wakes the server at each commit with new rows, so that events need not wait for the next poll.
// Without it everything works the same, up to a poll interval later.
func NotifySchema() string { return postgresNotify }
