package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"outboxweb/internal/outbox"
)

// Append is a request to append events: all of them or none.
type Append struct {
	Events []outbox.Event
	// ExpectedSeq makes the append conditional: the campaign's high-water
	// seq must be this. All events must then be of one campaign.
	ExpectedSeq *int64
}

// Appended tells where one event stands in the journal.
type Appended struct {
	CampaignID string `json:"campaign_id"`
	Seq        int64  `json:"seq"`
	Position   int64  `json:"position"`
	EventID    string `json:"event_id"`
	Existed    bool   `json:"existed"` // the same event was there already
}

// Append writes events to the journal, each with its outbox row unless the
// mode enqueues none, in one transaction. An event whose event_id is there
// already with the same content is answered with the stored one; with other
// content it is a conflict. Once Append returns nil, the events survive a
// power failure.
//
// Errors made for the writer are *outbox.Refusal with ErrInvalid, ErrTooLarge
// or ErrConflict, whose Index says which event. Concurrent callers share
// commits.
func (s *Store) Append(ctx context.Context, a Append) ([]Appended, error) {
	if err := s.refuseReadOnly(); err != nil {
		return nil, err
	}
	if len(a.Events) == 0 {
		return nil, outbox.Invalid("events", "there is no event to append")
	}
	events := make([]outbox.Event, len(a.Events))
	for i := range a.Events {
		events[i] = a.Events[i]
		if err := events[i].Normalize(s.options.MaxPayload); err != nil {
			return nil, atIndex(err, i)
		}
		if a.ExpectedSeq != nil && events[i].CampaignID != events[0].CampaignID {
			return nil, atIndex(outbox.Invalid("expected_seq", "expected_seq needs all events to be of one campaign"), i)
		}
	}
	call := &appendCall{events: events, expected: a.ExpectedSeq, done: make(chan struct{})}
	s.group.submit(call, func(calls []*appendCall) { s.commitGroup(ctx, calls) })
	<-call.done
	if call.err != nil {
		return nil, call.err
	}
	s.wakeUp()
	return call.result, nil
}

func atIndex(err error, i int) error {
	var r *outbox.Refusal
	if errors.As(err, &r) {
		r.Index = i
	}
	return err
}

// appendCall is one caller's append on its way through a group commit.
type appendCall struct {
	events   []outbox.Event
	expected *int64
	result   []Appended
	err      error
	done     chan struct{}
	lead     chan struct{} // closed when this caller is to commit the next group
}

// appendGroup joins the appends of concurrent callers into one transaction:
// while one commits, the others queue up, and the first of them commits them
// all. A single caller never waits for company.
type appendGroup struct {
	mu      sync.Mutex
	waiting []*appendCall
	busy    bool
}

// groupLimit bounds how many appends share a commit, so that none waits for a
// transaction without end.
const groupLimit = 128

func (g *appendGroup) submit(call *appendCall, commit func([]*appendCall)) {
	g.mu.Lock()
	call.lead = make(chan struct{})
	g.waiting = append(g.waiting, call)
	if g.busy {
		g.mu.Unlock()
		select {
		case <-call.done:
			return
		case <-call.lead:
		}
		g.mu.Lock()
	}
	g.busy = true
	n := min(len(g.waiting), groupLimit)
	calls := g.waiting[:n:n]
	g.waiting = append([]*appendCall(nil), g.waiting[n:]...)
	g.mu.Unlock()

	commit(calls)
	for _, c := range calls {
		close(c.done)
	}

	g.mu.Lock()
	if len(g.waiting) > 0 {
		close(g.waiting[0].lead)
	} else {
		g.busy = false
	}
	g.mu.Unlock()
}

// commitGroup runs the calls in one transaction. As long as none is refused
// they need no savepoints; when one is, the group is run again with each call
// in a savepoint of its own, so that the refused ones undo only themselves. The
// leader's context must not decide over the others.
func (s *Store) commitGroup(ctx context.Context, calls []*appendCall) {
	ctx = context.WithoutCancel(ctx)
	err := s.commitTogether(ctx, calls)
	var refusal *outbox.Refusal
	if errors.As(err, &refusal) && len(calls) > 1 {
		err = s.commitApart(ctx, calls)
	}
	for _, call := range calls {
		if err != nil && call.err == nil {
			call.result, call.err = nil, err
			if !errors.As(err, &refusal) {
				call.err = fmt.Errorf("append: %w", err)
			}
		}
	}
}

func (s *Store) commitTogether(ctx context.Context, calls []*appendCall) error {
	return s.journal.write(ctx, func(t *tx) error {
		now := s.now()
		for _, call := range calls {
			var err error
			if call.result, err = s.appendEvents(t, call, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) commitApart(ctx context.Context, calls []*appendCall) error {
	return s.journal.write(ctx, func(t *tx) error {
		now := s.now()
		for _, call := range calls {
			if err := s.appendInSavepoint(t, call, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// appendInSavepoint runs one call. It returns an error only when the whole
// transaction is lost; a refusal stays with the call.
func (s *Store) appendInSavepoint(t *tx, call *appendCall, now int64) error {
	if _, err := t.exec("savepoint call"); err != nil {
		return err
	}
	var refusal *outbox.Refusal
	call.result, call.err = s.appendEvents(t, call, now)
	if call.err != nil {
		if !errors.As(call.err, &refusal) {
			return call.err
		}
		if _, err := t.exec("rollback to savepoint call"); err != nil {
			return err
		}
	}
	_, err := t.exec("release savepoint call")
	return err
}

// appendEvents writes the events of one call, campaign rows last.
func (s *Store) appendEvents(t *tx, call *appendCall, now int64) ([]Appended, error) {
	campaigns := make(map[string]*appendTarget, 1)
	results := make([]Appended, len(call.events))
	for i := range call.events {
		id := call.events[i].CampaignID
		target, ok := campaigns[id]
		if !ok {
			var err error
			if target, err = t.appendTarget(id, now); err != nil {
				return nil, err
			}
			campaigns[id] = target
		}
		result, err := s.appendEvent(t, target, call.events[i], call.expected, now)
		if err != nil {
			return nil, atIndex(err, i)
		}
		results[i] = result
	}
	for _, target := range campaigns {
		if err := s.saveTarget(t, target, now); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// appendTarget is a campaign while events are appended to it.
type appendTarget struct {
	row    *campaignRow
	before int64 // high-water seq when the call began
}

func (t *tx) appendTarget(id string, now int64) (*appendTarget, error) {
	row, found, err := t.campaign(id)
	if err == nil && !found {
		_, err = t.exec(insertCampaign, id, now)
		row = &campaignRow{id: id, createdAt: now}
	}
	if err != nil {
		return nil, fmt.Errorf("open campaign %q: %w", id, err)
	}
	return &appendTarget{row: row, before: row.highWater}, nil
}

// insertEvent inserts nothing when the event_id is taken. An "on conflict do
// nothing" would do so too, but use up a position each time.
const insertEvent = `
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at,
  actor_type, actor_id, entity_type, entity_id, session_id, request_id, correlation_id, causation_id,
  tags, metadata, payload, event_hash, chain_hash)
select $1, cast($2 as bigint), $3, $4, cast($5 as bigint), cast($6 as bigint), $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19
where not exists (select 1 from events where campaign_id = $1 and event_id = $3)
returning position`

const insertRow = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
values ($1, $2, $3, $4, $4, $4)`

// appendEvent writes one event. It leaves what was given as it is, since the
// call may be run a second time.
func (s *Store) appendEvent(t *tx, target *appendTarget, given outbox.Event, expected *int64, now int64) (Appended, error) {
	c, e := target.row, given
	if e.EventID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return Appended{}, fmt.Errorf("make an event id: %w", err)
		}
		e.EventID = id.String()
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = at(now)
	}
	seq := c.highWater + 1
	e.EventHash = e.ContentHash()
	e.ChainHash = outbox.NextChainHash(c.chainHash, seq, e.EventHash)
	var position int64
	inserted, err := t.one([]any{&position}, insertEvent, e.CampaignID, seq, e.EventID, e.EventType, e.OccurredAt.UnixMicro(), now,
		e.ActorType, e.ActorID, e.EntityType, e.EntityID, e.SessionID, e.RequestID, e.CorrelationID, e.CausationID,
		string(e.Tags), string(e.Metadata), string(e.Payload), e.EventHash, e.ChainHash)
	switch {
	case err != nil:
		return Appended{}, fmt.Errorf("insert event into campaign %q: %w", e.CampaignID, err)
	case !inserted:
		return t.sameEvent(given)
	case expected != nil && target.before != *expected:
		return Appended{}, outbox.Conflict("campaign %q stands at seq %d, not at the expected %d", c.id, target.before, *expected)
	case given.Seq != 0 && given.Seq != seq:
		return Appended{}, outbox.Conflict("seq %d was given, but the next seq of campaign %q is %d", given.Seq, c.id, seq)
	}
	if s.options.Mode.Enqueues() {
		if _, err := t.exec(insertRow, c.id, seq, e.EventType, now); err != nil {
			return Appended{}, fmt.Errorf("insert the outbox row of campaign %q seq %d: %w", c.id, seq, err)
		}
	}
	c.highWater, c.chainHash = seq, e.ChainHash
	return Appended{CampaignID: c.id, Seq: seq, Position: position, EventID: e.EventID}, nil
}

// sameEvent answers an append whose event_id is taken: the stored event if it
// says the same, a conflict otherwise. What the writer left to be assigned is
// not compared.
func (t *tx) sameEvent(given outbox.Event) (Appended, error) {
	stored, found, err := t.event(selectEvent+` where campaign_id = $1 and event_id = $2`, given.CampaignID, given.EventID)
	if err != nil {
		return Appended{}, err
	}
	if !found {
		return Appended{}, fmt.Errorf("event %q of campaign %q is taken and cannot be found", given.EventID, given.CampaignID)
	}
	if given.OccurredAt.IsZero() {
		given.OccurredAt = stored.OccurredAt
	}
	switch {
	case !outbox.SameContent(given, stored):
		return Appended{}, outbox.Conflict("event %q of campaign %q is there already, at seq %d, with other content", given.EventID, given.CampaignID, stored.Seq)
	case given.Seq != 0 && given.Seq != stored.Seq:
		return Appended{}, outbox.Conflict("event %q of campaign %q is there already, at seq %d and not at the given %d", given.EventID, given.CampaignID, stored.Seq, given.Seq)
	}
	return Appended{CampaignID: stored.CampaignID, Seq: stored.Seq, Position: stored.Position, EventID: stored.EventID, Existed: true}, nil
}

// saveTarget brings the campaign's row up to the events just written.
func (s *Store) saveTarget(t *tx, target *appendTarget, now int64) error {
	c := target.row
	added := c.highWater - target.before
	if added == 0 {
		return nil
	}
	if s.options.Mode.Enqueues() {
		c.counts.Pending += added
		if !c.head.Valid {
			c.head = sql.NullInt64{Int64: target.before + 1, Valid: true}
			c.headStatus = sql.NullString{String: string(outbox.Pending), Valid: true}
			c.headNext = sql.NullInt64{Int64: now, Valid: true}
			c.oldest = c.headNext
			c.schedule(now)
		}
	}
	return t.save(c, now)
}
