package readmodel

import (
	"cmp"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Failure is one failed attempt to apply an event.
type Failure struct {
	Message     string // complete, with a stack where there is one
	Fingerprint string // see event.Fingerprint
	SetAside    bool   // the failure quarantines the projection instead of blocking the campaign
	Projection  string // the one that failed; empty when unknown
	Version     string // the hash of its definition
	Permanent   bool   // it can never succeed with this Version; see sqldb.Permanent
	MaxAttempts int    // of that projection; 0 for the default of Options.Retry
	Untried     bool   // the event was not tried, so that it counts as no attempt
}

// Last reports whether a failure is the last after this many attempts of its projection.
func (f Failure) Last(attempts int, r event.Retry) bool {
	return !f.Untried && (f.Permanent || attempts >= cmp.Or(f.MaxAttempts, r.Attempts()))
}

// ErrorLimit is the maximum size of a stored error, in bytes.
const ErrorLimit = 64 << 10
