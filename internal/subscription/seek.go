package subscription

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// SeekRequest moves a publisher's position to one of position, time and to.
type SeekRequest struct {
	Position *int64        `json:"position,omitempty" validate:"omitnil,min=0" placeholder:"N" help:"Continue with the first event after this position."`    // continue with the first event after this position
	Time     string        `json:"time,omitempty" placeholder:"T" help:"Continue with the first event recorded at or after this time: RFC 3339, or a date."` // RFC 3339, or a date: continue with the first event recorded at or after it
	To       string        `json:"to,omitempty" validate:"omitempty,oneof=head beginning" enum:",head,beginning" default:"" placeholder:"WHERE" help:"Continue with the next event appended (head), or with the first event of the journal (beginning)."`
	DryRun   bool          `json:"dry_run,omitempty" help:"Change nothing; print what the seek would repeat or skip."`                                   // change nothing and answer with what the seek would do
	Expected *ExpectedSeek `json:"expected,omitempty" kong:"-"`                                                                                          // the result of a dry run; if the seek would now repeat or skip many more events it is refused with 409
	Reason   string        `json:"reason" validate:"reason" placeholder:"TEXT" help:"The reason, for the audit log. Required if the seek skips events."` // required when events are skipped
	// required when events are skipped: the phrase skip N events, with N from the dry run; skip
	// over N events if that number is capped
	Confirm string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"Confirms a seek that skips events, e.g. 'skip 43 events'. Prompted for at a terminal if not given."`
}

// ExpectedSeek is the preview of a seek that the caller saw.
type ExpectedSeek struct {
	Repeats int64 `json:"repeats" validate:"min=0"`
	Skips   int64 `json:"skips" validate:"min=0"`
	Capped  bool  `json:"capped,omitempty"`
}

// Target returns the target of the seek; exactly one field must name it.
func (r SeekRequest) Target() (SeekTarget, error) {
	when, err := event.ParseSince("time", r.Time)
	if err != nil {
		return SeekTarget{}, err
	}
	given := 0
	for _, is := range []bool{r.Position != nil, r.Time != "", r.To != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return SeekTarget{}, event.Invalid("position", "give exactly one of position, time and to; %d are given", given)
	}
	return SeekTarget{Position: r.Position, Time: when, Head: r.To == "head", Beginning: r.To == "beginning"}, nil
}

// Seen is the preview that the caller saw; nil if the caller does not tell.
func (r SeekRequest) Seen() *operator.Seek {
	if r.Expected == nil {
		return nil
	}
	return &operator.Seek{Repeats: r.Expected.Repeats, Skips: r.Expected.Skips, Capped: r.Expected.Capped}
}

// SeekTarget is the new position of a subscription. Exactly one field must be set.
type SeekTarget struct {
	Position  *int64    // continue with the first event after it
	Time      time.Time // continue with the first event recorded at or after it
	Head      bool      // continue with the next appended event
	Beginning bool      // continue with the first event of the journal
}

// PublisherSkipRequest asks for the skip of a publisher's blocking event.
type PublisherSkipRequest struct {
	Position int64  `json:"position" validate:"required,min=1" arg:"" help:"The position of the blocking event, as reported by show."`                                                                             // position of the blocking event, as in error_position
	Reason   string `json:"reason" validate:"reason" api:"required" placeholder:"TEXT" help:"The reason, for the audit log. Required for a skip."`                                                                 // required
	Confirm  string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"The phrase 'skip anyway', required when the last error is the destination's. Prompted for at a terminal if not given."` // 'skip anyway' where the last error blames the destination
}
