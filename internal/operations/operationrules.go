package operations

import (
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// The rules of requeuing many rows: the outcome of watched rows, when a group of them stops, and
// how many go next. Nothing here does I/O.

const (
	// MaxWave is the maximum number of rows of one group in one wave, and of all groups in one
	// step.
	MaxWave = 1000
	// MaxWatched is the maximum number of rows watched at once if waves do not wait for each other.
	MaxWatched = 2000
)

// Watched is a row that an operation has requeued, with the current state of its campaign.
type Watched struct {
	event.RowKey
	Fingerprint string // of the error that it died of before
	WatchTo     int64  // the last event that waited behind it, or its own
	Applied     int64  // the campaign's applied seq
	HeadSeq     int64  // 0 if its campaign has no row
	HeadStatus  event.Status
	Diverged    string // why its campaign contradicts the journal; empty if it does not
	// Quarantined is the first event from Seq to WatchTo at which a projection was quarantined; nil if
	// none was, and before all of them are applied.
	Quarantined *campaign.ProjectionFailure
}

// WatchEnd is the outcome of a watched row.
type WatchEnd struct {
	Result      RowResult
	Detail      string
	Fingerprint string // of the error that it died of again
	Stops       string // why no more rows of its group are requeued; empty if the group continues
}

// Blames is the event whose error decides the row's outcome; 0 if none does.
func (w Watched) Blames() int64 {
	switch w.verdict() {
	case diedAgain, failedBehind:
		return w.HeadSeq
	}
	return 0
}

// End returns the outcome of the row; false while it is still watched. blamed is the row of the
// event that Blames returns.
func (w Watched) End(blamed campaign.Row) (WatchEnd, bool) {
	switch w.verdict() {
	case allApplied:
		return w.applied(), true
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

// AllApplied reports whether the row and all events watched with it are applied.
func (w Watched) AllApplied() bool { return w.verdict() == allApplied }

// applied is the outcome of a row that is applied with all events watched with it.
func (w Watched) applied() WatchEnd {
	f := w.Quarantined
	if f == nil {
		return WatchEnd{Result: ResultDone}
	}
	where := "at it"
	if f.Seq > w.Seq {
		where = fmt.Sprintf("at event %d behind it", f.Seq)
	}
	quarantined := fmt.Sprintf("projection %s failed %s and was quarantined", f.Projection, where)
	return WatchEnd{Result: ResultQuarantined, Fingerprint: f.Fingerprint,
		Detail: fmt.Sprintf("applied; %s: %s", quarantined, f.Message),
		Stops:  fmt.Sprintf("event %d of campaign %s was applied, but %s", w.Seq, w.CampaignID, quarantined)}
}

// watchVerdict is the state of a watched row.
type watchVerdict int

const (
	underWay watchVerdict = iota
	allApplied
	campaignDiverged
	diedAgain    // after all its attempts, as when settled by a version of the program without operations
	failedBehind // the row was applied, but an event after it failed
	diedBefore   // an event before the row died
)

func (w Watched) verdict() watchVerdict {
	switch {
	case w.Applied >= w.WatchTo:
		return allApplied
	case w.Diverged != "":
		return campaignDiverged
	case w.HeadSeq == w.Seq && w.HeadStatus == event.Dead:
		return diedAgain
	case w.Applied >= w.Seq && w.HeadStatus.Stuck() && w.HeadSeq > w.Seq:
		return failedBehind
	case w.HeadSeq < w.Seq && w.HeadStatus == event.Dead:
		return diedBefore
	}
	return underWay
}

// sameOrOther continues a sentence after "failed", comparing the error with the one before.
func sameOrOther(before, after string) string {
	if before == after {
		return " with the same error"
	}
	return " differently"
}

// FailedAgain is the reason why a group stops whose row failed again: its fingerprint before and
// after, and its current error.
func FailedAgain(row event.RowKey, before, after, detail string) string {
	reason := fmt.Sprintf("event %d of campaign %s failed again%s", row.Seq, row.CampaignID, sameOrOther(before, after))
	if before != after {
		reason += ": " + detail
	}
	return reason
}

// GroupProgress is the progress of a running group.
type GroupProgress struct {
	Canary   bool  // one row goes first, and waves wait for each other
	Wave     int64 // the last wave; with a canary, which is wave 0, -1 before it
	Watched  int64 // rows requeued and without an outcome
	Failures int64 // rows that failed again
}

// Stops reports whether no more rows of the group may be requeued.
func (g GroupProgress) Stops() bool { return g.Failures > 0 }

// NextSize is how many rows of the group may be requeued next. With a canary, each wave waits for
// the one before and is twice as large.
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

// NextWave is the number of the wave of those rows.
func (g GroupProgress) NextWave() int64 {
	if !g.Canary {
		return max(1, g.Wave+1)
	}
	return g.Wave + 1
}

// Through reports whether a group with so many waiting rows has ended.
func (g GroupProgress) Through(waiting int) bool { return waiting == 0 && g.Watched == 0 }

// Immovable says why requeuing the row would not get it applied; empty if it may. campaign is nil
// if it no longer exists; moving is true if rows before it are requeued with it.
func Immovable(r event.RowKey, campaign *campaign.Campaign, moving bool, now time.Time) string {
	switch c := campaign; {
	case c == nil:
		return "its campaign is gone"
	case c.Diverged != "":
		return "its campaign diverged: " + c.Diverged
	case c.Paused != nil:
		return fmt.Sprintf("its campaign was paused by %s %s ago, so it would not be applied", c.Paused.By, event.Age(now.Sub(c.Paused.At)))
	case !moving && c.HeadSeq < r.Seq && c.HeadStatus == event.Dead:
		return fmt.Sprintf("event %d before it is dead, so it would not be applied", c.HeadSeq)
	}
	return ""
}

// EndOfGroups returns how an operation ends when all its groups have ended, from how many of them
// stopped and the reason of the first.
func EndOfGroups(stopped, all int64, first string) (status OperationStatus, reason string) {
	switch {
	case stopped == 0:
		return OperationDone, ""
	case all > 1:
		return OperationStopped, fmt.Sprintf("%d of %s stopped; in the first, %s", stopped, event.Count(int64(all), "error group", "error groups"), first)
	}
	return OperationStopped, first
}
