package publishing

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

type publisherRow struct {
	operator.SubscriptionName
	destination string
	match       subscription.Match
	maxErrors   int64
	settings    subscription.PublisherSettings

	status           subscription.PublisherStatus
	position         int64
	deliveredAt      int64 // a position
	delivered        int64
	errors           int64
	errorKind        operator.DeliveryErrorKind
	lastError        string
	lastErrorAt      sql.NullInt64
	errorPosition    int64
	retryAt          sql.NullInt64
	stopped          bool
	lastPublished    sql.NullInt64
	perSecond        float64
	nextPoll         sql.NullInt64
	healthy          sql.NullInt64 // 0 or 1, if the publisher says so
	healthMessage    string
	healthAt         sql.NullInt64
	hangingSince     sql.NullInt64 // when the call began that does not return
	testTaken        sql.NullInt64 // 1 if the destination took a test event since its errors began, 0 if it refused it
	pausedAt         sql.NullInt64
	pausedBy         string
	pausedReason     string
	actions          int64 // changes by operators
	owner            string
	epoch            int64
	expires          int64
	wantedBy         string
	wantedAt         int64
	created, updated int64
}

const publisherColumns = `topic, publisher, destination, selects, max_errors,
  status, position, delivered_position, delivered, error_count, error_kind, last_error, last_error_at, error_position, retry_at, stopped,
  last_published_at, events_per_second, next_poll_at, paused_at, paused_by, paused_reason, acts,
  lease_owner, lease_epoch, lease_expires_at, wanted_by, wanted_at, created_at, updated_at, settings, healthy, health_message, health_at, hanging_since, test_taken`

func scanPublisherRow(row sqldb.Row) (*publisherRow, error) {
	var p publisherRow
	var selects, settings string
	err := row.Scan(&p.Topic, &p.Publisher, &p.destination, &selects, &p.maxErrors,
		(*string)(&p.status), &p.position, &p.deliveredAt, &p.delivered, &p.errors, (*string)(&p.errorKind), &p.lastError, &p.lastErrorAt, &p.errorPosition, &p.retryAt, sqldb.ScanTruth(&p.stopped),
		&p.lastPublished, &p.perSecond, &p.nextPoll, &p.pausedAt, &p.pausedBy, &p.pausedReason, &p.actions,
		&p.owner, &p.epoch, &p.expires, &p.wantedBy, &p.wantedAt, &p.created, &p.updated, &settings, &p.healthy, &p.healthMessage, &p.healthAt, &p.hangingSince, &p.testTaken)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(selects), &p.match); err != nil {
		return nil, fmt.Errorf("what topic %q selects: %w", p.Topic, err)
	}
	return &p, sqldb.Wrapf(json.Unmarshal([]byte(settings), &p.settings), "the settings of publisher %s", p.SubscriptionName)
}

const (
	selectPublisher = `
select ` + publisherColumns + `
from publisher_progress
where topic = $1
  and publisher = $2`

	selectPublishers = `
select ` + publisherColumns + `
from publisher_progress
order by topic, publisher`

	selectPublishersNamed = `
select ` + publisherColumns + `
from publisher_progress
where publisher = $1
order by topic`

	updatePublisher = `
update publisher_progress
set destination = $3, selects = $4, max_errors = $5,
  status = $6, position = $7, delivered_position = $8, delivered = $9, error_count = $10, error_kind = $11, last_error = $12, last_error_at = $13,
  error_position = $14, retry_at = $15, stopped = $16, last_published_at = $17, events_per_second = $18, next_poll_at = $19,
  paused_at = $20, paused_by = $21, paused_reason = $22, acts = $23,
  lease_owner = $24, lease_epoch = $25, lease_expires_at = $26, wanted_by = $27, wanted_at = $28, updated_at = $29,
  settings = $30, healthy = $31, health_message = $32, health_at = $33, hanging_since = $34, test_taken = $35
where topic = $1
  and publisher = $2`
)

// publisher reads a subscription and locks it for a change in this transaction. A missing one is
// event.ErrNotFound.
func (t *tx) publisher(name operator.SubscriptionName) (*publisherRow, error) {
	found, err := sqldb.All(t, scanPublisherRow, selectPublisher+t.ForUpdate, name.Topic, name.Publisher)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read publisher %s: %w", name, err)
	case len(found) == 0:
		return nil, event.NotFound("there is no publisher %s; it appears here once a server has started with it in its configuration", name)
	}
	return found[0], nil
}

// publishers reads all subscriptions sorted by name.
func (t *tx) publishers() ([]*publisherRow, error) {
	all, err := sqldb.All(t, scanPublisherRow, selectPublishers)
	return all, sqldb.Wrapf(err, "read publishers")
}

// save writes the row of a subscription that this transaction has locked.
func (t *tx) save(p *publisherRow, now int64) error {
	selects, err := json.Marshal(p.match)
	if err != nil {
		return fmt.Errorf("write what topic %q selects: %w", p.Topic, err)
	}
	settings, err := json.Marshal(p.settings)
	if err != nil {
		return fmt.Errorf("write the settings of publisher %s: %w", p.SubscriptionName, err)
	}
	p.updated = now
	_, err = t.Exec(updatePublisher, p.Topic, p.Publisher, p.destination, string(selects), p.maxErrors,
		string(p.status), p.position, p.deliveredAt, p.delivered, p.errors, string(p.errorKind), p.lastError, p.lastErrorAt,
		p.errorPosition, p.retryAt, sqldb.Truth(p.stopped), p.lastPublished, p.perSecond, p.nextPoll,
		p.pausedAt, p.pausedBy, p.pausedReason, p.actions, p.owner, p.epoch, p.expires, p.wantedBy, p.wantedAt, now, string(settings), p.healthy, p.healthMessage, p.healthAt, p.hangingSince, p.testTaken)
	return sqldb.Wrapf(err, "update publisher %s", p.SubscriptionName)
}

func (p *publisherRow) pause(t *tx, o operator.Command, now int64) error {
	p.status = subscription.PublisherPaused
	p.pausedAt, p.pausedBy, p.pausedReason = sql.NullInt64{Int64: now, Valid: true}, o.By.Name, o.Reason
	return t.PausedUntil(o, operator.ActionPublisherResume, "", p.SubscriptionName.String(), now)
}

func (p *publisherRow) resume(t *tx, o operator.Command) error {
	if p.status == subscription.PublisherPaused {
		p.status = subscription.PublisherActive
		p.pausedAt, p.pausedBy, p.pausedReason = sql.NullInt64{}, "", ""
	}
	p.clearErrors()
	return t.Resumed(o, operator.ActionPublisherResume, "", p.SubscriptionName.String())
}

// clearErrors clears the errors, so that the subscription is retried at once. A failed one becomes
// active.
func (p *publisherRow) clearErrors() {
	p.errors, p.errorKind, p.lastError, p.errorPosition, p.stopped = 0, "", "", 0, false
	p.lastErrorAt, p.retryAt, p.testTaken = sql.NullInt64{}, sql.NullInt64{}, sql.NullInt64{}
	if p.status == subscription.PublisherFailed {
		p.status = subscription.PublisherActive
	}
}

// revoke ends the holder's lease, so that a batch in flight cannot move the position.
func (p *publisherRow) revoke() {
	p.owner, p.expires, p.nextPoll, p.perSecond = "", 0, sql.NullInt64{}, 0
	p.healthy, p.healthMessage, p.healthAt, p.hangingSince = sql.NullInt64{}, "", sql.NullInt64{}, sql.NullInt64{}
	p.epoch++
}

// kind is the kind of the last error. A test event tells which is at fault, the event or the destination,
// if the error itself does not.
func (p *publisherRow) kind() operator.DeliveryErrorKind {
	switch {
	case p.errorKind != operator.UnknownError || !p.testTaken.Valid:
		return p.errorKind
	case p.testTaken.Int64 == 0:
		return operator.DestinationError
	}
	return operator.EventError
}

// leased reports whether a process has leased the subscription.
func (p *publisherRow) leased(now int64) bool { return p.owner != "" && p.expires > now }

// view returns the subscription as callers see it, without its lag.
func (p *publisherRow) view(now int64) subscription.Publisher {
	v := subscription.Publisher{
		SubscriptionName: p.SubscriptionName, Destination: p.destination, Match: p.match, Status: p.status,
		Position: p.position, DeliveredPosition: p.deliveredAt, Delivered: p.delivered,
		ErrorCount: int(p.errors), ErrorKind: p.kind(), LastError: p.lastError, LastErrorAt: sqldb.AtOrNil(p.lastErrorAt), ErrorPosition: p.errorPosition,
		RetryAt: sqldb.AtOrNil(p.retryAt), Stopped: p.stopped, LastPublishedAt: sqldb.AtOrNil(p.lastPublished),
		CreatedAt: sqldb.At(p.created), UpdatedAt: sqldb.At(p.updated), Settings: p.settings,
	}
	if p.testTaken.Valid {
		v.TestTaken = new(p.testTaken.Int64 != 0)
	}
	if p.pausedAt.Valid {
		v.Paused = &campaign.Pause{By: p.pausedBy, At: sqldb.At(p.pausedAt.Int64), Reason: p.pausedReason}
	}
	if p.owner != "" {
		v.Lease = &campaign.Lease{Owner: p.owner, Epoch: p.epoch, ExpiresAt: sqldb.At(p.expires)}
	}
	if p.leased(now) {
		v.EventsPerSecond = p.perSecond
		next := p.nextPoll
		if p.retryAt.Valid {
			next = p.retryAt
		} else if next.Valid && next.Int64 <= now { // it has polled since it said so
			next.Int64 = now + p.settings.LongestPoll().Microseconds()
		}
		if next.Int64 > now {
			v.NextPollAt = sqldb.AtOrNil(next)
		}
		if p.healthy.Valid {
			v.Healthy, v.HealthMessage, v.HealthAt = new(p.healthy.Int64 != 0), p.healthMessage, sqldb.AtOrNil(p.healthAt)
		}
		v.HangingSince = sqldb.AtOrNil(p.hangingSince)
	}
	return v
}
