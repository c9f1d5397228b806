package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Action is one kind of operator action, on a store where it can be done. Rules apply to every action, in whichever package it is.
type Action struct {
	*Fixture
	Action string
	Do     func(operator.Command) (any, error)
	// DoBeside does the same from another process.
	DoBeside func(operator.Command) (any, error)
	// Undone reports whether the action has had no effect; nil where a part of it may happen without its record.
	Undone func() bool
	// Others are actions of other kinds.
	Others []func(operator.Command) (any, error)
}

// Kind is a kind of action, on a package's fixture that Scene prepares.
type Kind[F any] struct {
	Action string
	Scene  func(F)
	Do     func(F, operator.Command) (any, error)
	Undone func(F) bool // see Action.Undone
}

// Kinds are the kinds of actions of a package.
type Kinds[F any] struct {
	Open   func(testing.TB, ...func(*store.Options)) F
	Base   func(F) *Fixture
	Beside func(F) F // opens another process
	All    []Kind[F]
}

// KeepRules tests every rule for every kind of action.
func (k Kinds[F]) KeepRules(t *testing.T) {
	for name, rule := range rules {
		for _, kind := range k.All {
			t.Run(kind.Action+" "+name, func(t *testing.T) { t.Parallel(); rule(t, func() Action { return k.ready(t, kind) }) })
		}
	}
}

// MustHave fails for each audited action that is chosen and has no kind.
func (k Kinds[F]) MustHave(t *testing.T, chosen func(operator.Action) bool) {
	for _, action := range operator.AuditedActions() {
		tested := slices.ContainsFunc(k.All, func(kind Kind[F]) bool { return kind.Action == string(action) })
		must.Hold(t, !chosen(action) || tested, "no test does %s", action)
	}
}

// ready prepares the action on a store of its own.
func (k Kinds[F]) ready(t *testing.T, kind Kind[F]) Action {
	f := k.Open(t)
	kind.Scene(f)
	base := k.Base(f)
	base.Clock.Advance(time.Minute)
	ready := Action{Fixture: base, Action: kind.Action,
		Do:       func(o operator.Command) (any, error) { return kind.Do(f, o) },
		DoBeside: func(o operator.Command) (any, error) { return kind.Do(k.Beside(f), o) }}
	if kind.Undone != nil {
		ready.Undone = func() bool { return kind.Undone(f) }
	}
	for _, other := range k.All {
		if other.Action != kind.Action {
			ready.Others = append(ready.Others, func(o operator.Command) (any, error) { return other.Do(f, o) })
		}
	}
	return ready
}

// rules are stories that every operator action must pass; each makes it ready on stores of its own.
var rules = map[string]func(*testing.T, func() Action){
	"without its record does not happen, and with one is done once": happensOnceWithItsRecord,
	"of two at once with one key is done once":                      ofTwoAtOnceIsDoneOnce,
}

// happensOnceWithItsRecord tests that an action fails when its record cannot be written, while a refusal is returned also then; that a refusal has exactly one
// record with the action's target, and leaves the command's key free; and that the action that is completed with that key has exactly one record, with the data
// of its command, and is not repeated.
func happensOnceWithItsRecord(t *testing.T, ready func() Action) {
	a := ready()
	refused := Ana(strings.Repeat("ü", 251))
	refused.By.Auth, refused.By.Role, refused.IdempotencyKey = operator.AuthJWT, operator.RoleAdmin, "again"
	a.ForbidAudit("no audit today")
	_, err := a.Do(refused)
	must.Equal(t, Refused(t, err, event.ErrInvalid, "502", "500").AuditEntryID, 0, "the refusal names a record")
	must.Equal(t, len(a.RefusedActions()), 0, "records were left")
	_, err = a.Do(Ana(""))
	must.Hold(t, err != nil && strings.Contains(err.Error(), "no audit today") && !errors.As(err, new(*event.Refusal)), "got error %v, want one that is no refusal", err)
	must.Hold(t, a.Undone == nil || a.Undone(), "the act happened without its record")
	if a.AllowAudit(); a.Undone == nil {
		a = ready()
	}

	var refusal *event.Refusal
	a.Unchanged(func() {
		_, err := a.Do(refused)
		refusal = Refused(t, err, event.ErrInvalid, "502", "500")
		must.Equal(t, refusal.Field, "reason", "what the refusal is about")
	})
	list := a.RefusedActions()
	must.Need(t, len(list) == 1, "%d records were left, want one: %+v", len(list), list)
	got := list[0]
	must.Equal(t, got.ID, refusal.AuditEntryID, "the record that the refusal names")
	want := operator.AuditEntry{ID: got.ID, At: a.Clock.Now(), Actor: "ana", Auth: operator.AuthJWT, Role: operator.RoleAdmin, Via: "page", From: "10.0.0.7", Action: operator.Action(a.Action),
		CampaignID: got.CampaignID, Seq: got.Seq, Target: got.Target, Outcome: operator.AuditRefused, Refusal: refusal.Error(),
		Before: got.Before, After: []byte("null"), Reason: strings.Repeat("ü", 250), RequestID: "r-1"}
	must.Equal(t, got, want, "the record of the refusal")

	o := Ana("the cause is fixed")
	o.By.Auth, o.By.Role, o.IdempotencyKey = operator.AuthJWT, operator.RoleAdmin, "again"
	first := must.Get(a.Do(o)).Or(t)
	done := a.DoneActions()
	must.Need(t, len(done) == 1 && len(a.RefusedActions()) == 1, "%d acts are done and %d refused, want one each", len(done), len(a.RefusedActions()))
	about := func(a operator.AuditEntry) string { return fmt.Sprint(a.CampaignID, a.Seq, a.Target) }
	starts := a.Action == string(operator.ActionRehearse) || strings.HasSuffix(a.Action, "_start") || strings.HasSuffix(a.Action, "_create") // the created thing has no id before
	must.Hold(t, starts || about(done[0]) == about(got), "the refused act was about %q, the same one done about %q", about(got), about(done[0]))
	want.ID, want.Outcome, want.Refusal, want.Reason = done[0].ID, operator.AuditDone, "", o.Reason
	want.CampaignID, want.Seq, want.Target, want.Before, want.After = done[0].CampaignID, done[0].Seq, done[0].Target, done[0].Before, done[0].After
	must.Equal(t, done[0], want, "the record")
	must.Hold(t, json.Valid(want.Before) && json.Valid(want.After) && string(want.After) != "null", "before %s, after %s", want.Before, want.After)
	a.Sound()
	a.Clock.Advance(time.Minute)
	a.Unchanged(func() {
		second, err := a.Do(o)
		diff := cmp.Diff(first, second)
		must.Hold(t, err == nil && diff == "", "the repeat got %v (-first +second):\n%s", err, diff)
		for _, other := range a.Others {
			_, err := other(o)
			Refused(t, err, event.ErrConflict, "Idempotency-Key", a.Action)
		}
	})
	a.MustAppend(Event("b", "counted"))
	_, err = a.PauseCampaign(context.Background(), o, "b")
	Refused(t, err, event.ErrConflict, "Idempotency-Key")
	must.Equal(t, len(a.DoneActions()), 1, "audit records")
}

// ofTwoAtOnceIsDoneOnce tests that two processes that act concurrently with one idempotency key get the same result of one action.
func ofTwoAtOnceIsDoneOnce(t *testing.T, ready func() Action) {
	a := ready()
	o := Ana("")
	o.IdempotencyKey = "k-1"
	var results [2]any
	var both sync.WaitGroup
	for i, do := range []func(operator.Command) (any, error){a.Do, a.DoBeside} {
		both.Go(func() {
			var err error
			results[i], err = do(o)
			must.Hold(t, err == nil, "got error %v", err)
		})
	}
	both.Wait()
	must.Equal(t, results[1], results[0], "the two got different answers")
	must.Equal(t, len(a.DoneActions()), 1, "audit records")
	a.Sound()
}

// Ana is a command of the operator whose actions fixtures list.
func Ana(reason string) operator.Command {
	return operator.Command{By: operator.Operator{Name: "ana", Via: "page", From: "10.0.0.7"}, Reason: reason, RequestID: "r-1"}
}

// Ben is a command of another operator, for setting up.
var Ben = operator.Command{By: operator.Operator{Name: "ben", Via: "cli"}}

// DoneActions are the records of ana's completed actions, newest first.
func (f *Fixture) DoneActions() []operator.AuditEntry {
	return must.Get(f.AuditLog(f.Ctx, operator.AuditFilter{Actor: "ana", Outcome: operator.AuditDone})).Or(f.TB).Items
}

// RefusedActions are the records of ana's refused actions, newest first.
func (f *Fixture) RefusedActions() []operator.AuditEntry {
	return must.Get(f.AuditLog(f.Ctx, operator.AuditFilter{Actor: "ana", Outcome: operator.AuditRefused})).Or(f.TB).Items
}

// Actions lists the actions in the audit records of a campaign, or of one of its rows, newest first.
func (f *Fixture) Actions(filter operator.AuditFilter) []string {
	page := must.Get(f.AuditLog(f.Ctx, filter)).Or(f.TB)
	actions := []string{}
	for _, a := range page.Items {
		actions = append(actions, string(a.Action))
	}
	must.Hold(f.TB, page.Total != nil && int(*page.Total) == len(actions), "%+v lists %v, and the total is %v", filter, actions, page.Total)
	return actions
}

// WantActions fails unless the actions that match a filter are of these kinds, newest first.
func (f *Fixture) WantActions(filter operator.AuditFilter, want ...string) {
	must.Same(f.TB, f.Actions(filter), want, "the acts by", filter)
}

// ForbidAudit makes every insert of an audit record fail with a message.
func (f *Fixture) ForbidAudit(message string) {
	does := `begin select raise(abort, '` + message + `'); end`
	if dbtest.Postgres() {
		f.Exec(`create function no_audit() returns trigger language plpgsql as $$ begin raise exception '` + message + `'; end $$`)
		does = `for each row execute function no_audit()`
	}
	f.Exec(`create trigger no_audit before insert on audit_log ` + does)
}

// AllowAudit undoes ForbidAudit.
func (f *Fixture) AllowAudit() {
	of := ""
	if dbtest.Postgres() {
		of = ` on audit_log`
	}
	f.Exec(`drop trigger if exists no_audit` + of)
}

// ActionsOf are the completed actions of a kind.
func (f *Fixture) ActionsOf(action string) []operator.AuditEntry {
	return must.Get(f.AuditLog(f.Ctx, operator.AuditFilter{Action: operator.Action(action), Outcome: operator.AuditDone})).Or(f.TB).Items
}

// Refused fails unless err is a refusal of the kind whose message contains every fragment.
func Refused(tb testing.TB, err, kind error, fragments ...string) *event.Refusal {
	var r *event.Refusal
	must.Need(tb, errors.Is(err, kind) && errors.As(err, &r), "got error %v, want a refusal: %v", err, kind)
	for _, fragment := range fragments {
		must.Hold(tb, strings.Contains(r.Error(), fragment), "the sentence %q lacks %q", r.Error(), fragment)
	}
	return r
}

// NamesNoAction fails when a refusal mentions an action.
func NamesNoAction(tb testing.TB, err error) {
	r := Refused(tb, err, event.ErrConflict)
	must.Hold(tb, !strings.Contains(r.Error(), "last action"), "an act that did not touch it is named: %v", r)
}
