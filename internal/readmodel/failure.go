package readmodel

import (
	"cmp"

	"outboxweb/internal/outbox"
)

// Failure is one failed attempt to apply an event.
type Failure struct {
	Message     string // in full, with a stack where there is one
	Fingerprint string // see outbox.Fingerprint
	SetAside    bool   // the projection at fault is one that is set aside rather than blocking the campaign
	Projection  string // the one at fault; empty when it is not known
	Version     string // the hash of its definition
	Permanent   bool   // it can never succeed with this Version; see Permanent
	MaxAttempts int    // of that projection; 0 when it leaves that to Options.Retry
}

// Last reports whether a failure after that many attempts ends them.
func (f Failure) Last(attempts int, r outbox.Retry) bool {
	return f.Permanent || attempts >= cmp.Or(f.MaxAttempts, r.Attempts())
}

// ErrorLimit bounds what is kept of an error, in bytes.
const ErrorLimit = 64 << 10
