package alerts

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// retry is the wait after errors of a receiver in a row.
var retry = event.Retry{Base: 15 * time.Second, Max: 5 * time.Minute}

// summedUp is the maximum number of messages in a summary.
const summedUp = 50

const selectDue = `
select ` + messageColumns + `
from alert_messages
where receiver = $1
  and status = 'waiting'
order by id
limit $2`

// apart is how many messages that are due at once are sent by themselves.
const apart = 3

// due returns the next message of a receiver, or several to be summed up if there are many. It returns
// none while the receiver is not to be tried.
func (a *Alerts) due(ctx context.Context, receiver string) (due []AlertDelivery, err error) {
	err = a.core.Journal().Read(ctx, func(t *store.Tx) error {
		due = nil
		var retryAt int64
		now := a.core.Now()
		_, err := t.One([]any{&retryAt}, `select retry_at from alert_receivers where receiver = $1`, receiver)
		if err != nil || retryAt > now && retryAt <= now+(time.Hour+retry.Max).Microseconds() {
			return err
		}
		due, err = sqldb.All(t, scanMessage, selectDue, receiver, summedUp)
		return err
	})
	if len(due) > apart {
		return due, err
	}
	return due[:min(len(due), 1)], err
}

// recordSent records how sending the messages went.
func (a *Alerts) recordSent(ctx context.Context, receiver string, sent []AlertDelivery, failure error, text string) error {
	return a.write(ctx, func(t *store.Tx) error {
		now := a.core.Now()
		for _, d := range sent {
			query, args := `update alert_messages set status = 'sent', sent_at = $2, last_error = '' where id = $1`, []any{d.Number, now}
			if failure != nil {
				query, args = `update alert_messages set last_error = $2 where id = $1`, []any{d.Number, sqldb.Storable(text)}
			}
			if _, err := t.Exec(query, args...); err != nil {
				return err
			}
		}
		return recordOutcome(t, receiver, failure, text, now)
	})
}

// recordOutcome records whether a receiver took a message, and when to try again.
func recordOutcome(t *store.Tx, receiver string, failure error, text string, now int64) error {
	if failure == nil {
		_, err := t.Exec(`
insert into alert_receivers (receiver, sent_at)
values ($1, $2)
on conflict (receiver) do update
set failures = 0, retry_at = 0, sent_at = excluded.sent_at`, receiver, now)
		return err
	}
	var failures int64
	if _, err := t.One([]any{&failures}, `select failures from alert_receivers where receiver = $1`+t.ForUpdate, receiver); err != nil {
		return err
	}
	failures++
	wait := max(retry.Delay(int(failures)), outbound.Cause(failure).RetryAfter)
	_, err := t.Exec(`
insert into alert_receivers (receiver, failures, error_at, last_error, retry_at)
values ($1, $2, $3, $4, $5)
on conflict (receiver) do update
set failures = excluded.failures, error_at = excluded.error_at, last_error = excluded.last_error, retry_at = excluded.retry_at`,
		receiver, failures, now, sqldb.Storable(text), now+wait.Microseconds())
	return err
}
