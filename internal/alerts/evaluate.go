package alerts

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

type evaluation struct {
	*Worker
	tx     *store.Tx
	now    time.Time
	micros int64
	// lastMicros is when the last evaluation was, by any process.
	lastMicros int64

	facts  facts.Facts
	mutes  []AlertMute
	states []Alert        // as the last evaluation left them
	firing map[string]int // causes by rule
}

func (e *evaluation) run(facts facts.Facts) error {
	e.facts = facts
	if err := e.begin(); err != nil {
		return err
	}
	var err error
	if e.states, err = readStates(e.tx); err != nil {
		return err
	}
	if e.mutes, err = readMutes(e.tx, e.micros); err != nil {
		return err
	}
	for _, rule := range e.Alerts.Rules {
		of := slices.DeleteFunc(slices.Clone(e.states), func(a Alert) bool { return a.Rule != rule.Name })
		if err := e.rule(rule, of); err != nil {
			return err
		}
	}
	return e.prune(e.states)
}

// begin checks the lease, and finds out whether anything moved since the last evaluation.
func (e *evaluation) begin() error {
	w := e.facts.Summary.Worker
	progress, before := w.Applied+w.Failed, int64(0)
	found, err := e.tx.One([]any{&before, &e.lastMicros}, `select progress, evaluated_at from alert_evaluator where lease_owner = $1 and lease_epoch = $2`+e.tx.ForUpdate, e.ID, e.epoch)
	if err == nil && !found {
		err = errElsewhere
	}
	if err != nil {
		return err
	}
	e.facts.Moved = progress != before
	_, err = e.tx.Exec(`update alert_evaluator set progress = $1, evaluated_at = $2`, progress, e.micros)
	return err
}

// rule evaluates one rule: the causes it finds, and those it found before.
func (e *evaluation) rule(rule AlertRule, states []Alert) error {
	if rule.Blind(e.facts) {
		return nil
	}
	causes := rule.Causes(e.facts)
	for _, c := range causes {
		a := Alert{Rule: rule.Name}
		if i := slices.IndexFunc(states, func(s Alert) bool { return s.Cause.Key == c.Key }); i >= 0 {
			a = states[i]
		}
		begins := a.Status == AlertOK || a.Status == ""
		if c.Lingers && begins {
			continue
		}
		if last := sqldb.At(e.lastMicros); begins && rule.Over > 0 && c.Since.Before(last) {
			c.Since = last // fewer were found then, even if the first is older
		}
		if err := e.next(rule, a, &c); err != nil {
			return err
		}
	}
	for _, a := range states {
		if slices.ContainsFunc(causes, func(c AlertCause) bool { return c.Key == a.Cause.Key }) {
			continue
		}
		if err := e.next(rule, a, nil); err != nil {
			return err
		}
	}
	return nil
}

// next stores the state of a cause, and its message if there is one.
func (e *evaluation) next(rule AlertRule, before Alert, cause *AlertCause) error {
	if cause != nil {
		cause.Error = sqldb.Clip(e.Alerts.Hide(cause.Error), errorKept)
		cause.Sentence, cause.Owner = e.Alerts.Hide(cause.Sentence), e.Alerts.Hide(cause.Owner)
	}
	part := slices.ContainsFunc(e.Alerts.Rules, func(w AlertRule) bool { return e.tells(w, rule) })
	if part && !before.Told && before.Status != "" && before.Status != AlertOK {
		before.Status, before.Held = AlertPending, 0 // what is left of it has to hold anew
	}
	a, kind := before.Next(rule, cause, part || e.muted(rule), e.now)
	if a.Status == AlertFiring {
		e.firing[rule.Name]++
	}
	if kind != AlertNoMessage {
		var counted *int64
		if kind != AlertStarted {
			counted = &before.SentCount
		}
		m := a.Message(rule, e.facts, kind, counted, e.Alerts.link)
		if err := e.post(rule, m); err != nil {
			return err
		}
	}
	if before.Status == AlertOK && a.Status == AlertOK {
		return nil
	}
	return saveState(e.tx, a)
}

func (e *evaluation) muted(rule AlertRule) bool {
	return !MutedUntil(e.mutes, rule.Name, e.now).IsZero()
}

// tells reports whether a wider rule finds the incident of another one, and tells everybody whom that would tell, no
// later.
func (e *evaluation) tells(w, rule AlertRule) bool {
	if w.What != wider[rule.What] {
		return false
	}
	fires := slices.ContainsFunc(e.states, func(a Alert) bool { return a.Rule == w.Name && a.Status == AlertFiring })
	return (fires || w.For <= rule.For) && !e.muted(w) && len(w.Causes(e.facts)) > 0 &&
		!slices.ContainsFunc(rule.To, func(receiver string) bool { return !slices.Contains(w.To, receiver) })
}

// errorKept is the maximum length of a cause's error in its state, in bytes.
const errorKept = 4 << 10

// post stores a message for each receiver of the rule. It replaces one about the same cause that is
// not sent yet, so that a receiver that was down gets the latest only.
func (e *evaluation) post(rule AlertRule, m AlertMessage) error {
	m.ID = rule.Name + "-" + strconv.FormatInt(e.epoch, 36) + "-" + strconv.FormatInt(e.micros, 36)
	if m.Cause != "" {
		m.ID += "-" + event.Fingerprint(m.Cause)
	}
	for _, receiver := range rule.To {
		_, err := e.tx.Exec(`update alert_messages set status = 'superseded' where receiver = $1 and rule = $2 and cause = $3 and status = 'waiting'`, receiver, rule.Name, m.Cause)
		if err != nil {
			return err
		}
		d := AlertDelivery{Receiver: receiver, Message: m, CreatedAt: e.now, Status: "waiting"}
		if err := insertMessage(e.tx, d); err != nil {
			return err
		}
	}
	return nil
}

func insertMessage(t *store.Tx, d AlertDelivery) error {
	body, err := json.Marshal(d.Message)
	if err != nil {
		return err
	}
	_, err = t.Exec(`
insert into alert_messages (receiver, rule, cause, body, created_at, due_at, held, status, sent_at, last_error)
values ($1, $2, $3, $4, $5, $5, 0, $6, $7, $8)`, d.Receiver, d.Message.Rule, d.Message.Cause, sqldb.Storable(string(body)), d.CreatedAt.UnixMicro(), d.Status,
		sqldb.MicrosIfAny(d.SentAt), sqldb.Storable(d.LastError))
	return err
}

// tooOld is the age at which a message that cannot be sent is given up. While its cause goes on, a
// reminder replaces it before.
const tooOld = 3 * 24 * time.Hour

// messagesKept is how many messages are kept, beside those that wait.
const messagesKept = 1000

// prune deletes what no one needs any more: states that ended a day ago or whose rule is gone, mutes
// that ended, and old messages.
func (e *evaluation) prune(states []Alert) error {
	for _, a := range states {
		over := a.EndedAt != nil && e.now.Sub(*a.EndedAt) > endedFor
		if !over && (e.Alerts.hasRule(a.Rule) || e.now.Sub(a.SeenAt) < endedFor) {
			continue
		}
		if _, err := e.tx.Exec(`delete from alert_states where rule = $1 and cause = $2`, a.Rule, a.Cause.Key); err != nil {
			return err
		}
	}
	if _, err := e.tx.Exec(`delete from alert_mutes where until <= $1`, e.micros); err != nil {
		return err
	}
	_, err := e.tx.Exec(`update alert_messages set status = 'failed' where status = 'waiting' and created_at < $1`, e.now.Add(-tooOld).UnixMicro())
	if err != nil {
		return err
	}
	_, err = e.tx.Exec(`delete from alert_messages where id <= (select max(id) from alert_messages) - $1 and status <> 'waiting'`, messagesKept)
	return err
}
