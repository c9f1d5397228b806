package store

import (
	"context"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Append is a request to append events: all of them or none.
type Append struct {
	Events []event.Event
	// ExpectedSeq makes the append conditional: the campaign's high-water
	// seq must be this. All events must then be of one campaign.
	ExpectedSeq *int64
	// AnyTime takes an event for one that exists also when only occurred_at differs.
	AnyTime bool
	// Condition makes the append conditional: no event of the journal may match it. nil means no
	// condition. A call whose events are all in the journal already is answered as without one.
	Condition *event.AppendCondition
	// Then runs in the transaction, after the events, and again if the transaction is repeated. Its
	// *event.Refusal refuses this append; any other error undoes those of other callers in the
	// transaction too. nil does nothing.
	Then func(*Tx, []Appended) error
}

// Appended is the position of one event in the journal.
type Appended struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	Seq        int64  `json:"seq"`
	Position   int64  `json:"position"`
	EventID    string `json:"event_id" redact:"-"`
	Existed    bool   `json:"existed"` // the same event was already in the journal
}

// OnAppend registers a function that is called after every append that was not refused, with
// the number of new events and the duration. The appending goroutine calls it, so it must not
// block. Register it before the first append.
func (s *Store) OnAppend(appended func(events int, took time.Duration)) { s.appended = appended }

// Append writes events to the journal in one transaction, each with its outbox row unless the
// request path is to apply it. An event whose event_id is already in the journal returns the
// stored event if the content is the same, and is a conflict otherwise. Once Append returns
// nil, the events survive a power failure.
//
// Errors the writer can cause are *event.Refusal with ErrInvalid, ErrTooLarge or ErrConflict.
// Index is the position of the refused event in the request, or BlockingEvent is the journal event
// that violates the condition. Concurrent callers share commits.
func (s *Store) Append(ctx context.Context, a Append) ([]Appended, error) {
	call, err := s.append(ctx, a, nil)
	if err != nil {
		return nil, err
	}
	return call.result, nil
}

// AppendOnce is Append with an idempotency key; all events must be of one campaign. The key is
// written with the events. A second call with the same key and request appends nothing and
// returns the first result with repeated true; with another request it is event.ErrInvalid. A
// refused append leaves its key free.
func (s *Store) AppendOnce(ctx context.Context, a Append, key AppendKey) (result []Appended, repeated bool, err error) {
	call, err := s.append(ctx, a, &key)
	if err != nil {
		return nil, false, err
	}
	return call.result, call.repeated, nil
}

func (s *Store) append(ctx context.Context, a Append, key *AppendKey) (*appendCall, error) {
	if err := s.Refuse(); err != nil {
		return nil, err
	}
	var err error
	if a.Events, err = s.validate(a, key); err != nil {
		return nil, err
	}
	began := time.Now()
	call := &appendCall{Append: a, weight: weigh(a.Events), key: key, until: began.Add(s.options.Wait), done: make(chan struct{})}
	s.group.submit(call, func(calls []*appendCall) { s.commitGroup(ctx, calls) })
	<-call.done
	if call.err != nil {
		return nil, call.err
	}
	s.WakeUp()
	if s.appended != nil && !call.repeated {
		made := 0
		for _, r := range call.result {
			if !r.Existed {
				made++
			}
		}
		s.appended(made, time.Since(began))
	}
	return call, nil
}

// validate refuses events that no journal accepts and returns the others normalized.
func (s *Store) validate(a Append, key *AppendKey) ([]event.Event, error) {
	if len(a.Events) == 0 {
		return nil, event.Invalid("events", "there is no event to append")
	}
	events := slices.Clone(a.Events)
	for i := range events {
		if err := events[i].Normalize(s.options.MaxPayload); err != nil {
			return nil, event.AtIndex(err, i)
		}
		switch other := events[i].CampaignID != events[0].CampaignID; {
		case other && key != nil:
			return nil, event.AtIndex(event.Invalid("campaign_id", "an append with an idempotency key takes events of one campaign only"), i)
		case other && a.ExpectedSeq != nil:
			return nil, event.AtIndex(event.Invalid("expected_seq", "expected_seq needs events of one campaign only"), i)
		}
	}
	if a.Condition != nil {
		return events, a.Condition.Validate()
	}
	return events, nil
}
