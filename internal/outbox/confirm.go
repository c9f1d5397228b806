package outbox

import (
	"fmt"
	"strings"
)

// Actions of wide reach and irreversible actions are confirmed with a typed phrase: the same one on
// a page, over HTTP and on the command line. The table of actions states which action requires
// which.

// ConfirmAbove is the number of rows, requeued or released, above which an action requires a
// phrase.
const ConfirmAbove = 1000

// Reach is the extent of an action, as far as its confirmation phrase depends on it.
type Reach struct {
	Rows     int64             // requeued
	Released int64             // rows waiting behind them
	Skipped  RowKey            // the event that a campaign skips
	Seek     Seek              // what a publisher repeats and skips
	Pair     SubscriptionName  // the publisher that skips an event
	Blames   DeliveryErrorKind // the kind of its last error
	Discards string            // the rejected row of a source that is deleted there: "shop 12"
	Takes    IntakeHandOver    // the source that is taken from another journal
	Rebuilt  int64             // campaigns whose rows a rebuild of all of them replaces
}

// NeedsReason reports whether an action that releases so many rows requires a reason. Reasons are
// required from the number from on; 0 means never.
func NeedsReason(from, released int64) bool { return from > 0 && max(released, 1) >= from }

// ReleasedByHead is how many rows an action on the campaign's head releases. A retry releases only
// rows that would be released anyway.
func (c Campaign) ReleasedByHead() int64 {
	if c.HeadStatus != Dead {
		return 0
	}
	return c.BlockedBehind()
}

// Released is how many rows a requeue of the row releases: those waiting only for it.
func (r Row) Released() int64 {
	if !r.IsHead {
		return 0
	}
	return r.BlockedBehind
}

// Phrase is the phrase that confirms an action of this reach; empty if none is required.
func (a Action) Phrase(r Reach) string {
	if c := a.Info().confirm; c != nil {
		return c.phrase(r)
	}
	return ""
}

// Confirm refuses an action of this reach unless its phrase was typed. The refusal says what the
// action does.
func (a Action) Confirm(typed string, r Reach) error {
	phrase := a.Phrase(r)
	if phrase == "" {
		return nil
	}
	c := a.Info().confirm
	if typed = strings.TrimSpace(typed); typed == phrase || c.grown != nil && c.grown(typed, r) {
		return nil
	}
	return &Refusal{Err: ErrInvalid, Field: "confirm", Confirm: phrase, Detail: c.does(r)}
}

// confirmation is how an action is confirmed.
type confirmation struct {
	phrase func(Reach) string // empty if no phrase is required
	does   func(Reach) string
	// grown reports whether the typed phrase was correct a moment ago: events keep coming, so it
	// may state slightly fewer. nil allows no difference.
	grown func(typed string, r Reach) bool
}

// GrownAlike reports whether a row count has grown insignificantly since it was shown: by at most a
// hundred, or a tenth.
func GrownAlike(shown, is int64) bool { return is <= shown+max(100, shown/10) }

// byRelease confirms a requeue of one row that releases many.
var byRelease = &confirmation{
	phrase: func(r Reach) string {
		if r.Released <= ConfirmAbove {
			return ""
		}
		return fmt.Sprintf(releaseRows, r.Released)
	},
	does: func(r Reach) string { return "this action releases " + Count(r.Released, "row", "rows") },
	grown: func(typed string, r Reach) bool {
		var shown int64
		_, err := fmt.Sscanf(typed, releaseRows, &shown)
		return err == nil && typed == fmt.Sprintf(releaseRows, shown) && shown > ConfirmAbove && shown <= r.Released && GrownAlike(shown, r.Released)
	},
}

const releaseRows = "release %d rows"

// byRequeue confirms a requeue of many rows, at once or as an operation.
var byRequeue = &confirmation{
	phrase: func(r Reach) string {
		if max(r.Rows, r.Released) <= ConfirmAbove {
			return ""
		}
		return fmt.Sprintf("requeue %d rows", r.Rows)
	},
	does: func(r Reach) string {
		return fmt.Sprintf("this requeues %s and releases %s", Count(r.Rows, "row", "rows"), Number(r.Released))
	},
}

// bySkip always requires a phrase for the skip of an event.
var bySkip = &confirmation{
	phrase: func(r Reach) string { return fmt.Sprintf("skip %s %d", r.Skipped.CampaignID, r.Skipped.Seq) },
	does:   func(Reach) string { return "a skipped event is never applied to any projection" },
}

// bySeek confirms a seek that skips events.
var bySeek = &confirmation{
	phrase: func(r Reach) string { return r.Seek.phrase() },
	does: func(r Reach) string {
		return fmt.Sprintf("this skips %s; skipped events are never delivered", r.Seek.SkipsText())
	},
	grown: func(typed string, r Reach) bool {
		shown := Seek{Capped: strings.Contains(typed, " over ")}
		_, err := fmt.Sscanf(typed, shown.phraseForm(), &shown.Skips)
		return err == nil && typed == shown.phrase() && GrownAlike(shown.Skips, r.Seek.Skips) && (shown.Capped || !r.Seek.Capped)
	},
}

// phrase is the phrase that confirms the seek; empty if it skips nothing.
func (s Seek) phrase() string {
	if s.Skips == 0 {
		return ""
	}
	return fmt.Sprintf(s.phraseForm(), s.Skips)
}

// SkipsText is the number of events the seek skips: "1 event", "at least 5,000 events".
func (s Seek) SkipsText() string {
	text := Count(s.Skips, "event", "events")
	if s.Capped {
		return "at least " + text
	}
	return text
}

func (s Seek) phraseForm() string {
	if s.Capped {
		return "skip over %d events"
	}
	return "skip %d events"
}

// AtLeast formats a number at which counting may have stopped: "at least 5000".
func AtLeast(n int64, capped bool) string {
	if capped && n > 0 {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// byBlame confirms a publisher's skip of an event unless its last error blames the event: if the
// destination is at fault, other events would fail too.
var byBlame = &confirmation{
	phrase: func(r Reach) string {
		switch r.Blames {
		case DestinationError, UnknownError:
			return "skip anyway"
		}
		return ""
	},
	does: func(r Reach) string {
		if r.Blames == UnknownError {
			return fmt.Sprintf("the last error of publisher %s does not say that the event is at fault: if its destination is, the next event fails too; fix the destination and resume the publisher instead", r.Pair)
		}
		return fmt.Sprintf("the last error of publisher %s came from its destination, as far as is known: the next event may fail too; fix the destination and resume the publisher instead", r.Pair)
	},
}

// byDiscard always requires a phrase for discarding a row of a source.
var byDiscard = &confirmation{
	phrase: func(r Reach) string { return "discard " + r.Discards },
	does: func(Reach) string {
		return "a discarded row is deleted from its source, and its event never enters the journal"
	},
}

// byHandOver always requires a phrase for taking a source from another journal.
var byHandOver = &confirmation{
	phrase: func(r Reach) string { return "hand over " + r.Takes.Source },
	does: func(r Reach) string {
		return "the rows of source " + r.Takes.Source + " then go to this journal, and journal " + r.Takes.From + ", which has moved them, is refused"
	},
}

// byRebuild confirms a rebuild of all campaigns.
var byRebuild = &confirmation{
	phrase: func(r Reach) string {
		if r.Rebuilt == 0 {
			return ""
		}
		return "rebuild all campaigns"
	},
	does: func(r Reach) string { return "this replaces the rows of " + Count(r.Rebuilt, "campaign", "campaigns") },
}
