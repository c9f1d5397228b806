// Package event holds what every other package uses and what knows no feature: events with their hashes and
// tags, conditional appends, the statuses of rows, refusals, limits, and how amounts and times are read and
// written. It imports the standard library only.
//
// A field tagged `redact:"-"` is an identifier and is shown unchanged; in all other fields, package
// redact hides what looks like a secret.
//
// Times are UTC with microsecond precision throughout; durations are time.Duration. Values are safe
// to copy; nothing here holds a lock.
package event
