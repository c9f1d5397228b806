package store

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// appending is a transaction that appends events.
type appending struct {
	store     *Store
	t         *Tx
	now       int64
	campaigns map[string]*appendTarget
	taken     map[eventKey]*event.Event // existing events; nil for a queued one; no map on SQLite, where the insert reports them
	added     []eventKey                // keys that the current call added to taken
	fresh     []event.Event             // the new events, with their positions once those are drawn, and hashes
	head      int64                     // a position that is taken; positions drawn are above it. Read with the first event
	asked     bool                      // head is queued or read
	judged    bool                      // the current call has no condition or it was checked and holds
	queue     sqldb.Batch
	batch     []newEvent // to be inserted with the queue, where inserts are batched
}

// newEvent is an event to be inserted.
type newEvent struct {
	columns []any // the values of eventColumns
	result  *Appended
	chain   string
	queued  bool // its row is to be inserted, too
}

type eventKey struct{ campaign, eventID string }

// appendTarget is a campaign that events are being appended to.
type appendTarget struct {
	row    *CampaignRow
	stored int64 // high-water seq when the transaction began
	before int64 // high-water seq when the call began
}

// open locks the campaigns of all calls. Where others may create the same ones, it creates those that are new;
// elsewhere save does, with all that is to be said of them. Where inserts are batched it
// also looks up which events already exist.
func (a *appending) open(calls []*appendCall) error {
	if err := a.lockKeys(calls); err != nil {
		return err
	}
	var ids []string
	for _, call := range calls {
		for i := range call.Events {
			if id := call.Events[i].CampaignID; !slices.Contains(ids[max(0, len(ids)-1):], id) {
				ids = append(ids, id)
			}
		}
	}
	rows, err := a.t.openCampaigns(ids, a.now)
	if err != nil {
		return err
	}
	a.campaigns = make(map[string]*appendTarget, len(rows))
	for id, row := range rows {
		a.campaigns[id] = &appendTarget{row: row, stored: row.HighWater}
	}
	if !a.t.Dialect().Pipelines {
		return nil
	}
	return a.lookUp(calls)
}

func (a *appending) lookUp(calls []*appendCall) error {
	a.taken = make(map[eventKey]*event.Event)
	var b sqldb.Batch
	for _, call := range calls {
		for i := range call.Events {
			e := &call.Events[i]
			if e.EventID == "" || a.campaigns[e.CampaignID].stored == 0 {
				continue
			}
			b.Each(func(row sqldb.Row) error {
				stored, err := ScanEvent(row)
				a.taken[eventKey{e.CampaignID, e.EventID}] = &stored
				return err
			}, selectEventByID, e.CampaignID, e.EventID)
		}
	}
	return sqldb.Wrapf(a.t.RunAll(&b), "look for events that already exist")
}

// openCampaigns reads campaign rows, locked for update in this transaction, and creates the
// missing ones, on a database of one writer only in memory.
func (t *Tx) openCampaigns(ids []string, now int64) (map[string]*CampaignRow, error) {
	rows, err := t.Campaigns(ids)
	if err != nil {
		return nil, err
	}
	var missing sqldb.Batch
	var made []string
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) { // sorted, to avoid deadlocks
		switch {
		case rows[id] != nil:
		case t.Dialect().OneWriter:
			rows[id] = &CampaignRow{ID: id, unsaved: true}
		default:
			made = append(made, id)
			missing.Exec(nil, insertCampaign, id, now)
		}
	}
	if len(made) == 0 {
		return rows, nil
	}
	if err := t.RunAll(&missing); err != nil {
		return nil, fmt.Errorf("create campaigns: %w", err)
	}
	more, err := t.Campaigns(made) // another append may have created the row first
	maps.Copy(rows, more)
	return rows, err
}

// call appends the events of one call; the last statements may still be queued.
func (a *appending) call(call *appendCall) error {
	if call.key != nil {
		if repeated, err := a.repeated(call); repeated || err != nil {
			return err
		}
	}
	for i := range call.Events {
		target := a.campaigns[call.Events[i].CampaignID]
		target.before = target.row.HighWater
	}
	call.result = make([]Appended, len(call.Events))
	a.added, a.judged = a.added[:0], call.Condition == nil
	for i := range call.Events {
		if err := a.event(call, i); err != nil {
			return event.AtIndex(err, i)
		}
	}
	if call.key != nil {
		a.recordKey(call)
	}
	if call.Then != nil {
		return call.Then(a.t, call.result)
	}
	return nil
}

// callApart is call in a savepoint. It returns an error only when the whole transaction is
// lost. A refusal is stored in the call and leaves nothing in the database.
func (a *appending) callApart(call *appendCall) error {
	before, fresh, head := make(map[string]CampaignRow), len(a.fresh), a.head
	for i := range call.Events {
		id := call.Events[i].CampaignID
		before[id] = *a.campaigns[id].row
	}
	if _, err := a.t.Exec("savepoint call"); err != nil {
		return err
	}
	var refusal *event.Refusal
	call.err = a.call(call)
	if call.err == nil {
		call.err = a.flush()
	}
	if call.err != nil {
		taken := errors.Is(call.err, sqldb.ErrKeyTaken)
		if !errors.As(call.err, &refusal) && !taken {
			return call.err
		}
		a.queue, a.batch, a.fresh, a.head, a.asked = sqldb.Batch{}, nil, a.fresh[:fresh], head, head > 0
		for _, key := range a.added {
			delete(a.taken, key)
		}
		for id, row := range before {
			*a.campaigns[id].row = row
		}
		if _, err := a.t.Exec("rollback to savepoint call"); err != nil {
			return err
		}
		if taken {
			if err := a.explainTaken(call); err != nil {
				return err
			}
		}
	}
	_, err := a.t.Exec("release savepoint call")
	return err
}

// explainTaken replaces the database's unique violation on a seq with an error that names the
// cause: the campaign's row puts the end of the journal too low.
func (a *appending) explainTaken(call *appendCall) error {
	for i := range call.Events {
		id := call.Events[i].CampaignID
		var last int64
		var hash string
		if _, err := a.t.One([]any{&last, &hash}, SelectLastEvent, id); err != nil {
			return err
		}
		switch ends := a.campaigns[id].row.HighWater; {
		case ends >= last:
		case ends == 0:
			call.err = event.AtIndex(event.Conflict("campaign %q cannot accept events: its row is missing, but its last event is %d; restart, or run outboxweb gaps --repair", id, last), i)
		default:
			call.err = event.AtIndex(event.Conflict("campaign %q cannot accept events: its row says the journal ends at %d, but its last event is %d; run outboxweb check", id, ends, last), i)
		}
	}
	return nil
}

// flush runs the queued statements.
func (a *appending) flush() error {
	a.insertBatch()
	return sqldb.Wrapf(a.t.RunAll(&a.queue), "insert events")
}

// close runs the queued statements and saves the updated campaign rows.
func (a *appending) close() error {
	a.insertBatch()
	for _, target := range a.campaigns {
		a.save(target)
	}
	return sqldb.Wrapf(a.t.Finish(&a.queue), "insert events")
}

// eventColumns are those that an append writes.
var eventColumns = slices.Concat([]string{"seq", "occurred_at", "recorded_at"}, event.EnvelopeNames(), []string{"tags", "metadata", "payload", "event_hash", "chain_hash"})

var (
	insertAt = `
insert into events (position, ` + strings.Join(eventColumns, ", ") + `)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`

	insertNew = `
insert into events (` + strings.Join(eventColumns, ", ") + `)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
returning position, campaign_id, seq`

	// insertEvents is insertNew for a batch in its order, from an array for each column.
	insertEvents = `
insert into events (` + strings.Join(eventColumns, ", ") + `)
select ` + strings.Join(eventColumns, ", ") + `
from unnest(` + arrayParameters() + `) with ordinality as new (` + strings.Join(eventColumns, ", ") + `, nth)
order by nth
returning position, campaign_id, seq`
)

const numbers = 3 // of the eventColumns, the first

func arrayParameters() string {
	var all []string
	for i := range eventColumns {
		kind := "text"
		if i < numbers {
			kind = "bigint"
		}
		all = append(all, fmt.Sprintf("cast($%d as %s[])", i+1, kind))
	}
	return strings.Join(all, ", ")
}

const (
	insertRow = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
values ($1, $2, $3, $4, $4, $4)`

	insertRows = `
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
select campaign_id, seq, event_type, $4, $4, $4
from unnest(cast($1 as text[]), cast($2 as bigint[]), cast($3 as text[])) as new (campaign_id, seq, event_type)`
)

// insert inserts an event at once, at the next position, which nobody else draws meanwhile. If it exists, that
// one is returned instead.
func (a *appending) insert(e *newEvent) (existing *event.Event, err error) {
	if !a.asked {
		if _, err := a.t.One([]any{&a.head}, selectDrawnPosition); err != nil {
			return nil, err
		}
		a.asked = true
	}
	e.result.Position = a.head + 1
	if _, err = a.t.Exec(insertAt, append([]any{e.result.Position}, e.columns...)...); err == nil {
		err = a.placed(e)
		a.head = e.result.Position
	} else if errors.Is(err, sqldb.ErrKeyTaken) {
		stored, found, failed := a.t.event(selectEventByID, e.result.CampaignID, e.result.EventID)
		if failed != nil || found {
			return &stored, failed
		}
	}
	return nil, sqldb.Wrapf(err, "insert events")
}

// insertBatch queues the statements that insert the batch.
func (a *appending) insertBatch() {
	batch := a.batch
	if a.batch = nil; len(batch) == 0 {
		return
	}
	query, columns := insertNew, batch[0].columns
	if len(batch) > 1 {
		query, columns = insertEvents, make([]any, len(eventColumns))
		for i := range columns {
			if i < numbers {
				columns[i] = columnOf[int64](batch, i)
			} else {
				columns[i] = columnOf[string](batch, i)
			}
		}
	}
	nth := 0
	a.queue.Each(func(row sqldb.Row) error {
		e := &batch[nth]
		nth++
		var campaign string
		var seq int64
		if err := row.Scan(&e.result.Position, &campaign, &seq); err != nil {
			return err
		}
		if campaign != e.result.CampaignID || seq != e.result.Seq {
			return fmt.Errorf("event %d of campaign %q was inserted in the place of event %d of %q", seq, campaign, e.result.Seq, e.result.CampaignID)
		}
		return a.placed(e)
	}, query, columns...)
	rows := slices.DeleteFunc(slices.Clone(batch), func(e newEvent) bool { return !e.queued })
	switch len(rows) {
	case 0:
	case 1:
		values := rows[0].columns
		a.queue.Exec(nil, insertRow, values[numbers], values[0], values[numbers+2], a.now)
	default:
		a.queue.Exec(nil, insertRows, columnOf[string](rows, numbers), columnOf[int64](rows, 0), columnOf[string](rows, numbers+2), a.now)
	}
}

func columnOf[T any](batch []newEvent, column int) []T {
	values := make([]T, len(batch))
	for i := range batch {
		values[i] = batch[i].columns[column].(T)
	}
	return values
}

// placed notes the position that an event was inserted at.
func (a *appending) placed(e *newEvent) error {
	if e.result.Position <= a.head {
		return fmt.Errorf("position %d was drawn: %w", e.result.Position, errBelowHead)
	}
	a.fresh = append(a.fresh, event.Event{Position: e.result.Position, ChainHash: e.chain})
	return nil
}

// errBelowHead is the position of an event that readers would have passed already.
var errBelowHead = errors.New("the sequence of positions is behind the journal's last event, as after a copy of the tables")

// event appends one event of a call. It does not modify its input, since the call may be run a
// second time.
func (a *appending) event(call *appendCall, i int) error {
	given := &call.Events[i]
	if stored, taken := a.taken[eventKey{given.CampaignID, given.EventID}]; taken {
		return a.repeat(call, i, stored)
	}
	if !a.judged {
		if done, err := a.checkCondition(call, i); done || err != nil {
			return err
		}
	}
	target := a.campaigns[given.CampaignID]
	c := target.row
	seq := c.HighWater + 1
	e, err := a.assign(*given, c.ChainHash, seq)
	if err != nil {
		return err
	}
	call.result[i] = Appended{CampaignID: c.ID, Seq: seq, EventID: e.EventID}
	if a.taken != nil && !a.asked {
		a.asked = true
		a.queue.Each(func(row sqldb.Row) error { return row.Scan(&a.head) }, selectHeadPosition)
	}
	added := newEvent{columns: append(make([]any, 0, len(eventColumns)), seq, e.OccurredAt.UnixMicro(), a.now), result: &call.result[i], chain: e.ChainHash, queued: a.enqueues(c)}
	for _, text := range e.Envelope() {
		added.columns = append(added.columns, *text.Value)
	}
	added.columns = append(added.columns, string(e.Tags), string(e.Metadata), string(e.Payload), e.EventHash, e.ChainHash)
	if a.taken != nil {
		a.batch = append(a.batch, added)
	} else if existing, err := a.insert(&added); err != nil {
		return err
	} else if existing != nil {
		return a.repeat(call, i, existing)
	}
	switch {
	case call.ExpectedSeq != nil && target.before != *call.ExpectedSeq:
		return event.Conflict("campaign %q is at seq %d, not at the expected %d", c.ID, target.before, *call.ExpectedSeq)
	case given.Seq != 0 && given.Seq != seq:
		refusal := event.Conflict("seq %d was given, but the next seq of campaign %q is %d", given.Seq, c.ID, seq)
		refusal.NextSeq = seq
		return refusal
	}
	if added.queued && a.taken == nil {
		a.queue.Exec(nil, insertRow, c.ID, seq, e.EventType, a.now)
	}
	if a.taken != nil {
		key := eventKey{e.CampaignID, e.EventID}
		a.taken[key], a.added = nil, append(a.added, key)
	}
	c.HighWater, c.ChainHash = seq, e.ChainHash
	return nil
}

// assign fills in the hashes and the fields that the writer left empty.
func (a *appending) assign(e event.Event, lastChain string, seq int64) (event.Event, error) {
	if e.EventID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return e, fmt.Errorf("make an event id: %w", err)
		}
		e.EventID = id.String()
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = sqldb.At(a.now)
	}
	e.EventHash = e.ContentHash()
	e.ChainHash = event.NextChainHash(lastChain, seq, e.EventHash)
	return e, nil
}

// enqueues reports whether events appended to a campaign get rows. In inline mode only events
// that the request path will not apply at once get one.
func (a *appending) enqueues(c *CampaignRow) bool {
	return a.store.options.Mode.Enqueues() || c.Head.Valid || c.PausedAt.Valid || c.Diverged != ""
}

// checkCondition checks the condition of a call against the journal before event i, the first
// new event of the call. done is true when the event turns out to exist already and has been
// answered.
func (a *appending) checkCondition(call *appendCall, i int) (done bool, err error) {
	if err := a.flush(); err != nil { // events of earlier calls in the group count
		return false, err
	}
	if given := &call.Events[i]; a.taken == nil && given.EventID != "" {
		stored, found, err := a.t.event(selectEventByID, given.CampaignID, given.EventID)
		if err != nil {
			return false, err
		}
		if found {
			return true, a.repeat(call, i, &stored)
		}
	}
	a.judged = true
	return false, a.t.checkCondition(call.Condition)
}

var selectEventByID = SelectEvent + `
where campaign_id = $1
  and event_id = $2`

// repeat answers an event whose event_id exists: with the stored event, read if necessary, when
// the content is the same, and with a conflict otherwise.
func (a *appending) repeat(call *appendCall, i int, stored *event.Event) (err error) {
	given := call.Events[i]
	if stored == nil {
		if err := a.flush(); err != nil {
			return err
		}
		e, found, err := a.t.event(selectEventByID, given.CampaignID, given.EventID)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("event %q of campaign %q exists and cannot be read", given.EventID, given.CampaignID)
		}
		stored = &e
	}
	if call.AnyTime {
		given.OccurredAt = stored.OccurredAt
	}
	call.result[i], err = sameEvent(given, *stored)
	return err
}

// sameEvent compares a given event with the stored one. Fields that the writer left to be
// assigned are not compared.
func sameEvent(given, stored event.Event) (Appended, error) {
	if given.OccurredAt.IsZero() {
		given.OccurredAt = stored.OccurredAt
	}
	differing := event.DifferingFields(given, stored)
	switch {
	case len(differing) > 0:
		return Appended{}, event.Conflict("event %q of campaign %q already exists at seq %d with different content (%s)", given.EventID, given.CampaignID, stored.Seq, strings.Join(differing, ", "))
	case given.Seq != 0 && given.Seq != stored.Seq:
		return Appended{}, event.Conflict("event %q of campaign %q already exists at seq %d, not at the given %d", given.EventID, given.CampaignID, stored.Seq, given.Seq)
	}
	return Appended{CampaignID: stored.CampaignID, Seq: stored.Seq, Position: stored.Position, EventID: stored.EventID, Existed: true}, nil
}

const deleteEmptyCampaign = `
delete from campaigns
where campaign_id = $1
  and high_water_seq = 0`

// save queues the update of the campaign's row if events were appended. A campaign that was
// created for events that were then refused is deleted.
func (a *appending) save(target *appendTarget) {
	c := target.row
	added := c.HighWater - target.stored
	if added == 0 {
		if c.HighWater == 0 && c.Diverged == "" && !c.unsaved {
			a.queue.Exec(nil, deleteEmptyCampaign, c.ID)
		}
		return
	}
	if !c.Oldest.Valid {
		c.Oldest = sql.NullInt64{Int64: a.now, Valid: true}
	}
	if a.enqueues(c) {
		first := target.stored + 1
		if inline := !a.store.options.Mode.Enqueues(); inline && !c.Head.Valid && c.LeaseOwner == "" && c.Diverged == "" && first > c.Applied+1 {
			first = c.Applied + 1 // events that requests left unapplied come first
			a.queue.Exec(nil, InsertMissingRows, c.ID, c.Applied, a.now)
		}
		c.Counts.Pending += c.HighWater - first + 1
		if !c.Head.Valid {
			c.Head = sql.NullInt64{Int64: first, Valid: true}
			c.HeadStatus = sql.NullString{String: string(event.Pending), Valid: true}
			c.HeadNext = sql.NullInt64{Int64: a.now, Valid: true}
			c.Schedule(a.now)
		}
	}
	c.saveAppendedInto(&a.queue, a.now)
}
