package outbox

import "time"

// Aftermath is what became of an action: LevelOK when it reached its end, LevelBusy while that is
// open, LevelWarn when its outcome no longer holds. It is empty if there is nothing to add.
type Aftermath struct {
	Level Level
	Text  string
}

// Changed is the aftermath of an action whose object was changed by a later one.
var Changed = Aftermath{LevelWarn, "It has been changed since."}

// OfRow tells what became of the row that the action retried; d is nil when the row is gone.
func (a AuditEntry) OfRow(d *RowDetail) Aftermath {
	switch {
	case d == nil:
		return Aftermath{LevelOK, "It has been applied."}
	case d.Row.Status == Processing:
		return Aftermath{LevelBusy, "It is being applied."}
	case !a.FailedSince(d.Row):
		return Aftermath{LevelBusy, "It is waiting to be applied."}
	}
	return Aftermath{LevelWarn, "It failed again" + a.failedWith(d.Attempts) + "."}
}

// failedWith compares the first failure after the action with the last one before it; attempts are
// newest first.
func (a AuditEntry) failedWith(attempts []Attempt) string {
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
		words = " " + Age(later) + " later"
	}
	switch {
	case before == nil:
		return words
	case before.Fingerprint == after.Fingerprint:
		return words + " with the same error"
	}
	return words + " with another error"
}

// FailedSince reports whether the row that the action retried has failed again.
func (a AuditEntry) FailedSince(row Row) bool { return row.Status.Stuck() && row.UpdatedAt.After(a.At) }
