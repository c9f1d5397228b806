package outbox

import (
	"fmt"
	"time"
)

// ErrorGroup is the failed and dead rows whose last error has one fingerprint.
type ErrorGroup struct {
	Fingerprint string `json:"fingerprint"`
	Example     string `json:"example"` // the error of one of them
	Dead        int64  `json:"dead"`
	Failed      int64  `json:"failed"`
	Heads       int64  `json:"heads"`    // of the dead ones, heads of their campaign
	Released    int64  `json:"released"` // rows that wait behind those heads

	EventTypes []Tally    `json:"event_types"` // of the rows, the most frequent first
	Builds     []Tally    `json:"builds"`      // of the attempts looked at, the most frequent first
	Attempts   int64      `json:"attempts"`    // failed ones of these rows, as far as looked at
	Alike      int64      `json:"alike"`       // of Attempts, those with this very fingerprint
	FirstAt    *time.Time `json:"first_at"`    // of these rows' attempts the first; nil when none was looked at
	LastAt     *time.Time `json:"last_at"`
	Note       *GroupNote `json:"note"` // nil when nobody pinned one
}

// Tally counts something by its name.
type Tally struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// GroupNote is what an operator pinned to an error that many rows share.
type GroupNote struct {
	Note string    `json:"note"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
}

// ErrorGroups are all groups, those with the most dead rows first.
type ErrorGroups struct {
	Groups []ErrorGroup
	// Capped is true when there are more failed or dead rows than were
	// looked at, so that counts are lower bounds.
	Capped bool
}

// JudgedGroup is an error group with what is to be thought of it, as the API and
// the commands show it.
type JudgedGroup struct {
	ErrorGroup
	Hope    Hope   `json:"hope"`
	Verdict string `json:"verdict"`
}

// Judged adds the verdicts to all groups; build is the version that would retry.
func (all ErrorGroups) Judged(build string) []JudgedGroup {
	judged := make([]JudgedGroup, len(all.Groups))
	for i, g := range all.Groups {
		judged[i].ErrorGroup = g
		judged[i].Hope, judged[i].Verdict = g.Verdict(build)
	}
	return judged
}

// Hope says whether retrying can help.
type Hope string

// What may be hoped for from a retry.
const (
	HopeNone    Hope = "none"    // it failed alike each time, on the build that runs
	HopeSome    Hope = "some"    // it failed in several ways, or never on the build that runs
	HopeUnknown Hope = "unknown" // too little was tried to tell
)

// Verdict says in a sentence, without a final stop, whether retrying the rows
// of the group can help. build is the version that would try.
func (g ErrorGroup) Verdict(build string) (Hope, string) {
	tried := int64(0)
	for _, b := range g.Builds {
		if b.Name == build {
			tried = b.Count
		}
	}
	rows := g.Dead + g.Failed
	switch {
	case g.Attempts == 0:
		return HopeUnknown, "No attempt of these rows is on record"
	case tried == 0:
		return HopeSome, fmt.Sprintf("All %d attempts were by other builds than the %s that runs now: a retry shows whether it mends this", g.Attempts, build)
	case g.Alike < g.Attempts:
		return HopeSome, fmt.Sprintf("%d of %d attempts ended in this error and the others in another one: it may pass, a retry can help", g.Alike, g.Attempts)
	case g.Attempts < 2:
		return HopeUnknown, "It was tried once only"
	case g.Attempts == rows:
		return HopeUnknown, fmt.Sprintf("%d of %d the same error on %s, each tried once", g.Alike, g.Attempts, builds(g))
	default:
		return HopeNone, fmt.Sprintf("%d of %d the same error on %s: a retry will not help before the cause is mended", g.Alike, g.Attempts, builds(g))
	}
}

func builds(g ErrorGroup) string {
	if len(g.Builds) == 1 {
		return "one build"
	}
	return fmt.Sprintf("%d builds", len(g.Builds))
}
