package operator

import (
	"errors"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"testing"
)

func TestAction_isConfirmedByThePhraseOfItsReach(t *testing.T) {
	t.Parallel()
	skipped := Reach{Skipped: event.RowKey{CampaignID: "c-1", Seq: 4}}
	pair := SubscriptionName{Topic: "all", Publisher: "archive"}
	few, many := Reach{Seek: Seek{Skips: 40}}, Reach{Seek: Seek{Skips: 90_000, Capped: true}}
	for _, c := range []struct {
		action Action
		reach  Reach
		phrase string
		typed  string
		want   bool
	}{
		{ActionRequeue, Reach{Released: ConfirmAbove}, "", "", true},
		{ActionRequeue, Reach{Released: 1001}, "release 1001 rows", "", false},
		{ActionRequeue, Reach{Released: 1001}, "release 1001 rows", " release 1001 rows\n", true},
		{ActionRequeue, Reach{Released: 1201}, "release 1201 rows", "release 1101 rows", true}, // others were appended meanwhile
		{ActionRequeue, Reach{Released: 1202}, "release 1202 rows", "release 1001 rows", false},
		{ActionRequeue, Reach{Released: 1050}, "release 1050 rows", "release 1000 rows", false}, // a phrase that was never shown
		{ActionRequeue, Reach{Released: 1050}, "release 1050 rows", "release 1051 rows", false},
		{ActionRequeue, Reach{Released: 1050}, "release 1050 rows", "release +1050 rows", false},
		{ActionRetry, Reach{Released: 9000}, "", "", true},
		{ActionRequeueMany, Reach{Rows: 1000, Released: 1000}, "", "", true},
		{ActionRequeueMany, Reach{Rows: 43, Released: 1001}, "requeue 43 rows", "requeue 43 rows", true},
		{ActionOperationStart, Reach{Rows: 1001}, "requeue 1001 rows", "requeue 1001 rows ", true},
		{ActionOperationStart, Reach{Rows: 1001}, "requeue 1001 rows", "requeue 1000 rows", false},
		{ActionSkip, skipped, "skip c-1 4", "skip c-1 4", true},
		{ActionSkip, skipped, "skip c-1 4", "", false},
		{ActionPublisherSkip, Reach{Pair: pair, Blames: EventError}, "", "", true},
		{ActionPublisherSkip, Reach{Pair: pair, Blames: DestinationError}, "skip anyway", "", false},
		{ActionPublisherSkip, Reach{Pair: pair, Blames: UnknownError}, "skip anyway", "", false},
		{ActionPublisherSkip, Reach{Pair: pair, Blames: DestinationError}, "skip anyway", "skip anyway", true},
		{ActionRunStart, Reach{}, "", "", true},
		{ActionRunStart, Reach{Rebuilt: 20}, "rebuild all campaigns", "rebuild", false},
		{ActionRunStart, Reach{Rebuilt: 20}, "rebuild all campaigns", "rebuild all campaigns", true},
		{ActionPause, Reach{Rows: 9000, Released: 9000}, "", "", true},
		{ActionPublisherSeek, Reach{Seek: Seek{Repeats: 9}}, "", "", true},
		{ActionPublisherSeek, few, "skip 40 events", "", false},
		{ActionPublisherSeek, few, "skip 40 events", " skip 40 events\n", true},
		{ActionPublisherSeek, few, "skip 40 events", "skip 40 events please", false},
		{ActionPublisherSeek, few, "skip 40 events", "skip 1 events", true},    // others were appended meanwhile
		{ActionPublisherSeek, few, "skip 40 events", "skip 900 events", true},  // some were delivered meanwhile
		{ActionPublisherSeek, few, "skip 40 events", "skip +40 events", false}, // not as it was shown
		{ActionPublisherSeek, few, "skip 40 events", "skip over 40 events", true},
		{ActionPublisherSeek, few, "skip 40 events", "release 40 rows", false},
		{ActionPublisherSeek, many, "skip over 90000 events", "skip over 90000 events", true},
		{ActionPublisherSeek, many, "skip over 90000 events", "skip 90000 events", false},
		{ActionPublisherSeek, many, "skip over 90000 events", "skip over 40 events", false}, // that was another seek
	} {
		must.Equal(t, c.action.Phrase(c.reach), c.phrase, "of", c.reach, "asks for")
		err := c.action.Confirm(c.typed, c.reach)
		must.Hold(t, (err == nil) == c.want, "%s of %+v by %q: %v", c.action, c.reach, c.typed, err)
		var refusal *event.Refusal
		must.Hold(t, err == nil || errors.As(err, &refusal) && errors.Is(err, event.ErrInvalid) && refusal.Confirm == c.phrase && refusal.Field == "confirm" && refusal.Detail != "", "%s of %+v is refused with %+v", c.action, c.reach, refusal)
	}
}
