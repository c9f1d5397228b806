package operator

import (
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Actions of wide reach and irreversible actions are confirmed with a typed phrase: the same one on
// a page, over HTTP and on the command line. Phrase states which action requires which.

// ConfirmAbove is the number of rows, requeued or released, above which an action requires a
// phrase.
const ConfirmAbove = 1000

// Reach is the extent of an action, as far as its confirmation phrase depends on it.
type Reach struct {
	Rows     int64             // requeued
	Released int64             // rows waiting behind them
	Skipped  event.RowKey      // the event that a campaign skips
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

// Phrase is the phrase that confirms an action of this reach; empty if none is required.
func (a Action) Phrase(r Reach) string {
	switch a {
	case ActionRequeue:
		if r.Released > ConfirmAbove {
			return fmt.Sprintf(releaseRows, r.Released)
		}
	case ActionRequeueMany, ActionOperationStart:
		if max(r.Rows, r.Released) > ConfirmAbove {
			return fmt.Sprintf("requeue %d rows", r.Rows)
		}
	case ActionSkip:
		return fmt.Sprintf("skip %s %d", r.Skipped.CampaignID, r.Skipped.Seq)
	case ActionPublisherSeek:
		return r.Seek.phrase()
	case ActionPublisherSkip: // unless the last error blames the event: if the destination is at fault, other events would fail too
		if r.Blames == DestinationError || r.Blames == UnknownError {
			return "skip anyway"
		}
	case ActionIntakeDiscard:
		return "discard " + r.Discards
	case ActionIntakeHandOver:
		return "hand over " + r.Takes.Source
	case ActionRunStart:
		if r.Rebuilt > 0 {
			return "rebuild all campaigns"
		}
	}
	return ""
}

const releaseRows = "release %d rows"

// Confirm refuses an action of this reach unless its phrase was typed. The refusal says what the
// action does.
func (a Action) Confirm(typed string, r Reach) error {
	phrase := a.Phrase(r)
	if phrase == "" {
		return nil
	}
	if typed = strings.TrimSpace(typed); typed == phrase || a.confirmedBefore(typed, r) {
		return nil
	}
	return &event.Refusal{Err: event.ErrInvalid, Field: "confirm", Confirm: phrase, Detail: a.does(r)}
}

// does says what an action that requires a phrase does.
func (a Action) does(r Reach) string {
	switch a {
	case ActionRequeue:
		return "this action releases " + event.Count(r.Released, "row", "rows")
	case ActionRequeueMany, ActionOperationStart:
		return fmt.Sprintf("this requeues %s and releases %s", event.Count(r.Rows, "row", "rows"), event.Number(r.Released))
	case ActionSkip:
		return "a skipped event is never applied to any projection"
	case ActionPublisherSeek:
		return fmt.Sprintf("this skips %s; skipped events are never delivered", r.Seek.SkipsText())
	case ActionPublisherSkip:
		if r.Blames == UnknownError {
			return fmt.Sprintf("the last error of publisher %s does not say that the event is at fault: if its destination is, the next event fails too; fix the destination and resume the publisher instead", r.Pair)
		}
		return fmt.Sprintf("the last error of publisher %s came from its destination, as far as is known: the next event may fail too; fix the destination and resume the publisher instead", r.Pair)
	case ActionIntakeDiscard:
		return "a discarded row is deleted from its source, and its event never enters the journal"
	case ActionIntakeHandOver:
		return "the rows of source " + r.Takes.Source + " then go to this journal, and journal " + r.Takes.From + ", which has moved them, is refused"
	case ActionRunStart:
		return "this replaces the rows of " + event.Count(r.Rebuilt, "campaign", "campaigns")
	}
	return ""
}

// confirmedBefore reports whether the typed phrase was correct a moment ago: events keep coming, so it may
// state slightly fewer.
func (a Action) confirmedBefore(typed string, r Reach) bool {
	switch a {
	case ActionRequeue:
		var shown int64
		_, err := fmt.Sscanf(typed, releaseRows, &shown)
		return err == nil && typed == fmt.Sprintf(releaseRows, shown) && shown > ConfirmAbove && shown <= r.Released && GrownAlike(shown, r.Released)
	case ActionPublisherSeek:
		shown := Seek{Capped: strings.Contains(typed, " over ")}
		_, err := fmt.Sscanf(typed, shown.phraseForm(), &shown.Skips)
		return err == nil && typed == shown.phrase() && GrownAlike(shown.Skips, r.Seek.Skips) && (shown.Capped || !r.Seek.Capped)
	}
	return false
}

// GrownAlike reports whether a row count has grown insignificantly since it was shown: by at most a
// hundred, or a tenth.
func GrownAlike(shown, is int64) bool { return is <= shown+max(100, shown/10) }
