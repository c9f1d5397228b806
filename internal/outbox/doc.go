// Package outbox is the vocabulary of outboxweb and its pure rules: events,
// outbox rows, campaigns, modes, backoff, and the errors everything else
// speaks in. It does no I/O and imports the standard library only.
//
// A field tagged `redact:"-"` identifies something and is shown as it is; of the
// others, package redact hides what looks like a secret.
//
// Times are UTC with microsecond precision throughout; durations are
// time.Duration. Values are safe to copy; nothing here holds a lock.
package outbox
