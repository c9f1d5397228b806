// Package outbox holds outboxweb's domain types and pure rules: events, outbox rows, campaigns,
// modes, backoff, and the errors shared by all packages. It does no I/O and imports the standard
// library only.
//
// A field tagged `redact:"-"` is an identifier and is shown unchanged; in all other fields, package
// redact hides what looks like a secret.
//
// Times are UTC with microsecond precision throughout; durations are time.Duration. Values are safe
// to copy; nothing here holds a lock.
package outbox
