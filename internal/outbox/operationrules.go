package outbox

import (
	"fmt"
	"time"
)

// How a requeue of many rows goes on: what became of the rows that are watched,
// when a group of them stops, and how many go next. Nothing here reads or writes.

const (
	// MaxWave is the most rows of one group in one wave, and of all groups in one
	// step.
	MaxWave = 1000
	// MaxWatched is the most rows that are watched at once where waves do not wait
	// for each other.
	MaxWatched = 2000
)

// Watched is a row that an operation has requeued, and how far its campaign is
// now.
type Watched struct {
	RowKey
	Fingerprint string // of the error that it died of before
	WatchTo     int64  // the last event that waited behind it, or its own
	Applied     int64  // by its campaign
	HeadSeq     int64  // 0 when its campaign has no row
	HeadStatus  Status
	Diverged    string // why its campaign contradicts the journal; empty when it does not
}

// WatchEnd is what became of a watched row.
type WatchEnd struct {
	Result      RowResult
	Detail      string
	Fingerprint string // of the error that it died of again
	Stops       string // why nothing more of its group is requeued; empty when that goes on
}

// Blames is the event whose error says what became of the row; 0 when none does.
func (w Watched) Blames() int64 {
	switch w.verdict() {
	case diedAgain, failedBehind:
		return w.HeadSeq
	}
	return 0
}

// End says what became of the row; false while it is watched on. Blamed is the row
// of the event that Blames names.
func (w Watched) End(blamed Row) (WatchEnd, bool) {
	switch w.verdict() {
	case allApplied:
		return WatchEnd{Result: ResultDone}, true
	case campaignDiverged:
		return WatchEnd{Result: ResultFailedAgain, Detail: "its campaign diverged: " + w.Diverged}, true
	case diedAgain:
		return WatchEnd{Result: ResultFailedAgain, Detail: blamed.LastError, Fingerprint: blamed.Fingerprint}, true
	case failedBehind:
		return WatchEnd{
			Result: ResultDone,
			Detail: fmt.Sprintf("applied; event %d behind it then failed: %s", w.HeadSeq, blamed.LastError),
			Stops: fmt.Sprintf("event %d of campaign %s was applied, and event %d behind it failed%s", w.Seq, w.CampaignID, w.HeadSeq,
				sameOrOther(w.Fingerprint, blamed.Fingerprint)),
		}, true
	case diedBefore:
		return WatchEnd{Result: ResultUnwatched, Detail: fmt.Sprintf("event %d before it died; it is blocked behind that", w.HeadSeq)}, true
	}
	return WatchEnd{}, false
}

// watchVerdict is how a watched row stands.
type watchVerdict int

const (
	underWay watchVerdict = iota
	allApplied
	campaignDiverged
	diedAgain    // of all its attempts, as one does that is settled by a program which knows no operations
	failedBehind // the row was applied, and an event after it was not
	diedBefore   // an event before the row
)

func (w Watched) verdict() watchVerdict {
	switch {
	case w.Applied >= w.WatchTo:
		return allApplied
	case w.Diverged != "":
		return campaignDiverged
	case w.HeadSeq == w.Seq && w.HeadStatus == Dead:
		return diedAgain
	case w.Applied >= w.Seq && w.HeadStatus.Stuck() && w.HeadSeq > w.Seq:
		return failedBehind
	case w.HeadSeq < w.Seq && w.HeadStatus == Dead:
		return diedBefore
	}
	return underWay
}

// sameOrOther goes on after "failed", of an error that was another before.
func sameOrOther(before, after string) string {
	if before == after {
		return " with the same error"
	}
	return " differently"
}

// FailedAgain is why a group stops of which a row failed again: its fingerprint
// before, the one after, and what it says now.
func FailedAgain(row RowKey, before, after, detail string) string {
	reason := fmt.Sprintf("event %d of campaign %s failed again%s", row.Seq, row.CampaignID, sameOrOther(before, after))
	if before != after {
		reason += ": " + detail
	}
	return reason
}

// GroupProgress is how far a group is that runs.
type GroupProgress struct {
	Canary   bool  // one row goes first, and waves wait for each other
	Wave     int64 // the last one; with a canary, which is wave 0, -1 before it
	Watched  int64 // rows requeued and not through
	Failures int64 // rows that failed again
}

// Stops reports whether nothing more of the group may be requeued.
func (g GroupProgress) Stops() bool { return g.Failures > 0 }

// NextSize is how many rows of the group may be requeued next. With a canary a
// wave waits for the one before, and is twice as large.
func (g GroupProgress) NextSize() int {
	switch {
	case !g.Canary:
		return min(MaxWave, MaxWatched-int(g.Watched))
	case g.Watched > 0:
		return 0
	case g.Wave <= 0: // the canary, and the first wave after it
		return 1
	default:
		return min(MaxWave, 1<<min(g.Wave, 30))
	}
}

// NextWave is the number of the wave that those rows are.
func (g GroupProgress) NextWave() int64 {
	if !g.Canary {
		return max(1, g.Wave+1)
	}
	return g.Wave + 1
}

// Through reports whether a group has ended of which so many rows wait.
func (g GroupProgress) Through(waiting int) bool { return waiting == 0 && g.Watched == 0 }

// Immovable says why requeuing the row would not get it applied; empty when it may.
// Campaign is nil when it is gone; moving is true when rows before it are requeued
// with it.
func (r RowKey) Immovable(campaign *Campaign, moving bool, now time.Time) string {
	switch c := campaign; {
	case c == nil:
		return "its campaign is gone"
	case c.Diverged != "":
		return "its campaign diverged: " + c.Diverged
	case c.Paused != nil:
		return fmt.Sprintf("its campaign was paused by %s %s ago, so it would not be applied", c.Paused.By, Age(now.Sub(c.Paused.At)))
	case !moving && c.HeadSeq < r.Seq && c.HeadStatus == Dead:
		return fmt.Sprintf("event %d before it is dead, so it would not be applied", c.HeadSeq)
	}
	return ""
}

// EndOfGroups is how an operation ends all of whose groups have, by how many of them
// stopped and the reason of the first that did.
func EndOfGroups(stopped, all int64, first string) (status OperationStatus, reason string) {
	switch {
	case stopped == 0:
		return OperationDone, ""
	case all > 1:
		return OperationStopped, fmt.Sprintf("%d of %s stopped; in the first, %s", stopped, Count(int64(all), "error group", "error groups"), first)
	}
	return OperationStopped, first
}
