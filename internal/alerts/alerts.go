// Package alerts tells people of trouble. Its rules decide what is wrong; a Worker
// evaluates them in one process at a time, and sends messages to the receivers of the configuration
// file: webhooks, chats, ntfy and e-mail.
//
// The messages of an evaluation are stored in the transaction that changes the state of its rules,
// and sent after that. A process that dies in between sends them when it, or another one, is back; a
// process that dies after sending one and before recording that sends it again, under the same id.
// So a message is sent at least once, and never lost.
package alerts

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Alerts is the state of alerts in the journal database: its tables are those whose names begin with
// alert_. It is safe for concurrent use, by several processes too.
type Alerts struct {
	core *store.Store
	Options
}

// Options are how messages are made and sent.
type Options struct {
	Settings
	Version string              // of the program
	Link    Link                // nil means that messages have no links
	Hide    func(string) string // removes secrets from errors; nil hides nothing
}

// Link returns the address of a page of the console, at an anchor if one is given.
type Link func(page, anchor string) string

// Links links to the console at a public origin and base path; nil without an origin.
func Links(origin, base string) Link {
	if origin == "" {
		return nil
	}
	return func(page, anchor string) string {
		url := origin + strings.TrimSuffix(base, "/") + "/" + page
		if anchor != "" {
			url += "#" + anchor
		}
		return url
	}
}

// New returns the alerts of a store under the settings of this process.
func New(core *store.Store, o Options) *Alerts {
	if o.Hide == nil {
		o.Hide = func(s string) string { return s }
	}
	return &Alerts{core: core, Options: o}
}

// Configured reports whether this process has receivers.
func (a *Alerts) Configured() bool { return len(a.Receivers) > 0 }

// link is the address of a page; empty if it is not known.
func (a *Alerts) link(page, anchor string) string {
	if a.Link == nil {
		return ""
	}
	return a.Link(page, anchor)
}

// stored is the state of a cause as the database has it.
type stored struct {
	Alert
	Held      int64 `json:"held"` // microseconds
	SentCount int64 `json:"sent_count"`
}

// maxStates is how many causes of rules are kept and shown, far more than there are publishers and
// instances.
const maxStates = 1000

func readStates(t *store.Tx) ([]Alert, error) {
	return sqldb.All(t, func(row sqldb.Row) (Alert, error) {
		var s stored
		text, err := sqldb.Column[string](row)
		if err != nil {
			return s.Alert, err
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return s.Alert, fmt.Errorf("read the state of an alert: %w", err)
		}
		s.Alert.Held, s.Alert.SentCount = time.Duration(s.Held)*time.Microsecond, s.SentCount
		return s.Alert, nil
	}, `select state from alert_states order by rule, cause limit $1`, maxStates)
}

func saveState(t *store.Tx, a Alert) error {
	text, err := json.Marshal(stored{Alert: a, Held: a.Held.Microseconds(), SentCount: a.SentCount})
	if err != nil {
		return err
	}
	_, err = t.Exec(`
insert into alert_states (rule, cause, state)
values ($1, $2, $3)
on conflict (rule, cause) do update
set state = excluded.state`, a.Rule, a.Cause.Key, sqldb.Storable(string(text)))
	return err
}

func readMutes(t *store.Tx, now int64) ([]AlertMute, error) {
	return sqldb.All(t, func(row sqldb.Row) (m AlertMute, err error) {
		err = row.Scan(&m.Rule, sqldb.ScanTime(&m.Until), sqldb.ScanTime(&m.At), &m.By, &m.Reason)
		return m, err
	}, `select rule, until, muted_at, muted_by, reason from alert_mutes where until > $1 order by rule`, now)
}

// messagesShown is how many messages a view has.
const messagesShown = 50

const messageColumns = `id, receiver, body, created_at, status, sent_at, last_error`

func scanMessage(row sqldb.Row) (d AlertDelivery, err error) {
	var body string
	err = row.Scan(&d.Number, &d.Receiver, &body, sqldb.ScanTime(&d.CreatedAt), &d.Status, sqldb.ScanTimeOrNil(&d.SentAt), &d.LastError)
	if err != nil {
		return d, err
	}
	return d, sqldb.Wrapf(json.Unmarshal([]byte(body), &d.Message), "read message %d", d.Number)
}

// View returns the state of the rules and receivers of this process's configuration, and the last
// messages.
func (a *Alerts) View(ctx context.Context) (AlertsView, error) {
	now := a.core.Now()
	v := AlertsView{Configured: a.Configured(), Linked: a.Link != nil, Rules: []AlertRuleState{}, Receivers: []AlertReceiver{}}
	err := a.core.Journal().Read(ctx, func(t *store.Tx) error {
		var evaluated, expires int64
		_, err := t.One([]any{&evaluated, &v.Evaluator, &expires}, `select evaluated_at, lease_owner, lease_expires_at from alert_evaluator`)
		if err != nil {
			return err
		}
		if evaluated > 0 {
			v.EvaluatedAt = new(sqldb.At(evaluated))
		}
		if expires <= now {
			v.Evaluator = ""
		}
		states, err := readStates(t)
		if err != nil {
			return err
		}
		if v.Mutes, err = readMutes(t, now); err != nil {
			return err
		}
		v.Rules = a.ruleStates(states, v.Mutes, sqldb.At(now))
		if v.Messages, err = sqldb.All(t, scanMessage, `select `+messageColumns+` from alert_messages order by id desc limit $1`, messagesShown); err != nil {
			return err
		}
		return a.readReceivers(t, &v)
	})
	return v, sqldb.Wrapf(err, "read the state of alerts")
}

// endedFor is how long a cause that is over is shown, and its state kept.
const endedFor = 24 * time.Hour

func (a *Alerts) ruleStates(states []Alert, mutes []AlertMute, now time.Time) []AlertRuleState {
	all := []AlertRuleState{}
	for _, rule := range a.Rules {
		s := AlertRuleState{AlertRule: rule, OverSeconds: rule.OverAge.Seconds(), ForSeconds: rule.For.Seconds(), Condition: rule.Condition(), Alerts: []Alert{}}
		if until := MutedUntil(mutes, rule.Name, now); !until.IsZero() {
			s.MutedUntil = &until
		}
		for _, state := range states {
			if state.Rule == rule.Name && (state.Status != AlertOK || state.SentAt != nil) {
				s.Alerts = append(s.Alerts, state)
			}
		}
		all = append(all, s)
	}
	return all
}

func (a *Alerts) readReceivers(t *store.Tx, v *AlertsView) error {
	for _, r := range a.Receivers {
		rec := AlertReceiver{Name: r.Name, Kind: r.Kind, Destination: r.Shown}
		var sent, failed sql.NullInt64
		var retry int64
		_, err := t.One([]any{&rec.Failures, &sent, &failed, &rec.LastError, &retry},
			`select failures, sent_at, error_at, last_error, retry_at from alert_receivers where receiver = $1`, r.Name)
		if err != nil {
			return err
		}
		rec.SentAt, rec.ErrorAt = sqldb.AtOrNil(sent), sqldb.AtOrNil(failed)
		if retry > 0 {
			rec.RetryAt = new(sqldb.At(retry))
		}
		if _, err := t.One([]any{&rec.Waiting}, countWaiting, r.Name, waitingCounted); err != nil {
			return err
		}
		v.Receivers = append(v.Receivers, rec)
	}
	return nil
}

// waitingCounted bounds the count of waiting messages: there is at most one for each cause.
const waitingCounted = 1000

const countWaiting = `
select count(*)
from (select id
  from alert_messages
  where receiver = $1
    and status = 'waiting'
  limit $2) waiting`
