package campaign

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Aftermath is what became of an action: finding.OK when it reached its end, finding.Busy while that is
// open, finding.Warn when its outcome no longer holds. It is empty if there is nothing to add.
type Aftermath struct {
	Level finding.Level
	Text  string
}

// Changed is the aftermath of an action whose object was changed by a later one.
var Changed = Aftermath{finding.Warn, "It has been changed since."}

// OfRow tells what became of the row that the action retried; d is nil when the row is gone.
func OfRow(a operator.AuditEntry, d *RowDetail) Aftermath {
	switch {
	case d == nil:
		return Aftermath{finding.OK, "It has been applied."}
	case d.Row.Status == event.Processing:
		return Aftermath{finding.Busy, "It is being applied."}
	case !failedSince(a, d.Row):
		return Aftermath{finding.Busy, "It is waiting to be applied."}
	}
	return Aftermath{finding.Warn, "It failed again" + failedWith(a, d.Attempts) + "."}
}

// failedWith compares the first failure after the action with the last one before it; attempts are
// newest first.
func failedWith(a operator.AuditEntry, attempts []Attempt) string {
	var before, after *Attempt
	for i := range attempts {
		if attempts[i].Quarantined {
			continue // another projection's
		}
		if attempts[i].At.After(a.At) {
			after = &attempts[i]
		} else if before == nil {
			before = &attempts[i]
		}
	}
	if after == nil {
		return ""
	}
	words := ""
	if later := after.At.Sub(a.At); later >= time.Second {
		words = " " + event.Age(later) + " later"
	}
	switch {
	case before == nil:
		return words
	case before.Fingerprint == after.Fingerprint:
		return words + " with the same error"
	}
	return words + " with another error"
}

// failedSince reports whether the row that the action retried has failed again.
func failedSince(a operator.AuditEntry, row Row) bool {
	return row.Status.Stuck() && row.UpdatedAt.After(a.At)
}
