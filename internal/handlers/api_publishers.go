package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// subscriptionParam returns the publisher named in an address.
func subscriptionParam(r *http.Request) (name outbox.SubscriptionName, err error) {
	if name.Topic, err = param(r, "topic"); err == nil {
		name.Publisher, err = param(r, "publisher")
	}
	return name, err
}

// seekShown is the preview of a seek that the caller saw.
type seekShown struct {
	Repeats int64 `json:"repeats" validate:"min=0"`
	Skips   int64 `json:"skips" validate:"min=0"`
	Capped  bool  `json:"capped"`
}

// seekBody moves a publisher's position to one of position, time and to.
type seekBody struct {
	Position *int64     `json:"position" validate:"omitnil,min=0"` // continue with the first event after this position
	Time     string     `json:"time"`                              // RFC 3339, or a date: continue with the first event recorded at or after it
	To       string     `json:"to" validate:"omitempty,oneof=head beginning"`
	DryRun   bool       `json:"dry_run"`                  // change nothing and answer with what the seek would do
	Expected *seekShown `json:"expected"`                 // the result of a dry run; if the seek would now repeat or skip many more events it is refused with 409
	Reason   string     `json:"reason" validate:"reason"` // required when events are skipped
	// required when events are skipped: the phrase skip N events, with N from the dry run; skip
	// over N events if that number is capped
	Confirm string `json:"confirm" validate:"phrase"`
}

// target returns the target of the seek; exactly one field must name it.
func (b seekBody) target() (outbox.SeekTarget, error) {
	when, err := outbox.ParseSince("time", b.Time)
	if err != nil {
		return outbox.SeekTarget{}, err
	}
	given := 0
	for _, is := range []bool{b.Position != nil, b.Time != "", b.To != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return outbox.SeekTarget{}, outbox.Invalid("position", "give exactly one of position, time and to; %d are given", given)
	}
	return outbox.SeekTarget{Position: b.Position, Time: when, Head: b.To == "head", Beginning: b.To == "beginning"}, nil
}

// seen returns the preview that the caller saw, for the store.
func (b seekBody) seen() *outbox.Seek {
	if b.Expected == nil {
		return nil
	}
	return &outbox.Seek{Repeats: b.Expected.Repeats, Skips: b.Expected.Skips, Capped: b.Expected.Capped}
}

func (s *server) readPublisherHistory(r *http.Request) (outbox.PublisherHistory, error) {
	name, err := subscriptionParam(r)
	if err != nil {
		return outbox.PublisherHistory{}, err
	}
	over, err := s.readRange(r)
	if err != nil {
		return outbox.PublisherHistory{}, err
	}
	return s.Publishers.History(r.Context(), name, over)
}

// apiSeekPublisher moves a publisher's position. With dry_run it only answers what that would do,
// which a read-only server does too.
func (s *server) apiSeekPublisher(w http.ResponseWriter, r *http.Request) error {
	name, err := subscriptionParam(r)
	if err != nil {
		return err
	}
	var body seekBody
	err = decode(r, &body)
	if body.DryRun {
		onlyAsks(r)
	}
	if err != nil {
		return err
	}
	target, err := body.target()
	if err != nil {
		return err
	}
	seek, err := s.seekPublisher(r, name, target, body)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, seek)
}

func (s *server) seekPublisher(r *http.Request, name outbox.SubscriptionName, target outbox.SeekTarget, body seekBody) (outbox.Seek, error) {
	if body.DryRun {
		return s.previewSeekTo(r.Context(), name, target)
	}
	if err := needs(r, outbox.ActionPublisherSeek.Role()); err != nil {
		return outbox.Seek{}, err
	}
	if err := s.refuseReadOnly(); err != nil {
		return outbox.Seek{}, err
	}
	return s.Publishers.Seek(r.Context(), s.command(r, "api", body), name, target, body.seen())
}

// recordTime bounds writing the audit record of an action that is already done.
const recordTime = 10 * time.Second

// testPublisher sends a made-up event to a publisher's destination and records the outcome, even if
// the client has disconnected meanwhile. A command whose idempotency key was used before sends
// nothing.
func (s *server) testPublisher(ctx context.Context, o outbox.Command, name outbox.SubscriptionName) (outbox.TestDelivery, error) {
	done, err := s.Publishers.AdmitTest(ctx, o, name)
	if err != nil {
		return outbox.TestDelivery{}, err
	}
	if done != nil {
		return *done, nil
	}
	if s.TestPublisher == nil {
		return outbox.TestDelivery{}, outbox.Conflict("publisher %s is not in this server's configuration; send the test from a server that has it", name)
	}
	sent, err := s.TestPublisher(ctx, name)
	if err != nil {
		return sent, err
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return sent, s.Publishers.RecordTestDelivery(recording, o, sent)
}
